"""The order of the filters, written once, and how a body goes through them.

Header filters run when the header is decided; body filters get (request, data, last) and return what goes on. A
location without filters pays nothing. The order is nginx's: what scripts change comes before what the server adds,
then compression, then ranges (filesend.apply_ranges, for answers that allow them). A filter that acts on some answers
only is added to the request's body filters by its header filter, so that both orders are one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.edge.request import Request

HeaderFilter = Callable[["Request"], None]
BodyFilter = Callable[["Request", bytes, bool], bytes]

HEADER_ORDER: Final = (
    "slice",
    "script",
    "more",
    "keep",
    "headers",
    "userid",
    "gunzip",
    "addition",
    "sub",
    "charset",
    "ssi",
    "postpone",
    "zstd",
    "brotli",
    "gzip",
    "pace",
)
BODY_ORDER: Final = ("script",)
SCRIPT_ORDER: Final = ("script", "more")
INNER_ORDER: Final = ("slice", "script", "more", "gunzip", "sub", "charset", "ssi", "postpone")


def filter_body(request: Request, data: bytes, *, last: bool) -> bytes:
    """Pass a part of the body through the body filters of the request."""
    for body_filter in request.body_filters:
        data = body_filter(request, data, last)
    return data


def changed_body(request: Request, *, dated: bool) -> None:
    """A filter will change the body: what the header says about it holds no more.

    dated: Last-Modified stays, and the tag is a weak one.
    """
    request.content_length = None
    request.allow_ranges = None
    if not dated:
        request.last_modified = None
    kept = request.kept_headers
    if kept is None:
        return
    kept.remove(b"Accept-Ranges")
    tag = kept.get(b"ETag")
    if not dated:
        kept.remove(b"Last-Modified")
        kept.remove(b"ETag")
    elif tag is not None and not tag.startswith(b"W/"):
        kept.set(b"ETag", b"W/" + tag)
