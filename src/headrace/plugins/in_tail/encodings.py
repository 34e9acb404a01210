"""`encoding` and `from_encoding` (docs.fluentd.org, Input Plugins, tail): Ruby's names, and what they do to a line.

Without `from_encoding` a line keeps its bytes, as Ruby's force_encoding does: strings of records hold any bytes here.
With both it is decoded from one and encoded in the other; what the other lacks, and what is no text in the first,
becomes "?" or U+FFFD.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_RUBY: Final[Mapping[str, str]] = {
    "ascii-8bit": "",
    "binary": "",
    "locale": "utf-8",
    "external": "utf-8",
    "filesystem": "utf-8",
    "windows-31j": "cp932",
    "cswindows31j": "cp932",
    "sjis": "shift_jis",
    "pck": "cp932",
    "eucjp": "euc_jp",
    "eucjp-ms": "euc_jp",
    "cp51932": "euc_jp",
    "euckr": "euc_kr",
    "euctw": "",
    "euccn": "gb2312",
    "cp65001": "utf-8",
    "utf8-mac": "utf-8",
    "utf-8-mac": "utf-8",
    "utf-8-hfs": "utf-8",
    "ucs-2be": "utf-16-be",
    "ucs-4be": "utf-32-be",
    "ucs-4le": "utf-32-le",
}
"""Names that Python spells in another way; "" has no text of its own."""
_WIDE: Final = ("utf-16", "utf-32")


def codec_of(name: str) -> str:
    """Python's name of an encoding, "" for bytes. Raises ValueError for one that is unknown or cannot hold lines."""
    known = _RUBY.get(name.lower())
    if known == "":
        return ""
    try:
        found = codecs.lookup(known or name).name
        end = "\n".encode(found)
    except (LookupError, ValueError, TypeError, UnicodeError):
        raise ValueError(f"unknown encoding name - {name}") from None
    if found in _WIDE:
        raise ValueError(f"{name} does not say its order of bytes: write {name}LE or {name}BE")
    if end != b"\n" and not found.startswith(_WIDE):
        raise ValueError(f"lines cannot be told in {name}")
    return found


def line_end(codec: str) -> bytes:
    """The line end in an encoding that `codec_of` returned."""
    return "\n".encode(codec) if codec else b"\n"


def converter(source: str, target: str) -> Callable[[bytes], bytes] | None:
    """A function that brings a line from one encoding to the other; None when there is nothing to do."""
    if source == target:
        return None
    # Bytes without an encoding are ASCII, of which the others are no text.
    from_codec, to_codec = source or "ascii", target or "ascii"
    odd = b"\xef\xbf\xbd".decode() if to_codec.startswith(("utf", "gb18030")) else "?"

    def convert(line: bytes) -> bytes:
        try:
            return line.decode(from_codec).encode(to_codec)
        except UnicodeError:
            text = line.decode(from_codec, "replace")
            return text.replace("\ufffd", odd).encode(to_codec, "replace")

    return convert
