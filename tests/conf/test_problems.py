"""Findings: all of them, in order, each once."""

from __future__ import annotations

from headrace.conf.params import Problems
from headrace.errors import Place


def test_findings_are_sorted_by_place_and_each_is_there_once():
    problems = Problems()
    problems.error("late", Place("b", 2))
    problems.error("nowhere")
    problems.warn("second of the line", Place("a", 10))
    problems.error("third of the line", Place("a", 10))
    problems.error("early", Place("a", 9))
    problems.error("late", Place("b", 2))
    problems.warn("second of the line", Place("a", 10))
    assert [(level, error.message) for level, error in problems.findings()] == [
        ("error", "early"),
        ("error", "third of the line"),
        ("warning", "second of the line"),
        ("error", "late"),
        ("error", "nowhere"),
    ]


def test_what_nobody_reads_breaks_nothing():
    problems = Problems()
    problems.unknown("x")
    assert (len(problems.errors), problems.broken) == (1, 0)
    problems.error("y")
    assert problems.broken == 1
    lenient = Problems(unknown_is_error=False)
    lenient.unknown("x")
    lenient.error("y")
    assert (len(lenient.errors), lenient.broken) == (1, 1)
