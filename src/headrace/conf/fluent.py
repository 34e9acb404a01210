"""fluent.conf v1 -> tree (docs.fluentd.org, Config File Syntax).

    parser = _Parser(text of one file)  --directives-->  tree.Directive
      |-- fluent_literal.Literals: the values      |-- fluent_ruby: "#{...}"
      `-- fluent_include: which files an @include names; each is parsed by a _Parser of its own

A parameter is Directive(name, (text,), values=(literal,)); one without a value has no args and the
literal "". A section is Directive(name, (argument,) or (), block=(...)).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.conf.files import Files, Lines
from headrace.conf.fluent_include import included_paths
from headrace.conf.fluent_literal import Literals
from headrace.conf.fluent_ruby import Surroundings
from headrace.conf.problems import Problems
from headrace.conf.tree import Directive
from headrace.conf.values import USE_DEFAULT, to_json
from headrace.errors import ConfError, Place

if TYPE_CHECKING:
    from collections.abc import Mapping

_SPACING = re.compile(r"(?:[ \t\r\n]+|#[^\r\n]*)*")
_BLANKS = re.compile(r"[ \t]*")
_LINE_REST = re.compile(r"[ \t]*(?:#[^\r\n]*)?(?:\r\n|[\r\n]|\Z)")
_NAME = re.compile(r"[a-zA-Z0-9_]+")
_KEY = re.compile(r"[^ \t\r\n]+")
_OLD_INCLUDE = re.compile(r"include[ \t]")
_COMMENT_VALUE = re.compile(r"#[ \t]|#\Z")
_RESERVED = {"@type", "@id", "@label", "@log_level"}
_STRICT_SECTIONS = {"match", "source", "filter", "system"}
_SECTION_DEPTH_MAX = 64
_INCLUDE_DEPTH_MAX = 16


def load(
    path: str,
    *,
    env: Mapping[str, str] | None = None,
    hostname: str | None = None,
    worker_id: str = "",
    files: Files | None = None,
    problems: Problems | None = None,
    yaml: bool | None = None,
) -> tuple[Directive, ...]:
    """Parse the file `path` and what it includes. yaml: whether it is YAML; None: as its name ends.

    env, hostname: for embedded Ruby (this process's when None). files: remembers what was read.
    problems: gets the warnings. Raises ConfError with file and line.
    """
    files = files or Files()
    path = os.path.abspath(path)
    if yaml or (yaml is None and path.endswith((".yaml", ".yml"))):
        from headrace.conf import fluent_yaml  # noqa: PLC0415 - a v1 file does not pay for it

        around = _around(env, hostname, worker_id)
        return fluent_yaml.parse(files.load(path), path, around, files, problems or Problems())
    return _parse(files.load(path), path, _around(env, hostname, worker_id), files, problems)


def parse(
    text: str,
    file: str,
    *,
    env: Mapping[str, str] | None = None,
    hostname: str | None = None,
    worker_id: str = "",
    files: Files | None = None,
    problems: Problems | None = None,
) -> tuple[Directive, ...]:
    """Parse `text` as the contents of `file`; relative includes start at the folder of `file`."""
    return _parse(text, file, _around(env, hostname, worker_id), files or Files(), problems)


def _around(env: Mapping[str, str] | None, hostname: str | None, worker_id: str) -> Surroundings:
    return Surroundings(
        os.environ if env is None else env, os.uname().nodename if hostname is None else hostname, worker_id
    )


def _parse(
    text: str, file: str, around: Surroundings, files: Files, problems: Problems | None
) -> tuple[Directive, ...]:
    run = _Run(around, files, problems or Problems())
    return tuple(_Parser(text, file, run, (file,)).directives(None, root=True))


@dataclass
class _Run:
    """What all files of one parse share."""

    around: Surroundings
    files: Files
    problems: Problems


class _Parser:
    def __init__(self, text: str, file: str, run: _Run, chain: tuple[str, ...], depth: int = 0) -> None:
        self.text = text
        self.file = file
        if (nul := text.find("\0")) >= 0:
            raise ConfError(
                "a NUL character", Lines(text, file).place(nul), hint="is the file UTF-16? It must be UTF-8"
            )
        self.run = run
        self.chain = chain  # the files that led here, this one last
        self.depth = depth  # of sections, counted over includes
        self.at = 1 if text.startswith("\ufeff") else 0
        self.lines = Lines(text, file)
        self.literals = Literals(text, self.lines, run.around)

    def directives(self, section: str | None, *, root: bool, begin: int = 0) -> list[Directive]:
        """Parse to the end of the file (section None) or to the end tag of `section`."""
        found: list[Directive] = []
        while True:
            self._spacing()
            if self.at >= len(self.text):
                if section is None:
                    return found
                raise self._fail(f"expected end tag '</{section}>' but got end of file", begin)
            if self.text.startswith("</", self.at):
                self._end_tag(section, begin)
                return found
            if self.text[self.at] == "<":
                found.append(self._section())
            elif root and (match := _OLD_INCLUDE.match(self.text, self.at)):
                self.run.problems.warn("'include' is deprecated", self._place(), hint="write @include")
                begin_at, self.at = self.at, match.end()
                found.extend(self._include(begin_at))
            else:
                found.extend(self._parameter(section, root=root))

    def _section(self) -> Directive:
        begin = self.at
        self.at += 1
        match = _NAME.match(self.text, self.at)
        if not match:
            raise self._fail("expected a section name after '<'", begin, "quote a parameter that begins with <")
        if self.depth >= _SECTION_DEPTH_MAX:
            raise self._fail(f"sections are nested deeper than {_SECTION_DEPTH_MAX}", begin)
        self.at = match.end()
        self._spacing()
        argument = self._argument()
        self._spacing()
        if not self.text.startswith(">", self.at):
            raise self._fail("expected '>'", self.at, f"the tag <{match[0]} is not closed")
        self.at += 1
        self._line_end("expected end of line after tag")
        self.depth += 1
        block = tuple(self.directives(match[0], root=False, begin=begin))
        self.depth -= 1
        args = (argument,) if argument else ()
        return Directive(match[0], args, self.file, self.lines.line(begin), block=block, values=args)

    def _argument(self) -> str:
        if self.text[self.at : self.at + 1] in {"'", '"'}:
            begin = self.at
            value, self.at = self.literals.string(self.at)
            if not isinstance(value, str):
                raise self._fail("use_nil and use_default cannot be the argument of a section", begin)
            return value
        end = self.literals.line_end(self.at)
        close = self.text.find(">", self.at, end)
        begin, self.at = self.at, end if close < 0 else close
        argument = self.text[begin : self.at]
        # Without `>` on this line the tag goes on below, and a comment may stand between.
        return (re.split(r"[ \t]#", argument, maxsplit=1)[0] if close < 0 else argument).strip(" \t")

    def _end_tag(self, section: str | None, begin: int) -> None:
        at = self.at
        match = _NAME.match(self.text, at + 2)
        name = match[0] if match else ""
        self.at = match.end() if match else at + 2
        self._spacing()
        if not self.text.startswith(">", self.at):
            raise self._fail("expected '>' in the end tag", at)
        if name != section:
            wanted = f"expected </{section}> for line {self.lines.line(begin)}" if section else "no section is open"
            raise self._fail(f"unmatched end tag </{name}>", at, wanted)
        self.at += 1
        self._line_end("expected end of line after end tag")

    def _parameter(self, section: str | None, *, root: bool) -> list[Directive]:
        begin = self.at
        key = self._key()
        self.at = _BLANKS.match(self.text, self.at).end()  # type: ignore[union-attr]  # matches always
        if self.at >= len(self.text) or self.text[self.at] in "\r\n":
            return [Directive(key, (), self.file, self.lines.line(begin), values=("",))]
        if key == "@include":
            return self._include(begin)
        if key.startswith("@") and key not in _RESERVED:
            if root or section in _STRICT_SECTIONS:
                raise self._fail(f"'@' is the system reserved prefix: {key}", begin, "use another name")
            self.run.problems.warn(f"'@' is the system reserved prefix: {key}", self.lines.place(begin))
        value_at = self.at
        value, self.at = self.literals.value(self.at)
        self._line_end("expected end of line")
        if isinstance(value, str) and self.text[value_at] == "#" and _COMMENT_VALUE.match(value):
            self.run.problems.warn(
                f'"{value}" is the value of {key}, not a comment', self.lines.place(begin), hint="as in Fluentd"
            )
        text = value if isinstance(value, str) else "" if value in (None, USE_DEFAULT) else to_json(value)
        return [Directive(key, (text,), self.file, self.lines.line(begin), values=(value,))]

    def _key(self) -> str:
        begin = self.at
        if self.text[begin] not in "'\"":
            match = _KEY.match(self.text, begin)
            assert match is not None
            self.at = match.end()
            return match[0]
        key, self.at = self.literals.string(begin)
        if not isinstance(key, str) or not key:
            raise self._fail("a parameter needs a name", begin)
        if self.at < len(self.text) and self.text[self.at] not in " \t\r\n":
            raise self._fail("expected a blank after the name of a parameter", self.at)
        return key

    def _include(self, begin: int) -> list[Directive]:
        place = self.lines.place(begin)
        uri, self.at = self.literals.string(self.at)
        self._line_end("expected end of line")
        if not isinstance(uri, str) or not uri:
            raise ConfError("@include needs a path", place)
        paths = included_paths(uri, os.path.dirname(self.file), place)
        if not paths:
            # A pattern that finds nothing is an empty folder; a name is a mistake, which Fluentd does not notice.
            report = self.run.problems.warn if set(uri) & set("*?[{") else self.run.problems.unknown
            report(f"@include {uri}: no such file", place, hint=f"relative to {os.path.dirname(self.file)}")
        found: list[Directive] = []
        for path in paths:
            if path in self.chain or len(self.chain) > _INCLUDE_DEPTH_MAX:
                raise ConfError(f"@include goes round in a circle or too deep: {path}", place)
            text = self.run.files.load(path, place)
            inner = _Parser(text, path, self.run, (*self.chain, path), self.depth)
            found.extend(inner.directives(None, root=True))
        return found

    def _spacing(self) -> None:
        self.at = _SPACING.match(self.text, self.at).end()  # type: ignore[union-attr]  # matches always

    def _line_end(self, message: str) -> None:
        match = _LINE_REST.match(self.text, self.at)
        if not match:
            raise self._fail(message, self.at)
        self.at = match.end()

    def _place(self) -> Place:
        return self.lines.place(self.at)

    def _fail(self, message: str, at: int, hint: str = "") -> ConfError:
        return ConfError(message, self.lines.place(at), hint=hint)
