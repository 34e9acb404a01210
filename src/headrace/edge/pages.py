"""The pages of special responses: what a client sees when nothing else is configured.

The layout (one title, one centred heading, a rule, the server's name) is what clients and test suites of nginx
recognise. Statuses 494 to 497 are nginx's own and are answered as 400.
"""

from __future__ import annotations

import re
from typing import Final

from headrace.edge.names import REASONS

CLOSING: Final = frozenset({400, 413, 414, 495, 496, 497, 500, 501})
"""Statuses after which the connection is closed."""

AS_400: Final = frozenset({494, 495, 496, 497})

_TITLES: Final[dict[int, bytes]] = {
    302: b"302 Found",
    401: b"401 Authorization Required",
    494: b"400 Request Header Or Cookie Too Large",
    495: b"400 The SSL certificate error",
    496: b"400 No required SSL certificate was sent",
    497: b"400 The plain HTTP request was sent to HTTPS port",
}
_NOTES: Final[dict[int, bytes]] = {
    494: b"Request Header Or Cookie Too Large",
    495: b"The SSL certificate error",
    496: b"No required SSL certificate was sent",
    497: b"The plain HTTP request was sent to HTTPS port",
}
_UNSAFE: Final = re.compile(rb"[\x00-\x20\"'<>\x7f-\xff]")
_WITH_PAGE: Final = frozenset({301, 302, 303, 307, 308, *(s for s in REASONS if s >= 400), *AS_400})


def page(status: int, server: bytes) -> bytes | None:
    """The page of a status with the server's name at its foot; None for a status that has no page."""
    if status not in _WITH_PAGE:
        return None
    title = _TITLES.get(status) or b"%d %b" % (status, REASONS[status])
    note = _NOTES.get(status)
    heading = b"400 Bad Request" if note else title
    more = b"<center>%b</center>\r\n" % note if note else b""
    return (
        b"<html>\r\n<head><title>%b</title></head>\r\n<body>\r\n<center><h1>%b</h1></center>\r\n"
        b"%b<hr><center>%b</center>\r\n</body>\r\n</html>\r\n" % (title, heading, more, server)
    )


def refresh_page(target: bytes) -> bytes:
    """What a browser gets instead of a redirect that it would not show (msie_refresh)."""
    shown = _UNSAFE.sub(lambda match: b"%%%02X" % match.group()[0], target)
    return b'<html><head><meta http-equiv="Refresh" content="0; URL=%b"></head><body></body></html>\r\n' % shown
