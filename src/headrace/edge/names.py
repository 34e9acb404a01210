"""Names that stand on the wire and in the logs, each written once.

The gateway answers for nginx in front of clients, scripts and test suites that look at the Server header and
at the foot of the error pages, so it names the version whose behaviour it follows.
"""

from __future__ import annotations

from typing import Final

from headrace.core.http1 import frame
from headrace.version import NGINX_VERSION

VERSION: Final = NGINX_VERSION
SERVER: Final = b"nginx"
SERVER_FULL: Final = b"%b/%b" % (SERVER, VERSION.encode())
SERVER_BUILD: Final = SERVER_FULL + b" (headrace)"

_WORDED: Final = (
    100, 101, 200, 201, 202, 204, 206, 300, 301, 302, 303, 304, 307, 308, 400, 401, 402, 403, 404, 405, 406,
    408, 409, 410, 411, 412, 413, 414, 415, 416, 421, 429, 500, 501, 502, 503, 504, 505, 507,
)  # fmt: skip
REASONS: Final[dict[int, bytes]] = {status: frame.REASONS[status] for status in _WORDED}
"""Reason phrases of the status line, for the statuses that nginx has words for."""


def status_text(status: int) -> bytes:
    """What follows `HTTP/1.1 ` on the status line; nginx sends a bare number for a status it has no words for."""
    reason = REASONS.get(status)
    return b"%d %b" % (status, reason) if reason else b"%d " % status
