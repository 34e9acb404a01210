"""Literals and the short memory of names."""

import socket

import pytest

from headrace.core.names import Names, literal

V4 = (socket.AF_INET, ("127.0.0.1", 80))
V6 = (socket.AF_INET6, ("::1", 80, 0, 0))


@pytest.mark.parametrize(
    ("host", "found"), [("127.0.0.1", [V4]), ("::1", [V6]), ("localhost", None), ("127.1", None), ("a\0b", None)]
)
def test_literals(host, found):
    assert literal(host, 80) == found


def test_an_answer_is_kept_for_a_moment_and_for_its_port_only():
    names = Names(seconds=1.0)
    assert names.find("a", 80, 5.0) is None
    names.keep("a", 80, [V6, V4], 5.0)
    assert names.find("a", 80, 5.9) == [V6, V4]
    assert names.find("a", 81, 5.9) is None
    assert names.find("a", 80, 6.0) is None


def test_it_is_bounded():
    names = Names(limit=4)
    for number in range(100):
        names.keep(f"n{number}", 80, [V4], 0.0)
    assert sum(names.find(f"n{number}", 80, 0.0) is not None for number in range(100)) <= 4
    assert names.find("n99", 80, 0.0) == [V4]


def test_the_address_that_worked_comes_first_until_the_answer_is_old():
    names = Names(seconds=1.0)
    answer = [V6, V4]
    names.keep("a", 80, answer, 0.0)
    names.prefer("a", 80, V4)
    assert names.find("a", 80, 0.5) == [V4, V6]
    assert answer == [V6, V4]  # whoever goes through it is not disturbed
    assert names.find("a", 80, 1.0) is None
    names.prefer("b", 80, V4)
    assert names.find("b", 80, 0.0) is None
