"""Functions and methods of modules in the Ruby subset: Time.at, JSON.parse, ENV.fetch, Socket.gethostname, format."""

from __future__ import annotations

import base64
import hashlib
import math
import os
import secrets
import uuid
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_plus, unquote_plus

from headrace.pipeline.event import NS
from headrace.plugins.expressions.nodes import Refused
from headrace.plugins.expressions.ruby_format import sprintf
from headrace.plugins.expressions.ruby_kinds import Block, RubyError, kind
from headrace.plugins.expressions.ruby_time import Moment, at, zone_of
from headrace.plugins.jsoncodec import decode, encode
from headrace.plugins.ruby_text import inspect, to_s
from headrace.plugins.time_fields import seconds_of
from headrace.plugins.time_parse import any_form, strptime

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LIBRARIES: Final = frozenset(
    ["json", "time", "date", "socket", "uri", "cgi", "pathname", "ostruct", "set", "digest", "securerandom", "base64"]
)
"""What `require` may name: as far as it is supported, it is there already."""


class Static:
    """hostname, worker_id: of this process. now: nanoseconds since the epoch. env: the environment."""

    def __init__(
        self,
        hostname: str,
        now: Callable[[], int],
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._hostname = hostname
        self._now = now
        self._env = os.environ if env is None else env
        self._texts = any_form(None, now)
        self._table: dict[tuple[str, str], tuple[int, int, Callable[..., Any]]] = {
            ("Time", "at"): (1, 4, _time_at),
            ("Time", "now"): (0, 0, lambda: Moment(now())),
            ("Time", "parse"): (1, 1, lambda text: Moment(self._texts(_text(text)))),
            ("Time", "iso8601"): (1, 1, _iso8601),
            ("Time", "strptime"): (2, 2, lambda text, form: Moment(strptime(_text(form), None, now)(_text(text)))),
            ("JSON", "parse"): (1, 2, _json_parse),
            ("JSON", "generate"): (1, 1, to_json),
            ("JSON", "dump"): (1, 1, to_json),
            ("Socket", "gethostname"): (0, 0, lambda: hostname),
            ("ENV", "[]"): (1, 1, lambda name: self._env.get(_text(name))),
            ("ENV", "fetch"): (1, 2, self._fetch),
            ("ENV", "key?"): (1, 1, lambda name: _text(name) in self._env),
            ("Kernel", "Integer"): (1, 2, _integer),
            ("Kernel", "Float"): (1, 1, _float),
            ("Kernel", "String"): (1, 1, to_s),
            ("Kernel", "format"): (1, 20, sprintf),
            ("Kernel", "sprintf"): (1, 20, sprintf),
            ("CGI", "escape"): (1, 1, lambda text: quote_plus(_text(text), safe="*-._~", errors="surrogateescape")),
            ("CGI", "unescape"): (1, 1, lambda text: unquote_plus(_text(text), errors="surrogateescape")),
            ("URI", "encode_www_form_component"): (1, 1, lambda text: quote_plus(to_s(text), safe="*-._")),
            ("URI", "decode_www_form_component"): (1, 1, lambda text: unquote_plus(_text(text))),
            ("Math", "sqrt"): (1, 1, lambda value: math.sqrt(_float(value))),
            ("Math", "log"): (1, 1, lambda value: math.log(_float(value))),
            ("Math", "log10"): (1, 1, lambda value: math.log10(_float(value))),
            ("Math", "log2"): (1, 1, lambda value: math.log2(_float(value))),
        }
        for name in ("MD5", "SHA1", "SHA256", "SHA384", "SHA512"):
            self._table[f"Digest::{name}", "hexdigest"] = (1, 1, _digest(name.lower()))
        self._table |= {
            ("SecureRandom", "uuid"): (0, 0, lambda: str(uuid.uuid4())),
            ("SecureRandom", "hex"): (0, 1, lambda size=16: secrets.token_hex(min(int(size or 16), 256))),
            ("Base64", "encode64"): (1, 1, _lines_of_base64),
            ("Base64", "strict_encode64"): (1, 1, lambda text: base64.b64encode(_bytes(text)).decode()),
            ("Base64", "decode64"): (1, 1, _from_base64),
            ("Base64", "strict_decode64"): (1, 1, _from_base64),
        }
        for name in ("utc", "gm"):
            self._table["Time", name] = (1, 7, lambda *fields: _made(fields, UTC))
        for name in ("local", "mktime"):
            self._table["Time", name] = (1, 7, lambda *fields: _made(fields, None))

    def find(self, module: str, name: str, count: int, *, with_block: bool) -> Callable[..., Any]:
        """The function for a number of arguments. Raises Refused."""
        found = self._table.get((module, name))
        called = name if module == "Kernel" else f"{module}.{name}"
        if found is None:
            known = ", ".join(sorted(one for owner, one in self._table if owner == module))
            hint = f"supported: {known}" if known else ""
            if module in {"Date", "DateTime"}:
                hint = "write Time in its place; `time` is a Time already"
            raise Refused(f"{called} is not supported", hint=hint)
        if not found[0] <= count <= found[1] or (with_block and name != "fetch"):
            raise Refused(f"{called} cannot be called so")
        return found[2]

    def _fetch(self, name: Any, default: Any = None, block: Block | None = None) -> Any:
        found = self._env.get(_text(name), default)
        if found is None and block is not None:
            return block.call(name)
        if found is None:
            raise RubyError(f'key not found: "{name}"')
        return found


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise RubyError(f"no implicit conversion of {kind(value)} into String")
    return value


def _bytes(value: Any) -> bytes:
    return _text(value).encode("utf-8", "surrogateescape")


def _lines_of_base64(value: Any) -> str:
    """Sixty characters a line, as Ruby has them."""
    raw = _bytes(value)
    return "".join([base64.b64encode(raw[at : at + 45]).decode() + "\n" for at in range(0, len(raw), 45)])


def _from_base64(value: Any) -> str:
    return base64.b64decode(_bytes(value)).decode("utf-8", "surrogateescape")


def _digest(name: str) -> Callable[[Any], str]:
    def digest(value: Any) -> str:
        return hashlib.new(name, _bytes(value), usedforsecurity=False).hexdigest()

    return digest


def _time_at(value: Any, *more: Any) -> Moment:
    zone = None
    if more and isinstance(more[-1], dict):
        zone = more[-1].get("in")
        more = more[:-1]
    return at(value, *more, zone=zone)


def _iso8601(text: Any) -> Moment:
    return Moment(strptime("%iso8601", None)(_text(text)))


def _made(fields: tuple[Any, ...], zone: Any) -> Moment:
    values = [int(field) for field in fields[:6]]
    values += [0, 1, 1, 0, 0, 0][len(values) :]
    year, month, day, hour, minute, second = values
    return Moment(
        seconds_of(year, month, day, hour, minute, second, None, zone_of(None) if zone is None else zone) * NS, zone
    )


def _json_parse(text: Any, _options: Any = None) -> Any:
    return decode(_text(text).encode("utf-8", "surrogateescape"))


def to_json(value: Any) -> str:
    """A value as JSON; a time as its text."""
    return encode(_plain(value)).decode("utf-8")


def _plain(value: Any) -> Any:
    if isinstance(value, Moment):
        return str(value)
    if isinstance(value, dict) and any(isinstance(item, (Moment, dict, list)) for item in value.values()):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _integer(value: Any, base: Any = None) -> int:
    if isinstance(value, float):
        return int(value)
    try:
        if isinstance(value, str) and len(value) < 400:
            return (
                int(value, base if base is not None else 0)
                if base or value.strip().isdecimal() is False
                else int(value)
            )
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    except ValueError:
        pass
    raise RubyError(f"invalid value for Integer(): {inspect(value)}")


def _float(value: Any) -> float:
    if isinstance(value, bool) or value is None:
        raise RubyError(f"can't convert {kind(value)} into Float")
    try:
        return float(value)
    except (ValueError, TypeError, OverflowError):
        raise RubyError(f"invalid value for Float(): {inspect(value)}") from None
