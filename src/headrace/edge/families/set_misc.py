"""The set-misc module: variables by functions of others, in the rewrite phase.

https://github.com/openresty/set-misc-nginx-module. The functions are in `FUNCTIONS`, for ndk.set_var of Lua too.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import random
import re
import secrets
import string
import time
from typing import TYPE_CHECKING, Final

from headrace.edge.families.common import BaseFamily, spec, table
from headrace.edge.log import ERR
from headrace.edge.values import compile_value, evaluate, to_bytes
from headrace.errors import ConfError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.conf.tree import Directive
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope

IN: Final = ("http", "server", "location", "if")
SECURE_MOST: Final = 64
"""Characters that set_secure_random_* makes at most."""
_SQL: Final = {0: b"\\0", 8: b"\\b", 9: b"\\t", 10: b"\\n", 13: b"\\r", 26: b"\\Z", 34: b'\\"', 39: b"\\'", 92: b"\\\\"}
_JSON: Final = {8: b"\\b", 9: b"\\t", 10: b"\\n", 12: b"\\f", 13: b"\\r", 34: b'\\"', 92: b"\\\\"}
_UNRESERVED: Final = frozenset(to_bytes(string.ascii_letters + string.digits + "-._~!'()*"))
_ESCAPE: Final = re.compile(rb"%([0-9A-Fa-f]{2})|%[0-9A-Fa-f].?|%", re.DOTALL)
_URL: Final = bytes.maketrans(b"+/", b"-_")
_PLAIN: Final = bytes.maketrans(b"-_", b"+/")
_STANDARD32: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_DEFAULT32: Final = b"0123456789abcdefghijklmnopqrstuv"


def quote_sql(value: bytes) -> bytes:
    """A MySQL string literal."""
    return b"'" + b"".join(_SQL.get(byte) or bytes((byte,)) for byte in value) + b"'"


def quote_pgsql(value: bytes) -> bytes:
    """A PostgreSQL escape string; bytes past ASCII as octal numbers."""
    return b"E" + b"".join(b"\\\\%03o" % byte if byte > 127 else bytes((byte,)) for byte in quote_sql(value))


def quote_json(value: bytes) -> bytes:
    """A JSON string; null for nothing."""
    if not value:
        return b"null"
    return b'"' + b"".join(_JSON.get(b) or (b"\\u%04x" % b if b < 32 else bytes((b,))) for b in value) + b'"'


def escape_uri(value: bytes) -> bytes:
    """Percent-encode what may not stand in a component of a URI."""
    return b"".join(bytes((byte,)) if byte in _UNRESERVED else b"%%%02X" % byte for byte in value)


def unescape_uri(value: bytes) -> bytes:
    """Undo percent-encoding, and a plus sign is a blank. Of a broken escape nginx drops what it took for one."""
    return _ESCAPE.sub(lambda match: bytes((int(match[1], 16),)) if match[1] else b"", value.replace(b"+", b" "))


def decode_base64(value: bytes) -> bytes | None:
    """The decoded bytes, None when it is none."""
    try:
        return base64.b64decode(value + b"=" * (-len(value) % 4), validate=True)
    except binascii.Error:
        return None


def decode_hex(value: bytes) -> bytes | None:
    """The decoded bytes, None when it is none."""
    try:
        return binascii.unhexlify(value)
    except binascii.Error:
        return None


def encode_base32(value: bytes, alphabet: bytes = _DEFAULT32, *, padding: bool = True) -> bytes:
    """Base32 in an alphabet (RFC 4648 6; by default that of section 7, in lower case)."""
    text = base64.b32encode(value).translate(bytes.maketrans(_STANDARD32, alphabet))
    return text if padding else text.rstrip(b"=")


def decode_base32(value: bytes, alphabet: bytes = _DEFAULT32) -> bytes | None:
    """The decoded bytes, None when it is none."""
    text = value.rstrip(b"=").translate(bytes.maketrans(alphabet, _STANDARD32))
    try:
        return base64.b32decode(text + b"=" * (-len(text) % 8))
    except binascii.Error:
        return None


FUNCTIONS: Final[dict[str, Callable[[bytes], bytes | None]]] = {
    "set_quote_sql_str": quote_sql,
    "set_quote_pgsql_str": quote_pgsql,
    "set_quote_json_str": quote_json,
    "set_unescape_uri": unescape_uri,
    "set_escape_uri": escape_uri,
    "set_encode_base64": base64.b64encode,
    "set_decode_base64": decode_base64,
    "set_encode_base64url": lambda value: base64.b64encode(value).rstrip(b"=").translate(_URL),
    "set_decode_base64url": lambda value: decode_base64(value.translate(_PLAIN)),
    "set_encode_hex": binascii.hexlify,
    "set_decode_hex": decode_hex,
    "set_encode_base32": encode_base32,
    "set_decode_base32": decode_base32,
    "set_md5": lambda value: hashlib.md5(value, usedforsecurity=False).hexdigest().encode(),
    "set_sha1": lambda value: hashlib.sha1(value, usedforsecurity=False).hexdigest().encode(),
}
"""Of one value, which is the variable's own when the directive names none."""


