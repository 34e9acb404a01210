"""Header blocks <-> lists of fields (RFC 7541). No I/O.

The tables of codes are those of the package hpack; the walk over a block is ours: it copies nothing but names and
values, keeps what Huffman's code stands for (clients send the same texts again and again), and takes one octet of
padding too many, as nginx does and as clients send it. What is encoded here enters no dynamic table, so that equal
lists have equal blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hpack.exceptions import HPACKError
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

if TYPE_CHECKING:
    from collections.abc import Iterable

Field = tuple[bytes, bytes]

TABLE_SIZE: Final = 4096
"""Bytes of a decoder's dynamic table: what holds until a SETTINGS frame says otherwise."""
_ENTRY: Final = 32  # RFC 7541 4.1
_KEPT: Final = 1024
_CODED: Final = 1024  # longer texts are sent as they are: coding them would hold the loop
_KEPT_TEXT: Final = 256


class BadBlock(Exception):
    """A block that cannot be decoded: the state of the connection's table is lost. too_large: it is a bomb."""

    def __init__(self, message: str, *, too_large: bool = False) -> None:
        super().__init__(message)
        self.too_large = too_large


class BlockDecoder:
    """The blocks of one connection. limit: bytes of a decoded list, each field counted with RFC 7541's 32 more."""

    __slots__ = ("_limit", "_table")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._table = HeaderTable()

    def decode(self, block: bytes) -> list[Field]:
        """The fields of a block. Raises BadBlock."""
        try:
            return self._decode(block)
        except IndexError as error:
            raise BadBlock("truncated header block") from error
        except HPACKError as error:
            raise BadBlock(str(error)) from error

    def _decode(self, block: bytes) -> list[Field]:
        fields: list[Field] = []
        table, at, size, end = self._table, 0, 0, len(block)
        while at < end:
            first = block[at]
            if first & 0x80:
                index, at = _read_integer(block, at, 7)
                name, value = table.get_by_index(index)
            elif first & 0xE0 == 0x20:
                if fields:
                    raise BadBlock("table size update not at the start of the block")
                index, at = _read_integer(block, at, 5)
                if index > TABLE_SIZE:
                    raise BadBlock("table size update exceeds the limit")
                table.maxsize = index
                continue
            else:
                indexed = first & 0x40
                index, at = _read_integer(block, at, 6 if indexed else 4)
                if index:
                    name = table.get_by_index(index)[0]
                else:
                    name, at = _read_string(block, at)
                value, at = _read_string(block, at)
                if indexed:
                    table.add(name, value)
            fields.append((name, value))
            size += len(name) + len(value) + _ENTRY
            if size > self._limit:
                raise BadBlock("too large header list", too_large=True)
        return fields


def _read_integer(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """RFC 7541 5.1: the number, and where it ends."""
    most = (1 << bits) - 1
    value = block[at] & most
    at += 1
    if value < most:
        return value, at
    shift = 0
    while True:
        octet = block[at]
        at += 1
        value += (octet & 127) << shift
        if octet < 128:
            return value, at
        shift += 7
        if shift > 28:
            raise BadBlock("too large integer")


def _read_string(block: bytes, at: int) -> tuple[bytes, int]:
    """RFC 7541 5.2: the text, and where it ends."""
    coded = block[at] & 0x80
    length, at = _read_integer(block, at, 7)
    end = at + length
    text = block[at:end]
    if len(text) != length:
        raise BadBlock("truncated header block")
    return (_plain(text) if coded else text), end


_texts: dict[bytes, bytes] = {}


def _plain(coded: bytes) -> bytes:
    found = _texts.get(coded)
    if found is None:
        try:
            found = decode_huffman(coded)
        except HPACKError:
            if coded[-1:] != b"\xff":
                raise
            found = decode_huffman(coded[:-1])
        if len(coded) <= _KEPT_TEXT:
            if len(_texts) >= _KEPT:
                _texts.clear()
            _texts[coded] = found
    return found


def _static_names() -> tuple[dict[bytes, int], dict[Field, int]]:
    names: dict[bytes, int] = {}
    whole: dict[Field, int] = {}
    for index, (name, value) in enumerate(HeaderTable.STATIC_TABLE, 1):
        names.setdefault(bytes(name), index)
        whole.setdefault((bytes(name), bytes(value)), index)
    return names, whole


_NAMES, _WHOLE = _static_names()
_encoder = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH)
_strings: dict[bytes, bytes] = {}


def encode_fields(fields: Iterable[Field]) -> bytes:
    """A header block; names in lower case. Nothing enters the dynamic table (RFC 7541 6.2.2)."""
    out: list[bytes] = []
    for field in fields:
        index = _WHOLE.get(field)
        if index is not None:
            out.append(_integer(index, 7, 0x80))
            continue
        name, value = field
        index = _NAMES.get(name)
        out.append(_integer(index, 4) if index is not None else b"\0" + _string(name))
        out.append(_string(value))
    return b"".join(out)


def _string(text: bytes) -> bytes:
    """RFC 7541 5.2: in Huffman's code where that is shorter."""
    found = _strings.get(text)
    if found is None:
        short = _encoder.encode(text) if len(text) <= _CODED else text
        found = _integer(len(text), 7) + text if len(short) >= len(text) else _integer(len(short), 7, 0x80) + short
        if len(text) <= _CODED:
            if len(_strings) >= _KEPT:
                _strings.clear()
            _strings[text] = found
    return found


def _integer(value: int, bits: int, first: int = 0) -> bytes:
    """RFC 7541 5.1."""
    most = (1 << bits) - 1
    if value < most:
        return bytes((first | value,))
    out = bytearray((first | most,))
    value -= most
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
