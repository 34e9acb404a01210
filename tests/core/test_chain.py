"""The chain without I/O: any split gives the same bytes, marks in order, one gathered write."""

import os
import socket
import tempfile
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.chain import GATHER_BYTES, IOV_MAX, Chain


class CountingSocket:
    """Takes as many bytes per call as the script says (None: all, 0: EAGAIN); counts the calls."""

    def __init__(self, script=(), fd=-1):
        self.script = list(script)
        self.taken = bytearray()
        self.calls = Counter()
        self.flags = []
        self.largest = 0
        self.fd = fd

    def _take(self, data):
        limit = self.script.pop(0) if self.script else None
        if isinstance(limit, Exception):
            raise limit
        if limit == 0:
            raise BlockingIOError
        part = data if limit is None else data[:limit]
        self.taken += part
        return len(part)

    def send(self, data, flags=0):
        self.calls["send"] += 1
        return self._take(bytes(data))

    def sendmsg(self, buffers, ancdata=(), flags=0):
        self.calls["sendmsg"] += 1
        self.flags.append(flags)
        self.largest = max(self.largest, len(buffers))
        return self._take(b"".join(buffers))

    def fileno(self):
        return self.fd


pieces = st.one_of(st.binary(max_size=20), st.tuples(st.integers(0, 50), st.integers(0, 60)), st.none())
CONTENT = bytes(range(256)) * 2


@given(st.lists(pieces, max_size=30), st.lists(st.integers(0, 30), max_size=60), st.booleans())
def test_any_split_gives_the_same_bytes_and_marks_fire_in_order(script, takes, direct):
    sock = CountingSocket(takes)
    chain = Chain()
    expected = b""
    marks: list[tuple[int, int]] = []
    wanted: list[int] = []
    with tempfile.TemporaryFile() as file:
        file.write(CONTENT)
        file.flush()
        for piece in script:
            if piece is None:
                here = len(expected)
                chain.mark(lambda error, at=here: marks.append((at, len(sock.taken))))
                wanted.append(here)
                chain.send_to(sock)
            elif isinstance(piece, bytes):
                if direct:
                    chain.write_to(sock, piece)
                else:
                    chain.append(piece)
                expected += piece
            else:
                offset, length = piece
                chain.append_file(file.fileno(), offset, length)
                expected += CONTENT[offset : offset + length]
            assert chain.total == len(expected)
            assert chain.sent == len(sock.taken)
            assert chain.length == len(expected) - len(sock.taken)
            assert (chain.segments == 0) == (chain.length == 0)
            assert chain.segments <= chain.peak_segments
        for _ in range(len(takes) + 1):
            chain.send_to(sock)
    assert bytes(sock.taken) == expected
    assert chain.length == 0
    assert chain.segments == 0
    assert [at for at, _ in marks] == wanted  # each once, in order
    assert all(taken >= at for at, taken in marks)


@given(st.lists(st.binary(min_size=1, max_size=20), max_size=20), st.lists(st.integers(1, 25), min_size=1, max_size=60))
def test_peek_and_consume_give_the_same_bytes(script, takes):
    chain = Chain()
    for piece in script:
        chain.append(piece)
    got = b""
    while chain.length:
        take = takes[len(got) % len(takes)]
        part = chain.peek(take)
        assert 0 < len(part) <= take
        got += part
        chain.consume(len(part))
    assert got == b"".join(script)


def test_a_lone_segment_is_one_send_and_several_are_one_sendmsg():
    sock, chain = CountingSocket(), Chain()
    chain.append(b"one")
    assert chain.send_to(sock)
    assert sock.calls == {"send": 1}
    for piece in (b"a", b"b", b"c"):
        chain.append(piece)
    assert chain.send_to(sock)
    assert sock.calls == {"send": 1, "sendmsg": 1}
    assert chain.send_to(sock)  # empty: no call
    assert sock.calls.total() == 2
    assert chain.peak_segments == 3


def test_write_to_an_empty_chain_is_one_send_and_counts_one_segment():
    sock, chain = CountingSocket(), Chain()
    for _ in range(1000):
        assert chain.write_to(sock, b"hello")
    assert sock.calls == {"send": 1000}
    assert (chain.total, chain.length, chain.peak_segments) == (5000, 0, 1)


