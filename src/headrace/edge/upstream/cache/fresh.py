"""How long an answer may be kept. No I/O; times are seconds since the epoch.

X-Accel-Expires counts more than Cache-Control, which counts more than Expires; where none says anything,
proxy_cache_valid does. https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_cache_valid
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.edge.ranges import http_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.core.http1.events import ResponseHead

FORBIDDING = frozenset((b"no-cache", b"no-store", b"private"))


@dataclass(slots=True)
class Lifetime:
    """valid: until when it is fresh; 0: it may not be kept. while_updating, if_error: seconds beyond that."""

    valid: float = 0.0
    while_updating: float = 0.0
    if_error: float = 0.0


def lifetime_of(head: ResponseHead, ignored: frozenset[bytes], by_status: Mapping[int, float], now: float) -> Lifetime:
    """The lifetime of an answer. ignored: fields of proxy_ignore_headers. by_status: proxy_cache_valid; 0: any."""
    found = Lifetime()
    if b"set-cookie" not in ignored and head.header(b"set-cookie") is not None:
        return found
    if b"vary" not in ignored and (head.header(b"vary") or b"").strip() == b"*":
        return found
    told = _accel(head, now) if b"x-accel-expires" not in ignored else None
    if b"cache-control" not in ignored:
        controlled = _control(head, found, now)
        told = controlled if told is None else told
    if told is None and b"expires" not in ignored:
        expires = head.header(b"expires")
        if expires is not None:
            at = http_time(expires) or 0
            told = float(at) if at > now else 0.0
    if told is not None:
        found.valid = told
        return found
    seconds = by_status.get(head.status, by_status.get(0, 0.0))
    found.valid = now + seconds if seconds else 0.0
    return found


def _accel(head: ResponseHead, now: float) -> float | None:
    text = head.header(b"x-accel-expires")
    if text is None:
        return None
    if text.startswith(b"@"):
        at = float(text[1:]) if text[1:].isdigit() else 0.0
        return at if at > now else 0.0
    return now + int(text) if text.isdigit() and int(text) else 0.0 if text.isdigit() else None


def _control(head: ResponseHead, found: Lifetime, now: float) -> float | None:
    text = head.header(b"cache-control")
    if text is None:
        return None
    words = [word.strip().lower() for word in text.split(b",")]
    values: dict[bytes, int] = {}
    for word in words:
        name, equals, value = word.partition(b"=")
        if equals and value.strip(b'"').isdigit():
            values.setdefault(name, int(value.strip(b'"')))
    found.while_updating = float(values.get(b"stale-while-revalidate", 0))
    found.if_error = float(values.get(b"stale-if-error", 0))
    if FORBIDDING & {word.partition(b"=")[0] for word in words}:
        return 0.0
    for name in (b"s-maxage", b"max-age"):
        if name in values:
            return now + values[name] if values[name] else 0.0
    return None
