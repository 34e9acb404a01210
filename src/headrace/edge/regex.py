"""Regular expressions of a configuration, on bytes.

nginx's are PCRE; Python's `re` understands the same syntax but for a few spellings. Those with a twin are
translated, those without are refused by name, so that no pattern ever means something else than in nginx.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from headrace.edge.values import to_bytes
from headrace.errors import ConfError, Place

_TOKEN: Final = re.compile(
    rb"\\(?:Q.*?\\E|[pP](?:\{\^?\w+\}|\w)|.)|\[:\^?\w+:\]|\[\^?\]?|\]|\(\?<(?=[A-Za-z_])|\(\?'\w+'|.", re.DOTALL
)
_POSIX: Final = {
    b"[:alpha:]": rb"a-zA-Z",
    b"[:digit:]": rb"0-9",
    b"[:alnum:]": rb"a-zA-Z0-9",
    b"[:upper:]": rb"A-Z",
    b"[:lower:]": rb"a-z",
    b"[:space:]": rb"\s",
    b"[:xdigit:]": rb"0-9A-Fa-f",
    b"[:word:]": rb"\w",
    b"[:punct:]": rb"!-/:-@\[-`{-~",
    b"[:blank:]": rb" \t",
}
_ESCAPES: Final = {
    b"\\z": rb"\Z",
    b"\\Z": rb"(?=\n?\Z)",
    b"\\h": rb"[ \t\xa0]",
    b"\\R": rb"(?:\r\n|[\n\v\f\r\x85])",
    b"\\e": rb"\x1b",
}
_UNKNOWN: Final = frozenset(b"\\" + bytes((char,)) for char in b"KGXCHVNPpkgco")
_CATEGORIES: Final = ("C", "L", "M", "N", "P", "S", "Z")


def compile_regex(pattern: str, place: Place | None, *, caseless: bool = False) -> re.Pattern[bytes]:
    """Compile a PCRE pattern for bytes; raises ConfError when it is broken or needs what `re` has not."""
    if pattern.startswith("(?-i)"):
        pattern, caseless = pattern[5:], False
    try:
        return re.compile(_translate(to_bytes(pattern)), re.IGNORECASE if caseless else 0)
    except (re.error, ValueError) as error:
        raise ConfError(f'pcre2_compile() failed: {error} in "{pattern}"', place) from None


def _translate(pattern: bytes) -> bytes:
    out: list[bytes] = []
    in_class = False
    for match in _TOKEN.finditer(pattern):
        token = match.group()
        if token.startswith(b"\\"):
            out.append(_escape(token, in_class=in_class))
        elif in_class:
            if token in _POSIX:
                token = _POSIX[token]
            elif token.startswith(b"[:") and token.endswith(b":]"):
                raise ValueError(f"the class {token.decode('latin-1')} is not supported")
            elif token == b"]":
                in_class = False
            elif token.startswith(b"["):
                in_class = not token.endswith(b"]")
                token = b"\\" + token
            out.append(token)
        elif token.startswith(b"["):
            in_class = True
            out.append(token[:-1] + b"\\]" if token.endswith(b"]") else token)
        elif token == b"(?<":
            out.append(b"(?P<")
        elif token.startswith(b"(?'"):
            out.append(b"(?P<" + token[3:-1] + b">")
        else:
            out.append(b"\\]" if token == b"]" else token)
    return b"".join(out)


def _escape(token: bytes, *, in_class: bool) -> bytes:
    if token.startswith(b"\\Q"):
        return re.escape(token[2:-2] if token.endswith(b"\\E") else token[2:])
    if token[1:2] in (b"p", b"P") and len(token) > 2:
        return _property(token, in_class=in_class)
    if token in _UNKNOWN:
        raise ValueError(f"{token.decode('latin-1')} is not supported")
    if in_class and token == b"\\h":
        return rb" \t\xa0"
    if token in _ESCAPES:
        return _ESCAPES[token]
    char = token[1:]
    return token if char.isalnum() else re.escape(char)


def _property(token: bytes, *, in_class: bool) -> bytes:
    """The bytes with a Unicode property: without UTF mode a byte is the character with its number."""
    name = token[2:].strip(b"{}").decode()
    negated = (token[1:2] == b"P") != name.startswith("^")
    name = name.removeprefix("^")
    if name[0] not in _CATEGORIES:
        raise ValueError(f"{token.decode()} is not supported")
    chosen = [i for i in range(256) if unicodedata.category(chr(i)).startswith(name) is not negated]
    inner = b"".join(b"\\x%02x" % i for i in chosen)
    return inner if in_class else b"[" + inner + b"]" if inner else b"(?!)"
