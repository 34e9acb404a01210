"""Which segments go: a chunk that stays pins its own, and what was delivered never comes back."""

from __future__ import annotations

import logging
import random

import pytest

from headrace.pipeline.journal import Journal
from headrace.pipeline.recovery import Recovery
from headrace.testing.disks import Disk

LOG = logging.getLogger("test")


def opened(disk: Disk, size: int = 4096) -> tuple[Journal, dict[int, object]]:
    lock = disk.lock("/j/lock", 0o600)
    assert lock is not None
    journal = Journal("/j", lock, disk, LOG, mode=0o600, size=size)
    found = Recovery(journal, "/backup", 0o700, 0o600).run()
    return journal, {one.place.ref: one.place for one in found}


def add(journal: Journal, *sizes: int):
    place = journal.place((bytes(16), 1, 0, "t", None, None))
    for size in sizes:
        journal.append([(place, bytes([place.ref % 256]) * size, 1)], 1, None)
    return place


def gone(journal: Journal, place) -> None:
    journal.purge(place)
    journal.collect()
    journal.compact(1)


def content(journal: Journal, places: dict) -> dict[int, bytes]:
    return {ref: b"".join(journal.read(place)) for ref, place in places.items()}


def test_one_chunk_that_stays_pins_only_its_segment():
    disk = Disk()
    journal, _ = opened(disk, size=1 << 20)
    journal._limit = 4096
    journal._size = 4096
    stays = add(journal, 100)
    for _ in range(200):
        gone(journal, add(journal, 500))
    assert len(disk.segments()) <= 4
    again, places = opened(disk.copy())
    assert content(again, places) == {stays.ref: bytes([stays.ref]) * 100}


@pytest.mark.parametrize("seed", range(30))
def test_what_is_live_is_there_and_nothing_else(seed):
    """Chunks come, grow and go in any order, the disk is full now and then, the process dies at any moment."""
    chance = random.Random(seed)
    disk = Disk()
    journal, live = opened(disk)
    for step in range(300):
        what = chance.random()
        try:
            if what < 0.45:
                place = add(journal, *[chance.randrange(1, 900) for _ in range(chance.randrange(1, 4))])
                live[place.ref] = place
            elif what < 0.55 and live:
                place = chance.choice(list(live.values()))
                journal.append([(place, bytes([place.ref % 256]) * 50, 1)], 1, None)
        except OSError:
            continue
        finally:
            live |= journal.places
        if what > 0.55 and live:
            gone(journal, live.pop(chance.choice(list(live)[: 1 + step % 7])))
        if chance.random() < 0.1:
            journal.end_sync(journal.begin_sync())
        if chance.random() < 0.05:
            disk.room = chance.choice([None, 0, 700, 5000])
        if chance.random() < 0.1:
            expected = content(journal, live)
            again, places = opened(disk.copy())
            found = content(again, places)
            if not journal._pending:
                assert found == expected
            assert found.keys() >= expected.keys()
            if chance.random() < 0.3:
                for ref in found.keys() - expected.keys():  # delivered, and the disk was too full to note it
                    again.purge(places[ref])
                disk, journal = again.files, again
                live = {ref: places[ref] for ref in expected}
    disk.room = None
    for ref in list(live):
        gone(journal, live.pop(ref))
    journal.end_sync(journal.begin_sync())
    journal.close()
    assert disk.segments() == []
    assert disk.open == {}


def test_segments_are_short_on_a_small_disk():
    disk = Disk()
    disk.room = 8 << 20
    journal, _ = opened(disk, size=64 << 20)
    for _ in range(60):
        add(journal, 100_000)
    assert len(disk.segments()) >= 8


def test_a_full_disk_makes_room_of_what_is_delivered():
    disk = Disk()
    disk.room = 20_000
    journal, _ = opened(disk, size=4096)
    stays = add(journal, 100)
    places = []

    def fill() -> None:
        while True:
            places.append(add(journal, 1000))

    with pytest.raises(OSError, match="No space"):
        fill()
    for place in places:
        journal.purge(place)
    taken = [add(journal, 1000) for _ in range(10)]
    assert stays.ref in journal.places
    assert all(place.ref in journal.places for place in taken)


def test_a_chunk_in_many_segments_is_read_with_one_descriptor():
    disk = Disk()
    journal, _ = opened(disk)
    place = add(journal, *[3000] * 50)
    assert len(disk.segments()) > 20
    journal.end_sync(journal.begin_sync())
    known = len(disk.open)
    most = 0

    def look(operation: str, _path: str) -> None:
        nonlocal most
        most = max(most, len(disk.open) - known)

    disk.before = look
    assert b"".join(journal.read(place)) == bytes([place.ref]) * 150_000
    assert most == 1
    assert len(disk.open) == known
