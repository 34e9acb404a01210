"""What the upstream says about itself, in the client's terms: Location, Refresh, Set-Cookie. No I/O.

https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_redirect, #proxy_cookie_domain, #proxy_cookie_flags
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headrace.edge.location import take_captures
from headrace.edge.values import evaluate

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.edge.request import Request
    from headrace.edge.upstream.settings import Rewrite, Settings
    from headrace.edge.values import Value

FLAGS: Final = {
    b"secure": (b"secure", b"Secure"),
    b"httponly": (b"httponly", b"HttpOnly"),
    b"samesite=strict": (b"samesite", b"SameSite=Strict"),
    b"samesite=lax": (b"samesite", b"SameSite=Lax"),
    b"samesite=none": (b"samesite", b"SameSite=None"),
}
OFF_FLAGS: Final = {b"nosecure": b"secure", b"nohttponly": b"httponly", b"nosamesite": b"samesite"}


def prefix_rule(pattern: Value, replacement: Value) -> Callable[[Request, bytes], bytes | None]:
    """A text that begins with the pattern begins with the replacement instead; None: it does not."""

    def rewrite(request: Request, text: bytes) -> bytes | None:
        start = evaluate(pattern, request)
        return evaluate(replacement, request) + text[len(start) :] if text.startswith(start) else None

    return rewrite


def regex_rule(pattern: re.Pattern[bytes], replacement: Value) -> Callable[[Request, bytes], bytes | None]:
    """A text that matches becomes the replacement, which may use the captures."""

    def rewrite(request: Request, text: bytes) -> bytes | None:
        match = pattern.search(text)
        if match is None:
            return None
        take_captures(request, match)
        return evaluate(replacement, request)

    return rewrite


def rewrite_location(request: Request, settings: Settings, text: bytes) -> bytes | None:
    """The Location for the client; None when no rule matches."""
    for rule in settings.redirects:
        found = rule(request, text)
        if found is not None:
            return found
    return None


def rewrite_refresh(request: Request, settings: Settings, text: bytes) -> bytes:
    """The Refresh field with its URL rewritten."""
    at = text.lower().find(b"url=")
    if at < 0:
        return text
    found = rewrite_location(request, settings, text[at + 4 :])
    return text if found is None else text[: at + 4] + found


def _domain(request: Request, rules: tuple[Rewrite, ...], value: bytes) -> bytes | None:
    bare = value.removeprefix(b".")
    for pattern, replacement in rules:
        if isinstance(pattern, re.Pattern):
            match = pattern.search(bare)
            if match is None:
                continue
            take_captures(request, match)
        elif evaluate(pattern, request).removeprefix(b".").lower() != bare.lower():
            continue
        return evaluate(replacement, request)
    return None


def _path(request: Request, rules: tuple[Rewrite, ...], value: bytes) -> bytes | None:
    for pattern, replacement in rules:
        make = (
            regex_rule(pattern, replacement) if isinstance(pattern, re.Pattern) else prefix_rule(pattern, replacement)
        )
        found = make(request, value)
        if found is not None:
            return found
    return None


def rewrite_cookie(request: Request, settings: Settings, text: bytes) -> bytes:
    """The Set-Cookie field with domain, path and flags as the configuration wants them."""
    if not (settings.cookie_domains or settings.cookie_paths or settings.cookie_flags):
        return text
    parts = [part.strip() for part in text.split(b";")]
    changed = False
    for index, part in enumerate(parts[1:], 1):
        key, _, value = part.partition(b"=")
        found: bytes | None = None
        if key.strip().lower() == b"domain":
            found = _domain(request, settings.cookie_domains, value.strip())
        elif key.strip().lower() == b"path":
            found = _path(request, settings.cookie_paths, value.strip())
        if found is not None:
            parts[index] = key.strip() + b"=" + found
            changed = True
    flags = _flags_for(request, settings, parts[0].partition(b"=")[0])
    if flags:
        changed = _apply_flags(parts, flags) or changed
    return b"; ".join(parts) if changed else text


def _flags_for(request: Request, settings: Settings, name: bytes) -> list[bytes]:
    for wanted, flags in settings.cookie_flags:
        if isinstance(wanted, re.Pattern):
            if wanted.search(name) is None:
                continue
        elif evaluate(wanted, request).lower() != name.lower():
            continue
        return [evaluate(flag, request).lower() for flag in flags]
    return []


def _apply_flags(parts: list[bytes], flags: list[bytes]) -> bool:
    before = list(parts)
    for flag in flags:
        off = OFF_FLAGS.get(flag)
        if off is not None:
            parts[1:] = [part for part in parts[1:] if _key(part) != off]
            continue
        known = FLAGS.get(flag)
        if known is None:
            continue
        key, text = known
        at = next((index for index, part in enumerate(parts) if index and _key(part) == key), 0)
        if not at:
            parts.append(text)
        elif key == b"samesite":
            parts[at] = text
    return parts != before


def _key(part: bytes) -> bytes:
    return part.partition(b"=")[0].strip().lower()
