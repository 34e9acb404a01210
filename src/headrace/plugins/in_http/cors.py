"""Which origins a browser may send from (https://fetch.spec.whatwg.org/#http-cors-protocol).

An origin of the list may hold one `*`; the list `*` allows everyone. A request without Origin does
not come from a browser's page and passes (https://docs.fluentd.org/input/http#cors_allow_origins).
"""

from __future__ import annotations

from typing import Final

PREFLIGHT_METHOD: Final = b"POST"


class Cors:
    """The rule of one source. Fields it returns are whole header lines."""

    def __init__(self, origins: list[str], *, credentials: bool) -> None:
        self._everyone = "*" in origins
        self._exact = frozenset(origin.encode() for origin in origins)
        self._patterns = []
        for origin in origins:
            start, star, end = origin.partition("*")
            if star and origin != "*":
                self._patterns.append((start.encode(), end.encode()))
        self._credentials = b"Access-Control-Allow-Credentials: true\r\n" if credentials else b""

    def _listed(self, origin: bytes) -> bool:
        return origin in self._exact or any(
            origin.startswith(start) and origin.endswith(end) and len(origin) >= len(start) + len(end)
            for start, end in self._patterns
        )

    def fields(self, origin: bytes | None) -> bytes | None:
        """The header lines for an answer to this origin; None where it is not allowed."""
        if self._everyone:
            return b"Access-Control-Allow-Origin: *\r\n"
        if origin is None:
            return b""
        if not self._listed(origin):
            return None
        # The answer differs by Origin, so a cache must not hand it to another one.
        return b"Access-Control-Allow-Origin: " + origin + b"\r\nVary: Origin\r\n" + self._credentials

    def preflight(self, origin: bytes | None, method: bytes | None, headers: bytes | None) -> bytes | None:
        """The header lines for an OPTIONS request that asks first; None where it is not allowed."""
        fields = self.fields(origin) if method == PREFLIGHT_METHOD else None
        if not fields:
            return None
        allowed = b"Access-Control-Allow-Headers: " + (headers or b"") + b"\r\n"
        return b"Access-Control-Allow-Methods: " + PREFLIGHT_METHOD + b"\r\n" + allowed + fields
