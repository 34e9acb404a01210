"""How a connection reads: large reads for large messages, entries copied once, counts confirmed or believed."""

import contextlib

import pytest
from forward_rig import client, forward
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.stream import READ_SIZE
from headrace.pipeline.counting import count_values
from headrace.pipeline.event import pack_event
from headrace.plugins.forward import entries
from headrace.plugins.forward.messages import encode_packed
from headrace.plugins.forward.stream import Decoder
from headrace.plugins.in_forward.connection import MOST_READ
from headrace.plugins.in_forward.intake import Terms, bring
from headrace.plugins.in_forward.room import PATIENCE, Room
from headrace.testing.clock import FakeClock

T = 1_700_000_000_123_456_789
ENTRIES = b"".join(pack_event(T, {"n": number, "text": "x" * 50}) for number in range(2000))


@given(st.lists(st.sampled_from([1, 7, 100, 4095, 4096, 5000, 65_536, 200_000]), min_size=1, max_size=8))
def test_entries_are_the_same_in_whatever_slices_they_come(sizes):
    data = b"".join(encode_packed("t", ENTRIES[:cut], 1, chunk_id=b"1" * 16) for cut in (50_000, 3, 100_000, 0, 9000))
    decoder = Decoder()
    found, at, number = [], 0, 0
    while at < len(data):
        size = sizes[number % len(sizes)]
        if size < 100 and number > 50:
            size = 5000
        found += decoder.feed(data[at : at + size])
        at += size
        number += 1
    assert [message.entries for message in found] == [ENTRIES[:cut] for cut in (50_000, 3, 100_000, 0, 9000)]
    assert decoder.pending == 0


def test_a_count_is_confirmed_after_others_that_were_wrong():
    for _ in range(3):
        assert count_values(ENTRIES, 2000) == 2000
        assert count_values(ENTRIES, 1999) == 2000
        assert count_values(ENTRIES, 2001) == 2000
        with pytest.raises(ValueError, match="cut short"):
            count_values(ENTRIES[:-1], 2000)
        large = ENTRIES * 10
        assert count_values(large, 20_000) == 20_000


@pytest.mark.parametrize("off", [-2000, -1, 0, 1])
@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("bad", [b"", b"\x92\xce\0\0\0\1\x02"])
def test_entries_that_are_looked_at_anyway_are_decoded_and_not_counted(off, reads, bad, monkeypatch):
    """A wrong count, or an entry that is no event, costs the others nothing in either case."""
    counted = []
    monkeypatch.setattr(entries, "count", lambda data, said: counted.append(said) or count_values(data, said))
    terms = Terms(lambda: T, reads=lambda tag: reads and tag == "t")
    number = 2000 + bool(bad)
    (message,) = Decoder().feed(encode_packed("t", bad + ENTRIES, max(number + off, 0), chunk_id=b"1" * 16))
    batch = bring(message, terms, None).batch
    assert batch.count == number
    assert batch.packed() == bad + ENTRIES
    assert len(batch.events()) == batch.count == 2000
    assert bool(counted) == (not reads or bool(off or bad))


async def test_reads_grow_with_what_is_under_way_and_shrink_again():
    async with forward() as kit, client(kit.port) as peer:
        message = encode_packed("t", ENTRIES, 2000, chunk_id=b"1" * 16)
        await peer.send(message * 40)
        for _ in range(40):
            await peer.value()
        (connection,) = kit.source._server.connections
        assert READ_SIZE <= connection.stream.read_size <= MOST_READ
        for number in range(10):
            await peer.send(encode_packed("t", pack_event(T, {"n": 1}), 1, chunk_id=bytes([number]) * 16))
            await peer.value()
        assert connection.stream.read_size == READ_SIZE


async def test_a_count_is_believed_where_nobody_looks_at_events():
    torn = encode_packed("t", ENTRIES[:-1], 2000, chunk_id=b"1" * 16)
    async with forward(match="@type null") as kit, client(kit.port) as peer:
        await peer.send(torn)
        await peer.value()
        assert kit.stats["events"] == 2000
    async with forward() as kit, client(kit.port) as peer:
        await peer.send(torn)
        await kit.until(lambda: kit.stats["refused"] == 1)
        assert kit.stats["acknowledged"] == 0


class Client:
    def __init__(self):
        self.held = 0
        self.heard = True
        self.reading = True

    def go_on(self):
        self.reading = True

    def holds(self, room, size):
        self.heard = True
        self.reading = room.holds(self, size)


def test_room_lets_one_go_on_and_the_others_in_their_order():
    clock = FakeClock()
    room = Room(100, clock, lambda _one: None)
    first, second, third = Client(), Client(), Client()
    for one in (first, second, third):
        one.holds(room, 40)
    assert [one.reading for one in (first, second, third)] == [True, True, True]
    second.holds(room, 60)
    assert [one.reading for one in (first, second, third)] == [True, False, True]
    third.holds(room, 500)
    assert room.used == 600
    third.holds(room, 0)
    assert second.reading, "one may always go on"
    second.holds(room, 70)
    first.holds(room, 70)
    assert not first.reading
    room.leaves(second)
    assert first.reading
    room.leaves(first)
    assert room.used == 0


def test_who_holds_others_back_and_says_nothing_is_cut():
    clock = FakeClock()
    gone = []
    room = Room(100, clock, lambda one: (gone.append(one), room.leaves(one)))
    silent, small, waiting = Client(), Client(), Client()
    small.holds(room, 1)
    silent.holds(room, 200)
    waiting.holds(room, 10)
    assert not waiting.reading
    clock.advance(PATIENCE + 1)
    small.heard = True
    clock.advance(PATIENCE + 1)
    assert silent in gone
    assert waiting not in gone
    assert waiting.reading


async def test_all_messages_arrive_through_a_small_room():
    async with forward("unfinished_size_limit 100k") as kit:
        message = encode_packed("t", ENTRIES, 2000, chunk_id=b"1" * 16)
        async with contextlib.AsyncExitStack() as stack:
            peers = [await stack.enter_async_context(client(kit.port)) for _ in range(8)]
            for peer in peers:
                await peer.send(message[:-10])
            await kit.until(lambda: kit.stats["stalled"] > 4)
            for peer in peers:
                await peer.send(message[-10:])
            for peer in peers:
                assert "ack" in await peer.value()
        await kit.until(lambda: kit.stats["unfinished_bytes"] == 0)
        assert kit.stats["stalled"] == 0