class SetMiscFamily(BaseFamily):
    """set_if_empty, set_unescape_uri, set_md5, ..."""

    specs = table(
        *(spec(name, IN, 1, 2) for name in FUNCTIONS),
        spec("set_if_empty", IN, 2),
        spec("set_hmac_sha1", IN, 3),
        spec("set_hmac_sha256", IN, 3),
        spec("set_random", IN, 3),
        spec("set_secure_random_alphanum", IN, 2),
        spec("set_secure_random_lcalpha", IN, 2),
        spec("set_rotate", IN, 3),
        spec("set_local_today", IN, 1),
        spec("set_formatted_gmt_time", IN, 2),
        spec("set_formatted_local_time", IN, 2),
        spec("set_hashed_upstream", IN, 3),
        spec("set_base32_padding", ("http", "server", "location", "if"), 1),
        spec("set_misc_base32_padding", ("http", "server", "location", "if"), 1),
        spec("set_base32_alphabet", ("http", "server", "location", "if"), 1),
    )

    def apply(self, scope: Scope, directive: Directive) -> None:
        """See registry.Family."""
        name = directive.name
        if name in ("set_base32_padding", "set_misc_base32_padding"):
            scope.settings["set_base32_padding"] = directive.args[0].lower() == "on"
            return
        if name == "set_base32_alphabet":
            alphabet = to_bytes(directive.args[0])
            if len(set(alphabet)) != len(_STANDARD32) or len(alphabet) != len(_STANDARD32):
                raise ConfError('"set_base32_alphabet" directive takes an alphabet of 32 bytes', directive.place)
            scope.settings[name] = alphabet
            return
        if name == "set_hashed_upstream":
            raise ConfError('"set_hashed_upstream" is not built yet', directive.place, hint="use hash in the upstream")
        scope.add("rewrite_ops", self._op(scope, directive))

    @staticmethod
    def _op(scope: Scope, directive: Directive) -> Callable[[Request], int | None]:
        target, *texts = directive.args
        if len(target) < 2 or not target.startswith("$"):
            raise ConfError(f'invalid variable name "{target}"', directive.place)
        variables = scope.build.variables
        variables.declare(target[1:], directive.place, warn=True)
        setter = variables.setter(target[1:].encode())
        values = [compile_value(text, variables, directive.place) for text in texts or [target]]
        function = _function(scope, directive.name)

        def step(request: Request) -> int | None:
            found = function(request, target[1:], [evaluate(value, request) for value in values])
            if found is None:
                request.log_error(ERR, to_bytes(directive.name) + b": invalid value")
                return 500
            setter(request, found)
            return None

        return step


def _function(scope: Scope, name: str) -> Callable[[Request, str, list[bytes]], bytes | None]:
    if name in ("set_encode_base32", "set_decode_base32"):
        return _base32(scope, name)
    simple = FUNCTIONS.get(name)
    if simple is not None:
        return lambda _request, _target, values: simple(values[0])
    return SPECIAL[name]


def _base32(scope: Scope, name: str) -> Callable[[Request, str, list[bytes]], bytes | None]:
    def step(_request: Request, _target: str, values: list[bytes]) -> bytes | None:
        alphabet = scope.get("set_base32_alphabet", _DEFAULT32)
        if name == "set_decode_base32":
            return decode_base32(values[0], alphabet)
        return encode_base32(values[0], alphabet, padding=scope.get("set_base32_padding", True))

    return step


def _if_empty(request: Request, target: str, values: list[bytes]) -> bytes:
    return request.get_slot(target.lower().encode()) or values[0]


def _random(_request: Request, _target: str, values: list[bytes]) -> bytes:
    low, high = (int(value) if value.isdigit() else 0 for value in values)
    return b"%d" % random.randint(min(low, high), max(low, high))  # noqa: S311 - set_secure_random is the other one


def _secure(letters: str) -> Callable[[Request, str, list[bytes]], bytes | None]:
    def step(_request: Request, _target: str, values: list[bytes]) -> bytes | None:
        count = int(values[0]) if values[0].isdigit() else 0
        return to_bytes("".join(secrets.choice(letters) for _ in range(count))) if 0 < count <= SECURE_MOST else None

    return step


_turns: Final[dict[tuple[str, bytes, bytes], int]] = {}


def _rotate(_request: Request, target: str, values: list[bytes]) -> bytes:
    low, high = sorted(int(value) if value.isdigit() else 0 for value in values)
    key = (target, values[0], values[1])
    _turns[key] = found = _turns.get(key, low - 1) + 1 if _turns.get(key, low - 1) < high else low
    return b"%d" % found


def _hmac(digest: str) -> Callable[[Request, str, list[bytes]], bytes]:
    return lambda _request, _target, values: hmac.digest(values[0], values[1], digest)


SPECIAL: Final[dict[str, Callable[[Request, str, list[bytes]], bytes | None]]] = {
    "set_if_empty": _if_empty,
    "set_hmac_sha1": _hmac("sha1"),
    "set_hmac_sha256": _hmac("sha256"),
    "set_random": _random,
    "set_secure_random_alphanum": _secure(string.ascii_letters + string.digits),
    "set_secure_random_lcalpha": _secure(string.ascii_lowercase),
    "set_rotate": _rotate,
    "set_local_today": lambda _request, _target, _values: to_bytes(time.strftime("%Y-%m-%d")),
    "set_formatted_gmt_time": lambda _r, _t, values: to_bytes(
        time.strftime(values[0].decode("latin-1"), time.gmtime())
    ),
    "set_formatted_local_time": lambda _r, _t, values: to_bytes(time.strftime(values[0].decode("latin-1"))),
}
