"""The queue of chunks against the plain list that it stands for."""

from __future__ import annotations

import math
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.queue import Queue

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["new", "back", "take", "tried", "untried", "drop", "oldest", "hurry", "pass"]),
        st.integers(0, 9),
    ),
    max_size=80,
)


def chunk(number, created):
    return SimpleNamespace(id=bytes([number]), attempts=0, due=0.0, window=-1, created=created, turn=0)


@given(STEPS)
def test_it_hands_out_what_a_list_would(steps):
    queue, plain, out = Queue(), [], []
    now, number = 0.0, 0

    def is_due(one):
        return one.due <= now

    for step, value in steps:
        if step == "new" and number < 200:
            number += 1
            plain.append(chunk(number, created=value))
            queue.add(plain[-1])
        elif step == "back" and out:
            one = out.pop(value % len(out))
            one.attempts += 1
            one.due = now + value % 4
            one.window = value
            plain.append(one)
            queue.add(one)
        elif step in {"take", "tried", "untried"}:
            fits = {
                "take": is_due,
                "tried": lambda one, value=value: one.attempts and is_due(one) and one.window < value,
                "untried": lambda one: not one.attempts,
            }[step]
            expected = next(filter(fits, plain), None)
            found = {"take": queue.first, "tried": lambda now, value=value: queue.tried(now, value)}.get(
                step, lambda _now: queue.untried()
            )(now)
            assert found is expected
            if found is not None:
                queue.remove(found)
                plain.remove(found)
                out.append(found)
        elif step == "drop" and plain:
            one = plain.pop(value % len(plain))
            queue.remove(one)
        elif step == "oldest":
            found = queue.oldest()
            assert (found is None) == (not plain)
            assert found is None or found.created == min(one.created for one in plain)
        elif step == "hurry":
            queue.hurry(now)
        elif step == "pass":
            now += value / 3
        assert len(queue) == len(plain)
        assert list(queue.values()) == plain
        assert all((one.id in queue) for one in plain)
        due = queue.next_due()
        soonest = min((one.due for one in plain), default=math.inf)
        assert due == soonest or max(due, soonest) <= now
