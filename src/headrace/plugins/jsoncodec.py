"""Records and JSON, for every plugin that reads or writes it: one owner of the rules.

Reading loses nothing. orjson is the fast path; it refuses NaN and bytes that are not UTF-8, and turns an
integer past 64 bits into a float, so such texts go to the json module, which keeps them (bad bytes by
surrogateescape).

Writing is fast or by policy, and never fails twice for the same record:
- exact: integers of any size, integer keys (as strings, which is all JSON has), an EventTime (as seconds with
  nine decimals), a msgpack Timestamp (likewise);
- what JSON cannot say is replaced: bytes that are not UTF-8 by U+FFFD, NaN and infinity by null, an unknown
  extension type by its bytes in base64. With the policy "reject" these raise UnencodableError instead, so that the
  record alone goes to the @ERROR label;
- nested deeper than orjson allows (254 levels) or of a type that no record holds: UnencodableError with both.
"""

from __future__ import annotations

import base64
import json
import math
import re
from typing import TYPE_CHECKING, Any, Final

import msgpack
import orjson

from headrace.pipeline.event import NS, EventTime

if TYPE_CHECKING:
    from collections.abc import Sequence

REPLACE: Final = "replace"
REJECT: Final = "reject"
POLICIES: Final = (REPLACE, REJECT)

_DIGITS_AS_ZERO: Final = bytes(0x30 if 0x30 <= code <= 0x39 else code for code in range(256))
_NINETEEN: Final = b"0" * 19
_TWENTY: Final = b"0" * 20
_MINUS_NINETEEN: Final = b"-" + _NINETEEN
_SAMPLED: Final = 256
"""Bytes from which on a look at a part of them is cheaper than one at all."""
_LONE_SURROGATE: Final = re.compile("[\ud800-\udc7f\udd00-\udfff]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_SURROGATE_ESCAPE: Final = re.compile(rb"\\u[dD][89a-fA-F]")


class UnencodableError(ValueError):
    """A record that cannot become JSON, or may not by the policy."""


def may_be_huge(text: bytes) -> bool:
    """Whether a text may hold an integer past 64 bits. One in a string counts too.

    Nineteen digits are the least that may not fit. So many in a row hold four neighbours of every fourth byte, which
    the digits of a date do not: few texts are looked at as a whole. (`find` costs half of what `in` does.)
    """
    if len(text) > _SAMPLED and text[3::4].translate(_DIGITS_AS_ZERO).find(b"0000") < 0:
        return False
    plain = text.translate(_DIGITS_AS_ZERO)
    return plain.find(_NINETEEN) >= 0 and (plain.find(_TWENTY) >= 0 or plain.find(_MINUS_NINETEEN) >= 0)


def decode(text: bytes) -> Any:
    """One JSON value. Raises ValueError for anything else."""
    # Short texts, which most are, are looked at here: a call would cost as much.
    if (len(text) > _SAMPLED or text.translate(_DIGITS_AS_ZERO).find(_NINETEEN) >= 0) and may_be_huge(text):
        return _decode_slowly(text)
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return _decode_slowly(text)


def decode_many(texts: Sequence[bytes]) -> list[Any] | None:
    """The values of many texts, or None when one of them needs `decode`: it is no JSON, or has a huge integer."""
    if may_be_huge(b" ".join(texts)):
        return None
    loads = orjson.loads
    try:
        return [loads(text) for text in texts]
    except orjson.JSONDecodeError:
        return None


def _decode_slowly(text: bytes) -> Any:
    try:
        value = json.loads(text.decode("utf-8", "surrogateescape"))
    except ValueError as error:
        raise ValueError(f"invalid JSON: {error}") from error
    except RecursionError as error:
        raise ValueError("invalid JSON: nested too deeply") from error
    return _without_lone_surrogates(value) if _SURROGATE_ESCAPE.search(text) else value


def _without_lone_surrogates(value: Any) -> Any:
    """Half of a surrogate pair, which JSON can spell and no encoding hold, becomes U+FFFD."""
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_without_lone_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_lone_surrogates(key): _without_lone_surrogates(item) for key, item in value.items()}
    return value


def encode(value: object, policy: str = REPLACE) -> bytes:
    """Compact JSON, without a newline. Raises UnencodableError; see the module's text."""
    try:
        text = orjson.dumps(value, option=orjson.OPT_PASSTHROUGH_SUBCLASS)
    except TypeError:
        return _encode_slowly(value, policy)
    # orjson writes NaN as null; only a text with a null can hold one.
    if policy == REJECT and b"null" in text:
        return _encode_slowly(value, policy)
    return text


def _encode_slowly(value: object, policy: str) -> bytes:
    try:
        return orjson.dumps(_plain(value, policy))
    except UnencodableError:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise UnencodableError(f"the record cannot become JSON: {error}") from error


def _plain(value: Any, policy: str) -> Any:
    """The value in types of which orjson can write every one."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(str(value), policy)
    if isinstance(value, dict):
        return {_key(key, policy): _plain(item, policy) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and not isinstance(value, msgpack.ExtType):
        return [_plain(item, policy) for item in value]
    return _scalar(value, policy)


def _scalar(value: Any, policy: str) -> Any:
    if isinstance(value, EventTime):
        return _decimal(int(value))
    if isinstance(value, int):
        return orjson.Fragment(int.__repr__(value).encode())
    if isinstance(value, float):
        return _number(float(value), policy)
    if isinstance(value, (bytes, bytearray)):
        return _text(bytes(value).decode("utf-8", "surrogateescape"), policy)
    if isinstance(value, msgpack.Timestamp):
        return _decimal(value.to_unix_nano())
    if isinstance(value, msgpack.ExtType) and policy == REPLACE:
        return base64.b64encode(value.data).decode()
    raise UnencodableError(f"the record holds a {type(value).__name__}")


def _number(value: float, policy: str) -> float | None:
    if math.isfinite(value):
        return value
    if policy == REJECT:
        raise UnencodableError(f"the record holds {value}")
    return None


def _decimal(time: int) -> orjson.Fragment:
    sign = "-" if time < 0 else ""
    seconds, rest = divmod(abs(time), NS)
    return orjson.Fragment(f"{sign}{seconds}.{rest:09d}".encode())


def _text(value: str, policy: str) -> str:
    if _SURROGATE.search(value) is None:
        return value
    if policy == REJECT:
        raise UnencodableError("the record holds bytes that are not UTF-8")
    # One U+FFFD for each wrong sequence, as decoders do it: so the escaped bytes become bytes again first.
    raw = _LONE_SURROGATE.sub("\ufffd", value).encode("utf-8", "surrogateescape")
    return raw.decode("utf-8", "replace")


def _key(key: Any, policy: str) -> str:
    if type(key) is str:
        return _text(key, policy)
    if isinstance(key, (bytes, bytearray)):
        return _text(bytes(key).decode("utf-8", "surrogateescape"), policy)
    if key is None:
        return "null"
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int):
        return int.__repr__(key)
    if isinstance(key, float):
        return repr(float(key))
    return _text(str(key), policy)
