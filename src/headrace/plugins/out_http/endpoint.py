"""An endpoint's URL, split once into what a connection is keyed by and what a request line needs.

The identity of a connection is scheme, host and port (the proxy and the TLS settings belong to the
output and never change); a path or query that changes from chunk to chunk keeps the connection.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import quote

from headrace.errors import Error, Side

DEFAULT_PORTS: Final = {"http": 80, "https": 443}

_URL: Final = re.compile(
    r"(?P<scheme>(?i:https?))://(?:(?P<userinfo>[^/?#@]*)@)?"
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s/?#@:\[\]\x00-\x20\x7f-\U0010ffff]+)(?::(?P<port>\d*))?"
    r"(?P<path>[/?][^#]*)?(?:#.*)?",
    re.DOTALL,
)
_SAFE: Final = "!#$%&'()*+,-./:;=?@_~[]"
"""What stays as it is in a request target: a `%` too, because the URL's author escaped already."""

PLACEHOLDER: Final = re.compile(r"\$\{[^}]*\}|%\{[^}]*\}")
TIME_PLACEHOLDER: Final = re.compile(r"%[A-Za-z]")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one request goes.

    host: without the brackets of an IPv6 literal. authority: the value of Host. target: the
    origin-form of the request line (RFC 9112 3.2.1).
    """

    scheme: str
    host: str
    port: int
    authority: bytes
    target: bytes
    userinfo: bool = False

    @property
    def identity(self) -> tuple[str, str, int]:
        """What two requests must share to share a connection."""
        return (self.scheme, self.host, self.port)

    @property
    def absolute(self) -> bytes:
        """The absolute-form, for a proxy that is asked to fetch (RFC 9112 3.2.2)."""
        return b"http://" + self.authority + self.target

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority.decode()}{self.target.decode()}"


@lru_cache(maxsize=1024)
def parse(url: str) -> Endpoint:
    """Split a URL whose placeholders are filled in.

    Bytes that may not stand in a request target (spaces, quotes, bytes outside ASCII) are
    percent-encoded. Raises Error, not retryable, for what is no http or https URL.
    """
    match = _URL.fullmatch(url)
    if match is None:
        raise Error(f"not an http or https URL: {url!r}", kind="endpoint", side=Side.US)
    scheme = match["scheme"].lower()
    host = match["host"].lower()
    port = int(match["port"] or DEFAULT_PORTS[scheme])
    if not 0 < port < 65536:
        raise Error(f"port {port} out of range in {url!r}", kind="endpoint", side=Side.US)
    authority = host if port == DEFAULT_PORTS[scheme] else f"{host}:{port}"
    path = match["path"] or "/"
    target = quote(path if path.startswith("/") else "/" + path, safe=_SAFE, errors="surrogateescape")
    return Endpoint(
        scheme, host.strip("[]"), port, authority.encode(), target.encode(), userinfo=match["userinfo"] is not None
    )


def template_host(url: str) -> str | None:
    """The host of an endpoint with placeholders, None where the host itself has one.

    Raises Error where no value of the placeholders could make it a URL.
    """
    mark = "placeholder.invalid"
    filled = PLACEHOLDER.sub(mark, url)
    # A port or scheme that is a placeholder can only be judged when it is filled in.
    host = parse(re.sub(rf"(?<=:){mark}(?=[/?#]|$)", "1", re.sub(rf"^{mark}(?=://)", "http", filled))).host
    host = TIME_PLACEHOLDER.sub(mark, host)
    return None if mark in host else host
