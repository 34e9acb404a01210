"""Parser `multiline` (docs.fluentd.org, Parser Plugins, multiline): one pattern, made of several, over several lines.

The lines of a text are found by whoever reads them, in_tail above all, with an `Assembler`; the parser tells it by
`has_firstline` and `firstline` where a text begins. Parsers of others whose names contain "multiline" may have these
two as well.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from headrace.conf.params import boolean, string
from headrace.conf.ruby_regexp import compile_ruby, group_names
from headrace.plugins.parsing import RecordParser

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Sequence

    from headrace.conf.params import Problems
    from headrace.plugins.parsing import Parsed

FORMATS: Final = 20
TEXT_LIMIT: Final = 8 << 20
"""Bytes of a text that goes on and on; then it counts as whole."""
MATCH_LIMIT: Final = 64 << 10
"""The same where each line may be the last one, and the whole text is matched again with each."""


class MultilineParser(RecordParser):
    """Reads texts of several lines by the patterns format1 to format20, which are joined."""

    by_pattern = True
    format_firstline = string(default=None, doc="Pattern of the first line of a text, /.../")
    unmatched_lines = boolean(default=False, doc="A text that does not match becomes a record with unmatched_line")
    time_key = RecordParser.time_key.with_default("time")
    locals().update(
        {
            f"format{n}": string(default=None, doc=f"Part {n} of the pattern, /.../; the parts are joined")
            for n in range(1, FORMATS + 1)
        }
    )

    def validate(self, problems: Problems) -> None:
        """Join and compile the patterns."""
        super().validate(problems)
        before = problems.broken
        self._firstline = self._part("format_firstline", problems)
        given: list[str | None] = [getattr(self, f"format{n}") for n in range(1, FORMATS + 1)]
        for number, (one, following) in enumerate(pairwise(given), 2):
            if one is None and following is not None:
                place = self.place_of(f"format{number}")
                problems.error(f"Jump of format index found. format{number - 1} is missing.", place)
                return
        for number in range(1, FORMATS + 1):
            self._part(f"format{number}", problems)
        if problems.broken > before:
            return
        joined = "".join(text[1:-1] for text in given if text is not None)
        try:
            self._pattern = compile_ruby(joined, "m")
        except ValueError as error:
            problems.error(f"the joined patterns cannot be read: {error}", self.place)
            return
        self._names = group_names(self._pattern)
        if not self._names:
            problems.error(f"Invalid regexp '{joined}': No named captures", self.place_of("format1"))

    def _part(self, name: str, problems: Problems) -> re.Pattern[str] | None:
        text = getattr(self, name)
        if text is None:
            return None
        if len(text) < 2 or text[0] != "/" or text[-1] != "/":
            problems.error(f"format should be Regexp, need //, in {name}: '{text}'", self.place_of(name))
            return None
        try:
            return compile_ruby(text[1:-1], "" if name == "format_firstline" else "m")
        except ValueError as error:
            problems.error(f"Invalid regexp in {name}: {error}", self.place_of(name))
            return None

    def has_firstline(self) -> bool:
        """Whether a text is known by its first line."""
        return self._firstline is not None

    def firstline(self, line: bytes) -> bool:
        """Whether a line is the first of a text."""
        assert self._firstline is not None
        return self._firstline.search(line.decode("utf-8", "surrogateescape")) is not None

    def read(self, text: bytes) -> Parsed:
        """Parse a text; what follows a match is matched again."""
        rest = text.decode("utf-8", "surrogateescape")
        found: Parsed = []
        while True:
            match = self._pattern.search(rest)
            if match is None:
                found.append(self._unmatched(rest))
                return found
            found.append(self.event({name: match[at] for name, at in self._names if match[at] is not None}))
            end = match.end()
            if rest.startswith("\n", end):
                end += 1
            if end in {0, len(rest)}:
                return found
            rest = rest[end:]

    def _unmatched(self, text: str) -> tuple[int | None, dict[Any, Any] | None]:
        return (self._now(), {"unmatched_line": text}) if self.unmatched_lines else (None, None)


class Assembler:
    """Lines -> texts, without I/O. `strays`: lines before the first line of a text, `cut`: texts that were too long.

    firstline: tells whether a line begins a text; None: a text ends where `complete` says so of all since the last.
    keep_strays: a line before the first one of a text is a text of its own, else it is left out. stray: told of it.
    """

    def __init__(
        self,
        firstline: Callable[[bytes], bool] | None,
        complete: Callable[[bytes], bool],
        *,
        keep_strays: bool = False,
        stray: Callable[[bytes], object] | None = None,
    ) -> None:
        self._firstline = firstline
        self._complete = complete
        self._keep_strays = keep_strays
        self._stray = stray
        self._limit = MATCH_LIMIT if firstline is None else TEXT_LIMIT
        self._held: list[bytes] = []
        self._size = 0
        self.strays = 0
        self.cut = 0

    @property
    def by_firstline(self) -> bool:
        """Whether texts are known by their first lines."""
        return self._firstline is not None

    @property
    def holds(self) -> bool:
        """Whether there is a text of which more may come."""
        return bool(self._held)

    def take(self) -> bytes:
        """The text that is held; it is whole as it is."""
        text = b"\n".join(self._held).removesuffix(b"\r")
        self._held = []
        self._size = 0
        return text

    def feed(self, lines: Sequence[bytes]) -> tuple[list[bytes], int]:
        """Return the texts that are whole, and the index of the line with which the held one begins.

        The index is -1 when it began before these lines, and their number when none is held.
        """
        texts: list[bytes] = []
        start = -1 if self._held else len(lines)
        firstline = self._firstline
        for index, line in enumerate(lines):
            if firstline is not None and firstline(line):
                if self._held:
                    texts.append(self.take())
                start = index
            elif not self._held:
                if firstline is not None:
                    self.strays += 1
                    if self._stray is not None:
                        self._stray(line)
                    if self._keep_strays:
                        texts.append(line.removesuffix(b"\r"))
                    continue
                start = index
            self._held.append(line)
            self._size += len(line) + 1
            if firstline is None and self._complete(b"\n".join(self._held).removesuffix(b"\r")):
                texts.append(self.take())
            elif self._size > self._limit:
                self.cut += 1
                texts.append(self.take())
        return texts, start if self._held else len(lines)
