r"""nginx.conf -> tree (nginx.org, "Beginner's Guide", Configuration File's Structure; nginx(8) for messages).

    _Parser(text of one file) --words--> tree.Directive; `include` is resolved where it stands, so that
    the tree has none; a `*_by_lua_block` keeps its text verbatim (lua_block.py finds its end).

A word is a quoted string or runs to a blank, `;` or `{`; a backslash protects the next character, and
only those before `"`, `'`, `\`, `t`, `r` and `n` are replaced. What a directive means is not known here: any
first word may stand anywhere (`map`, `types`), and check.py judges the tree.
"""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass

from headrace.conf.files import Files, Lines
from headrace.conf.lua_block import LuaBlockError, end_of_block
from headrace.conf.tree import Directive
from headrace.errors import ConfError, Place

COMMAND_LINE = "command line"
"""The file name of directives that come from the option -g."""

_SPACE = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_WORD = re.compile(r"(?:\\.|\$\{?|[^ \t\r\n;{\\$])+", re.DOTALL)
_QUOTED = {
    '"': re.compile(r'"((?:\\.|[^"\\])*)"', re.DOTALL),
    "'": re.compile(r"'((?:\\.|[^'\\])*)'", re.DOTALL),
}
_ESCAPE = re.compile(r"\\([\"'\\trn])")
_ESCAPED = {"t": "\t", "r": "\r", "n": "\n"}
_GLOB = re.compile(r"[*?\[]")
_DEPTH_MAX = 128
_INCLUDE_DEPTH_MAX = 64


def load(path: str, *, prefix: str = "", files: Files | None = None) -> tuple[Directive, ...]:
    """Parse the file `path` (relative to `prefix`) and what it includes.

    Relative includes start at the folder of the main file, as in nginx. files: remembers what was
    read, for -T. Raises ConfError with nginx's message, file and line.
    """
    files = files or Files()
    path = os.path.join(prefix or os.getcwd(), path)
    return parse(files.load(path), path, files=files)


def parse(text: str, file: str, *, folder: str | None = None, files: Files | None = None) -> tuple[Directive, ...]:
    """Parse `text` as the contents of `file`; relative includes start at `folder` (that of `file` when None).

    With COMMAND_LINE as the file, blocks are refused, as nginx refuses them in -g.
    """
    run = _Run(os.path.dirname(file) if folder is None else folder, files or Files())
    return tuple(_Parser(text, file, run, (file,)).directives())


@dataclass
class _Run:
    """What all files of one parse share."""

    folder: str
    files: Files


@dataclass
class _Open:
    """A block that is being read."""

    words: list[str]
    line: int
    children: list[Directive]


