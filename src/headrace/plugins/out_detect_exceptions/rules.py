"""How stack traces look: for each language a machine whose states change by the lines.

A rule is (states, pattern, next state). START is the state outside of a trace; a line that no rule of a state takes
leads back to it. The order of the rules of a state counts.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from headrace.conf.ruby_regexp import compile_ruby

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping, Sequence

START: Final = "start"

Rule = tuple[str, str, str]

_JAVA: Final[Sequence[Rule]] = (
    ("start cause", r"(?:Exception|Error|Throwable|V8 errors stack trace)[:\r\n]", "after"),
    ("after", r"^[\t ]*nested exception is:[\t ]*", "cause"),
    ("after", r"^[\r\n]*$", "after"),
    ("after frames", r"^[\t ]+(?:eval )?at ", "frames"),
    ("after frames", r"^[\t ]+--- End of inner exception stack trace ---$", "frames"),
    ("after frames", r"^--- End of stack trace from previous location where exception was thrown ---$", "frames"),
    ("after frames", r"^[\t ]*(?:Caused by|Suppressed):", "after"),
    ("after frames", r"^[\t ]*... \d+ (?:more|common frames omitted)", "frames"),
)
_PYTHON: Final[Sequence[Rule]] = (
    ("start", r"^Traceback \(most recent call last\):$", "lines"),
    ("lines", r"^[\t ]+File ", "code"),
    ("code", r"[^\t ]", "lines"),
    ("lines", r"^(?:[^\s.():]+\.)*[^\s.():]+:", "start"),
)
_PHP: Final[Sequence[Rule]] = (
    ("start", r"(?:PHP (?:Notice|Parse error|Fatal error|Warning):)|(?:exception '[^']+' with message ')", "begin"),
    ("begin", r"^Stack trace:", "frames"),
    ("frames", r"^#\d", "frames"),
    ("frames", r"^\s+thrown in ", "start"),
)
_GO: Final[Sequence[Rule]] = (
    ("start", r"\bpanic: ", "panic"),
    ("start", r"http: panic serving", "goroutine"),
    ("panic signal function", r"^$", "goroutine"),
    ("panic", r"^\[signal ", "signal"),
    ("goroutine", r"^goroutine \d+ \[[^\]]+\]:$", "function"),
    ("function", r"^(?:[^\s.:]+\.)*[^\s.():]+\(|^created by ", "place"),
    ("place", r"^\s", "function"),
)
_RUBY: Final[Sequence[Rule]] = (
    ("start", r"Error \(.*\):$", "rails"),
    ("rails", r"^  $", "frames"),
    ("rails frames", r"^[\t ]+.*?\.rb:\d+:in `", "frames"),
)
_FRAME: Final = r"^#\d+\s+.+?\(.+?\)$"
_DART: Final[Sequence[Rule]] = (
    ("start", r"^Unhandled exception:$", "kind"),
    *(
        ("kind", f"^{words}", "frames")
        for words in (
            "Instance of", "Exception", "Bad state", "IntegerDivisionByZeroException", "Invalid argument", "RangeError",
            "Assertion failed", "Cannot instantiate", "Reading static variable", "UnimplementedError",
            "Unsupported operation", "Concurrent modification", "Out of Memory", "Stack Overflow",
        )
    ),
    ("kind", r"^'.+?':.+?$", "type1"),
    ("type1", _FRAME, "frames"),
    ("type1", r"^.+?$", "type2"),
    ("type2", r"^.*?\^.*?$", "type3"),
    ("type3", r"^$", "type4"),
    ("type4", r"^$", "frames"),
    ("kind", r"^FormatException", "format1"),
    ("format1", _FRAME, "frames"),
    ("format1", r"^.", "format2"),
    ("format2", r"^.*?\^", "format3"),
    ("format3", r"^$", "frames"),
    ("kind", r"^NoSuchMethodError:", "method1"),
    ("method1", r"^Receiver:", "method2"),
    ("method2", r"^Tried calling:", "method3"),
    ("method3", r"^Found:", "frames"),
    ("method3", _FRAME, "frames"),
    ("frames", _FRAME, "frames"),
    ("frames", r"^<asynchronous suspension>$", "frames"),
)  # fmt: skip
_MACHINES: Final[Mapping[str, Sequence[Rule]]] = {
    "java": _JAVA, "python": _PYTHON, "php": _PHP, "go": _GO, "ruby": _RUBY, "dart": _DART,
}  # fmt: skip
LANGUAGES: Final[Mapping[str, Sequence[str]]] = {
    **{name: (name,) for name in _MACHINES},
    "javascript": ("java",),
    "js": ("java",),
    "csharp": ("java",),
    "py": ("python",),
    "rb": ("ruby",),
    "all": tuple(_MACHINES),
}
"""A word of `languages` -> the machines it means."""

Table = dict[str, list[tuple["re.Pattern[str]", str]]]


@cache
def table(languages: tuple[str, ...]) -> Table:
    """State -> (pattern, next state) in order, for some words of LANGUAGES. Raises KeyError."""
    found: Table = {START: []}
    machines = dict.fromkeys(name for word in languages or ("all",) for name in LANGUAGES[word.lower()])
    for machine in machines:
        for states, pattern, following in _MACHINES[machine]:
            for state in states.split():
                key = START if state == START else f"{machine}.{state}"
                target = START if following == START else f"{machine}.{following}"
                found.setdefault(key, []).append((compile_ruby(pattern), target))
    return found
