"""The table of small states in shared memory."""

from __future__ import annotations

import os

from headrace.core.slots import LEAST, Slots


def put(slots: Slots, key: bytes, at: int, number: int) -> None:
    claimed = slots.claim(key)
    assert claimed is not None
    slots.set(claimed[0], at, number)


def test_values_stay_with_their_keys():
    slots = Slots("values stay", LEAST)
    with slots:
        for i in range(200):
            put(slots, b"key %d" % i, i, -i)
        found = [slots.find(b"key %d" % i) for i in range(200)]
        assert [slots.get(place) for place in found if place is not None] == [(i, -i) for i in range(200)]
        assert slots.find(b"nobody") is None


def test_a_full_bucket_gives_up_what_was_used_longest_ago():
    slots = Slots("one bucket", LEAST)
    slots._buckets = 1
    with slots:
        for i in range(16):
            put(slots, b"%d" % i, 100 + i, 1)
        put(slots, b"3", 500, 1)
        put(slots, b"0", 500, 1)
        put(slots, b"new", 600, 1)
        assert slots.find(b"1") is None
        assert slots.find(b"0") is not None


def test_what_is_in_use_is_not_given_up():
    slots = Slots("in use", LEAST)
    slots._buckets = 1
    with slots:
        for i in range(16):
            put(slots, b"%d" % i, 100, 1)
        assert slots.claim(b"new", idle=True) is None
        put(slots, b"7", 900, 0)
        assert slots.claim(b"new", idle=True) is not None
        assert slots.find(b"7") is None


def test_processes_see_the_same_and_a_dead_holder_blocks_nobody():
    slots = Slots("processes", LEAST)
    child = os.fork()
    if not child:
        slots.__enter__()
        put(slots, b"from the child", 1, 42)
        os._exit(0)
    os.waitpid(child, 0)
    with slots:
        place = slots.find(b"from the child")
        assert place is not None
        assert slots.get(place) == (1, 42)
    with slots:
        pass


def test_a_table_of_the_same_name_and_size_is_the_same():
    first = Slots("again", LEAST)
    with first:
        put(first, b"a", 1, 2)
    with Slots("again", LEAST) as _:
        place = first.find(b"a")
        assert place is not None
