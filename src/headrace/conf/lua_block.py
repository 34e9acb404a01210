"""Where a `*_by_lua_block { ... }` ends: Lua's own strings, long brackets and comments hide braces.

Lua 5.1 reference manual 2.1; lua-nginx-module, content_by_lua_block. The text is scanned whole, so
the result cannot depend on how it was read from disk.
"""

from __future__ import annotations

import re

_NEXT = re.compile(r"""[{}"']|--\[=*\[|--[^\n]*|\[=*\[""")
_STRINGS = {
    '"': re.compile(r'"(?:\\.|\\\r\n|[^"\\\n])*"', re.DOTALL),
    "'": re.compile(r"'(?:\\.|\\\r\n|[^'\\\n])*'", re.DOTALL),
}


class LuaBlockError(Exception):
    """A block without its end. at: the offset where the trouble begins; the text is nginx's message."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


def code_only(text: str) -> str:
    """Return Lua source with strings and comments blanked out, of the same length and with the same lines.

    What has no end is blanked to the end, a quoted string to the end of its line.
    """
    pieces: list[str] = []
    kept = at = 0
    while match := _NEXT.search(text, at):
        found = match[0]
        at = match.end()
        if found in "{}":
            continue
        if found in _STRINGS:
            string = _STRINGS[found].match(text, match.start())
            at = string.end() if string else _end(text, "\n", at)
        elif found.endswith("["):
            at = _end(text, f"]{'=' * found.count('=')}]", at)
        pieces += (text[kept : match.start()], re.sub(r"[^\n]", " ", text[match.start() : at]))
        kept = at
    return "".join(pieces) + text[kept:]


def _end(text: str, closing: str, at: int) -> int:
    found = text.find(closing, at)
    return len(text) if found < 0 else found + len(closing)


def end_of_block(text: str, at: int) -> int:
    """Return the offset of the `}` that closes the block whose text begins at `at`.

    A quote without its end on the line is skipped here: Lua itself reports it, with its line.
    Raises LuaBlockError.
    """
    depth = 0
    while match := _NEXT.search(text, at):
        found = match[0]
        at = match.end()
        if found == "{":
            depth += 1
        elif found == "}":
            if depth == 0:
                return match.start()
            depth -= 1
        elif found in _STRINGS:
            if string := _STRINGS[found].match(text, match.start()):
                at = string.end()
        elif found.endswith("[") and (found[0] == "[" or found.startswith("--[")):
            closing = f"]{'=' * found.count('=')}]"
            end = text.find(closing, at)
            if end < 0:
                raise LuaBlockError(f'Lua code block missing the closing long bracket "{closing}"', match.start())
            at = end + len(closing)
    raise LuaBlockError('unexpected end of file, expecting "}"', len(text))
