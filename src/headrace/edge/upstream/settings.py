"""What holds for the upstream of one location; made once, when the configuration is built.

Times are in seconds, sizes in bytes. https://nginx.org/en/docs/http/ngx_http_proxy_module.html
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import re
    from collections.abc import Callable

    from headrace.edge.request import Request
    from headrace.edge.upstream.cache.cacher import CacheSettings
    from headrace.edge.upstream.tls import TlsSettings
    from headrace.edge.values import Value

ERROR: Final = "error"
TIMEOUT: Final = "timeout"
INVALID_HEADER: Final = "invalid_header"
NON_IDEMPOTENT: Final = "non_idempotent"
NEXT_STATUSES: Final = (403, 404, 429, 500, 502, 503, 504)
NEXT_WORDS: Final = frozenset(
    (
        "off",
        "updating",
        "not_found",
        ERROR,
        TIMEOUT,
        INVALID_HEADER,
        NON_IDEMPOTENT,
        *(f"http_{code}" for code in NEXT_STATUSES),
    )
)
ORDERS: Final = frozenset(
    (b"x-accel-expires", b"x-accel-redirect", b"x-accel-limit-rate", b"x-accel-buffering", b"x-accel-charset")
)
HIDDEN: Final = {
    "proxy": ORDERS | {b"date", b"server", b"x-pad"},
    "grpc": ORDERS | {b"date", b"server"},
    "fastcgi": ORDERS | {b"status"},
    "scgi": ORDERS | {b"status"},
    "uwsgi": ORDERS,
    "memcached": ORDERS,
    "memc": ORDERS,
    "redis2": ORDERS,
}
"""Fields of the upstream's answer that stay here unless ..._pass_header names them."""
IGNORABLE: Final = frozenset(
    (
        "X-Accel-Redirect", "X-Accel-Expires", "X-Accel-Limit-Rate", "X-Accel-Buffering", "X-Accel-Charset", "Expires",
        "Cache-Control", "Set-Cookie", "Vary",
    )
)  # fmt: skip

Rewrite = tuple["re.Pattern[bytes] | Value", "Value"]


@dataclass(slots=True)
class Settings:
    """prefix: of the directives (`proxy`). The rest is named after them."""

    prefix: str = "proxy"
    connect_timeout: float = 60.0
    send_timeout: float = 60.0
    read_timeout: float = 60.0
    buffering: bool = True
    request_buffering: bool = True
    buffer_size: int = 4096
    buffers_total: int = 32768
    max_temp: int = 1 << 30
    temp_path: str = ""
    ignore_abort: bool = False
    intercept_errors: bool = False
    intercept_404: bool = False
    """A 404 is answered here, with error_page or the usual page."""
    pass_trailers: bool = False
    force_ranges: bool = False
    own_server: bool = False
    """..._pass_header lets Server or Date through: where the upstream has none, there is none."""
    pass_headers: bool = True
    pass_body: bool = True
    limit_rate: Value | None = None
    next_upstream: frozenset[str] = frozenset((ERROR, TIMEOUT))
    next_timeout: float = 0.0
    next_tries: int = 0
    hidden: frozenset[bytes] = HIDDEN["proxy"]
    ignored: frozenset[bytes] = frozenset()
    bind: Value | None = None
    keepalive_socket: bool = False
    tls: TlsSettings | None = None
    cache: CacheSettings | None = None
    store: Value | None = None
    """The path to store answers at; evaluates to b"" for the path of the request (`store on`)."""
    store_access: int = 0o600
    redirects: tuple[Callable[[Request, bytes], bytes | None], ...] = ()
    cookie_domains: tuple[Rewrite, ...] = ()
    cookie_paths: tuple[Rewrite, ...] = ()
    cookie_flags: tuple[tuple[re.Pattern[bytes] | Value, tuple[Value, ...]], ...] = ()
    known: dict[Any, list[tuple[bytes, bytes]]] = field(default_factory=dict)
    """What of a head (by identity: equal answers share one) goes to the client, where no variable decides."""
