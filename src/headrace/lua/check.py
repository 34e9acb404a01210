"""What is wrong with the Lua of a configuration, seen without running it.

Two things: code that does not compile, and documented names that are not built. Both are warnings, as in nginx, whose
test accepts them: a block that does not compile answers 500, and code may test whether a name is there.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from headrace.conf.lua_block import code_only
from headrace.errors import Place
from headrace.lua.directives import inline
from headrace.lua.names import DOCUMENTED, reference, unbuilt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace.conf.params import Problems
    from headrace.conf.tree import Directive

_DOTTED: Final = re.compile(r"(?<![\w:])(?<![^.]\.)(?:ngx|ndk)(?:\s*\.\s*[A-Za-z_]\w*)+")
_ASSIGNED: Final = re.compile(r"\s*=(?!=)")
_DEFINED: Final = re.compile(r"\bfunction\s+$")
_BY_LUA: Final = re.compile(r"\w+_by_lua(_block|_file|)")
_LINE: Final = re.compile(r":(\d+): ")


def check(tree: Iterable[Directive], *, prefix: str, conf_dir: str, problems: Problems) -> None:
    """Look at every `*_by_lua*` of a tree. prefix, conf_dir: those of the gateway."""
    files: set[str] = set()
    for directive in _walk(tree):
        kind = _BY_LUA.fullmatch(directive.name)
        if kind is None or (directive.text is None and not directive.args):
            continue
        if kind[1] == "_file":
            at = 1 if directive.name.startswith("set_by") and len(directive.args) > 1 else 0
            path = os.path.join(prefix, directive.args[at])
            if "$" not in path and path not in files:
                files.add(path)
                _check_file(path, problems)
        else:
            _check_inline(directive, conf_dir, problems)


def _walk(tree: Iterable[Directive]) -> Iterator[Directive]:
    for directive in tree:
        yield directive
        yield from _walk(directive.block or ())


def _check_inline(directive: Directive, conf_dir: str, problems: Problems) -> None:
    if directive.text is None and directive.name == "set_by_lua":
        if len(directive.args) < 2:
            return
        code, name = inline(directive, conf_dir, argument=1)
    else:
        code, name = inline(directive, conf_dir)
    failure = compile_failure(code, name)
    if failure is not None:
        problems.warn(f"failed to load inlined Lua code: {failure}", directive.place)
    first = directive.text_line or directive.line
    _warn_unbuilt(code.decode("utf-8", "surrogateescape"), directive.file, first, problems)


def _check_file(path: str, problems: Problems) -> None:
    try:
        with open(path, "rb") as file:
            code = file.read()
    except (OSError, ValueError):
        return  # what is answered then is the directive's matter
    if code.startswith(b"\x1bLJ"):
        return  # compiled by luajit -b
    if code.startswith(b"#"):
        code = b"--" + code  # a line for the shell
    failure = compile_failure(code, b"@" + os.fsencode(path))
    if failure is not None:
        line = _LINE.search(failure)
        place = Place(path, int(line[1]) if line else 1)
        problems.warn(f'failed to load external Lua file "{path}": {failure}', place)
    _warn_unbuilt(code.decode("utf-8", "surrogateescape"), path, 1, problems)


def compile_failure(code: bytes, name: bytes) -> str | None:
    """Why Lua does not take the code, or None."""
    compiler = reference().lua.eval(b"function(code, name) return (select(2, loadstring(code, name))) end")
    failure: bytes | None = compiler(code, name)
    return None if failure is None else failure.decode("utf-8", "replace")


def _warn_unbuilt(text: str, file: str, first: int, problems: Problems) -> None:
    for name, line in names_unbuilt(text):
        problems.warn(f"{name} is not built yet: nil at run time", Place(file, first + line))


def names_unbuilt(text: str) -> list[tuple[str, int]]:
    """The documented names without a value that Lua source reads, each with the lines before its first use.

    What the source itself assigns is there when it says so.
    """
    code = code_only(text)
    found: dict[str, int] = {}
    assigned: set[str] = set()
    for match in _DOTTED.finditer(code):
        parts = [part.strip() for part in match[0].split(".")]
        if _ASSIGNED.match(code, match.end()) or _DEFINED.search(code, 0, match.start()):
            assigned.add(".".join(parts))
            continue
        while len(parts) > 1 and ".".join(parts) not in DOCUMENTED:
            parts.pop()
        name = ".".join(parts)
        if name in unbuilt():
            found.setdefault(name, code.count("\n", 0, match.start()))
    return [(name, line) for name, line in found.items() if not _is_assigned(name, assigned)]


def _is_assigned(name: str, assigned: set[str]) -> bool:
    return any(name == one or name.startswith(f"{one}.") for one in assigned)
