"""Names that stand on the wire and in the logs, each written once.

The gateway answers for nginx in front of clients, scripts and test suites that look at the Server header and
at the foot of the error pages, so it names the version whose behaviour it follows.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = "1.26.3"
SERVER: Final = b"nginx"
SERVER_FULL: Final = b"nginx/1.26.3"
SERVER_BUILD: Final = b"nginx/1.26.3 (headrace)"

REASONS: Final[dict[int, bytes]] = {
    100: b"Continue",
    101: b"Switching Protocols",
    200: b"OK",
    201: b"Created",
    202: b"Accepted",
    204: b"No Content",
    206: b"Partial Content",
    300: b"Multiple Choices",
    301: b"Moved Permanently",
    302: b"Moved Temporarily",
    303: b"See Other",
    304: b"Not Modified",
    307: b"Temporary Redirect",
    308: b"Permanent Redirect",
    400: b"Bad Request",
    401: b"Unauthorized",
    402: b"Payment Required",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Not Allowed",
    406: b"Not Acceptable",
    408: b"Request Time-out",
    409: b"Conflict",
    410: b"Gone",
    411: b"Length Required",
    412: b"Precondition Failed",
    413: b"Request Entity Too Large",
    414: b"Request-URI Too Large",
    415: b"Unsupported Media Type",
    416: b"Requested Range Not Satisfiable",
    421: b"Misdirected Request",
    429: b"Too Many Requests",
    500: b"Internal Server Error",
    501: b"Not Implemented",
    502: b"Bad Gateway",
    503: b"Service Temporarily Unavailable",
    504: b"Gateway Time-out",
    505: b"HTTP Version Not Supported",
    507: b"Insufficient Storage",
}
"""Reason phrases of the status line, in nginx's words (not always those of RFC 9110)."""


def status_text(status: int) -> bytes:
    """What follows `HTTP/1.1 ` on the status line; nginx sends a bare number for a status it has no words for."""
    reason = REASONS.get(status)
    return b"%d %b" % (status, reason) if reason else b"%d " % status
