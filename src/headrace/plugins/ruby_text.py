"""Values as Ruby prints them: `to_s` and `inspect`, which Fluentd's text formats are made of."""

from __future__ import annotations

import codecs
import math
import re
from functools import cache
from typing import Any, Final

_ESCAPES: Final = {
    '"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\x07": "\\a", "\b": "\\b", "\x0b": "\\v",
    "\f": "\\f", "\x1b": "\\e",
}  # fmt: skip
_SPECIAL: Final = re.compile('["\\\\\x00-\x1f\x7f-\x84\x86-\x9f\u2028\u2029\ufffe\uffff\ud800-\udfff]|#(?=[{$@])')


def to_s(value: Any) -> str:
    """A value as `to_s` prints it: nothing for None, a container as `inspect` prints it.

    Bytes that are not UTF-8 stay as they are, by surrogateescape.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return inspect(value)


def inspect(value: Any) -> str:
    """A value as `inspect` prints it (Ruby before 3.4: `{"a"=>1}`)."""
    if isinstance(value, str):
        return '"' + _SPECIAL.sub(_escape, value) + '"'
    if isinstance(value, bytes):
        return inspect(value.decode("utf-8", "surrogateescape"))
    if isinstance(value, dict):
        return "{" + ", ".join([f"{inspect(key)}=>{inspect(item)}" for key, item in value.items()]) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join([inspect(item) for item in value]) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    return _float(value) if isinstance(value, float) else str(value)


def _escape(match: re.Match[str]) -> str:
    char = match.group()
    if char == "#":
        return "\\#"
    if char in _ESCAPES:
        return _ESCAPES[char]
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02X}"
    return f"\\u{code:04X}"


def _float(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    text = repr(value)
    if value == 0 or 1e-4 <= abs(value) < 1e15:
        return text
    if "e" in text:
        mantissa, _, exponent = text.partition("e")
        return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{exponent[0]}{exponent[1:].rjust(2, '0')}"
    # Ruby changes to an exponent one digit earlier than Python.
    sign = "-" if value < 0 else ""
    whole, _, fraction = text.lstrip("-").partition(".")
    digits = (whole + fraction).rstrip("0")
    return f"{sign}{digits[0]}.{digits[1:] or '0'}e+{len(whole) - 1}"


def scrub(raw: bytes, replacement: str = "\ufffd") -> bytes:
    """Bytes as Ruby's `scrub` leaves them: one replacement for each sequence that is not UTF-8."""
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        # Python and Ruby agree on how much of a wrong sequence is one (Unicode 15, 3.9).
        return raw.decode("utf-8", _handler(replacement)).encode()
    return raw


@cache
def _handler(replacement: str) -> str:
    name = f"headrace.scrub.{replacement.encode().hex()}"
    codecs.register_error(name, lambda error: (replacement, error.end))  # type: ignore[attr-defined]
    return name