class _Parser:
    def __init__(self, text: str, file: str, run: _Run, chain: tuple[str, ...], depth: int = 0) -> None:
        self.text = text
        self.file = file
        self.run = run
        self.chain = chain  # the files that led here, this one last
        self.depth = depth  # of blocks, counted over includes
        self.at = 0
        self.lines = Lines(text, file)

    def directives(self) -> list[Directive]:
        """Parse the whole file."""
        top: list[Directive] = []
        blocks: list[_Open] = []
        while True:
            current = blocks[-1].children if blocks else top
            words, line, end = self._words()
            if end == ";":
                if words[0] == "include":
                    current.extend(self._include(words, line, len(blocks)))
                else:
                    current.append(Directive(words[0], tuple(words[1:]), self.file, line))
            elif end == "{":
                self._opening(words, line, len(blocks))
                if words[0].endswith("_by_lua_block"):
                    current.append(self._lua(words, line))
                else:
                    blocks.append(_Open(words, line, []))
            elif end == "}":
                if not blocks:
                    raise self._fail('unexpected "}"', self.at - 1)
                done = blocks.pop()
                above = blocks[-1].children if blocks else top
                above.append(
                    Directive(done.words[0], tuple(done.words[1:]), self.file, done.line, block=tuple(done.children))
                )
            else:
                if blocks:
                    opened = f'block "{blocks[-1].words[0]}" opened at line {blocks[-1].line}'
                    raise self._fail('unexpected end of file, expecting "}"', self.at, hint=opened)
                return top

    def _words(self) -> tuple[list[str], int, str]:
        """Read one directive; return its words, its line and what ended it: `;`, `{`, `}` or ""."""
        text = self.text
        words: list[str] = []
        begin = self.at
        while True:
            self.at = _SPACE.match(text, self.at).end()  # type: ignore[union-attr]  # matches always
            if not words:
                begin = self.at
            char = text[self.at : self.at + 1]
            if char in {"", ";", "{", "}"}:
                self._ending(char, words)
                self.at += len(char)
                return words, self.lines.line(begin), char
            words.append(self._quoted(char) if char in _QUOTED else self._bare())

    def _ending(self, char: str, words: list[str]) -> None:
        if char == "":
            if words:
                raise self._end_of_file(begin=None)
        elif bool(words) == (char == "}"):
            raise self._fail(f'unexpected "{char}"', self.at)

    def _bare(self) -> str:
        match = _WORD.match(self.text, self.at)
        if not match or match.end() == len(self.text):
            raise self._end_of_file(begin=None)
        self.at = match.end()
        return _unescape(match[0])

    def _quoted(self, quote: str) -> str:
        match = _QUOTED[quote].match(self.text, self.at)
        if not match:
            raise self._end_of_file(begin=self.at)
        self.at = match.end()
        follow = self.text[self.at : self.at + 1]
        if follow and follow not in " \t\r\n;{)":
            raise self._fail(f'unexpected "{follow}"', self.at)
        return _unescape(match[1])

    def _opening(self, words: list[str], line: int, level: int) -> None:
        if words[0] == "include":
            raise self._fail('directive "include" is not terminated by ";"', self.at - 1)
        if self.file == COMMAND_LINE:
            raise ConfError(f"block directives are not supported in -g option in {COMMAND_LINE}")
        if self.depth + level >= _DEPTH_MAX:
            raise ConfError(f"blocks are nested deeper than {_DEPTH_MAX}", Place(self.file, line))

    def _lua(self, words: list[str], line: int) -> Directive:
        begin = self.at
        try:
            end = end_of_block(self.text, begin)
        except LuaBlockError as error:
            raise self._fail(str(error), error.at, hint=f'block "{words[0]}" opened at line {line}') from None
        self.at = end + 1
        text = self.text[begin:end]
        return Directive(words[0], tuple(words[1:]), self.file, line, text=text, text_line=self.lines.line(begin))

    def _include(self, words: list[str], line: int, level: int) -> list[Directive]:
        place = Place(self.file, line)
        if len(words) != 2:
            raise ConfError('invalid number of arguments in "include" directive', place)
        path = os.path.join(self.run.folder, words[1])
        found: list[Directive] = []
        for name in self._matching(path) if _GLOB.search(path) else [path]:
            if name in self.chain or len(self.chain) > _INCLUDE_DEPTH_MAX:
                raise ConfError(f'"{name}" includes itself', place)
            text = self.run.files.load(name, place)
            found.extend(_Parser(text, name, self.run, (*self.chain, name), self.depth + level).directives())
        return found

    @staticmethod
    def _matching(pattern: str) -> list[str]:
        try:
            return sorted(glob.glob(pattern.replace("[^", "[!")), key=os.fsencode)
        except (re.error, ValueError):  # a pattern that matches nothing is no error
            return []

    def _end_of_file(self, begin: int | None) -> ConfError:
        if self.file == COMMAND_LINE:
            return ConfError(f'unexpected end of parameter, expecting ";" in {COMMAND_LINE}')
        hint = "" if begin is None else f"the quote at line {self.lines.line(begin)} is not closed"
        return self._fail('unexpected end of file, expecting ";" or "}"', len(self.text), hint=hint)

    def _fail(self, message: str, at: int, hint: str = "") -> ConfError:
        if self.file == COMMAND_LINE:
            return ConfError(f"{message} in {COMMAND_LINE}")
        return ConfError(message, self.lines.place(at), hint=hint)


def _unescape(word: str) -> str:
    if "\\" not in word:
        return word
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), word)