def test_a_partial_write_waits_instead_of_asking_again():
    sock, chain = CountingSocket([3]), Chain()
    chain.append(b"abcdef")
    assert not chain.send_to(sock)
    assert sock.calls == {"send": 1}
    assert chain.length == 3
    assert chain.send_to(sock)
    assert bytes(sock.taken) == b"abcdef"


def test_a_gathered_write_stays_within_the_limits_of_the_kernel():
    sock, chain = CountingSocket(), Chain()
    for _ in range(3 * IOV_MAX):
        chain.append(b"x")
    assert chain.send_to(sock)
    assert sock.calls == {"sendmsg": 3}
    assert sock.largest == IOV_MAX
    assert chain.peak_segments == 3 * IOV_MAX


def test_what_lies_in_the_chain_does_not_make_a_flush_longer():
    small, large = (CountingSocket([0] * 5) for _ in range(2))
    chain = Chain()
    for _ in range(10_000):
        chain.append(b"x" * 1000)
    for _ in range(5):
        chain.send_to(large)
    assert large.calls == {"sendmsg": 5}
    assert large.largest <= GATHER_BYTES // 1000 + 1
    other = Chain()
    other.append(b"mine")
    other.send_to(small)
    assert small.calls == {"send": 1}


def test_a_huge_chain_leaves_the_neighbours_their_turn():
    sock, chain = CountingSocket(), Chain()
    for _ in range(64):
        chain.append(b"x" * 262_144)
    assert not chain.send_to(sock)
    assert 0 < chain.length < chain.total


@pytest.mark.parametrize("error", [None, BrokenPipeError(32, "Broken pipe")])
def test_marks_hear_of_the_end_whatever_it_is(error):
    sock, chain = CountingSocket([0]), Chain()
    heard = []
    chain.mark(lambda e: heard.append(("empty", e)))
    assert heard == [("empty", None)]
    chain.append(b"x")
    chain.mark(lambda e: heard.append(("x", e)))
    chain.send_to(sock)
    if error is None:
        chain.send_to(sock)
    else:
        chain.fail(error)
        chain.fail(OSError("only the first counts"))
        chain.append(b"dropped")
        assert (chain.length, chain.total) == (0, 1)
        chain.mark(lambda e: heard.append(("late", e)))
        assert heard.pop() == ("late", error)
    assert heard == [("empty", None), ("x", error)]


def test_a_mark_may_write_again():
    sock, chain = CountingSocket(), Chain()
    chain.append(b"one ")
    chain.mark(lambda _e: chain.write_to(sock, b"two"))
    assert chain.send_to(sock)
    assert bytes(sock.taken) == b"one two"


def test_a_mark_that_raises_does_not_silence_the_others():
    sock, chain = CountingSocket(), Chain()
    heard = []
    chain.append(b"x")
    chain.mark(lambda _e: 1 / 0)
    chain.mark(heard.append)
    with pytest.raises(ZeroDivisionError):
        chain.send_to(sock)
    assert heard == [None]


def test_an_error_keeps_the_bytes_for_the_one_who_handles_it():
    chain = Chain()
    with pytest.raises(BrokenPipeError):
        chain.write_to(CountingSocket([BrokenPipeError(32, "x")]), b"abc")
    assert chain.length == 3


def test_a_file_goes_by_sendfile_with_its_head_held_back_for_it():
    near, far = socket.socketpair()
    with near, far, tempfile.TemporaryFile() as file:
        file.write(b"0123456789")
        file.flush()
        chain = Chain()
        chain.append(b"head ")
        chain.append(b"more ")
        chain.append_file(file.fileno(), 2, 5)
        chain.append(b" tail")
        assert chain.send_to(near)
        assert far.recv(100) == b"head more 23456 tail"
    sock = CountingSocket()
    with tempfile.TemporaryFile() as file:
        file.write(b"body")
        file.flush()
        chain = Chain()
        chain.append(b"a")
        chain.append(b"b")
        chain.append_file(file.fileno(), 0, 4)
        assert chain.send_to(sock)
    assert sock.flags == [socket.MSG_MORE]
    assert bytes(sock.taken) == b"abbody"  # a socket that sendfile cannot serve is served by reading


def test_a_file_that_became_shorter_is_an_error_not_a_hang():
    near, far = socket.socketpair()
    with near, far, tempfile.TemporaryFile() as file:
        os.ftruncate(file.fileno(), 10)
        chain = Chain()
        chain.append_file(file.fileno(), 0, 20)
        assert not chain.send_to(near)
        with pytest.raises(OSError, match="truncated"):
            chain.send_to(near)
