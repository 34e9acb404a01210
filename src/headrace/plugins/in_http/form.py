"""Form bodies and query strings -> parameters by name, as bytes.

URL-encoded text is split at `&` only (a `;` belongs to the value) and percent-decoded after the
split (WHATWG URL, 5.1). Where a name comes twice the last value counts, as in Fluentd 1.19.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote_to_bytes

from headrace.plugins.in_http.body import bad

_BOUNDARY: Final = re.compile(rb';\s*boundary=(?:"((?:[^"\\]|\\.)+)"|([^\s;]+))', re.IGNORECASE)
_NAME: Final = re.compile(rb';\s*name=(?:"((?:[^"\\]|\\.)*)"|([^\s;]+))', re.IGNORECASE)
_ESCAPED: Final = re.compile(rb"\\(.)", re.DOTALL)
_DISPOSITION: Final = b"content-disposition:"

Parameters = dict[bytes, bytes]


def _unescape(text: bytes) -> bytes:
    if b"+" in text:
        text = text.replace(b"+", b" ")
    return unquote_to_bytes(text) if b"%" in text else text


def parse_urlencoded(data: bytes) -> Parameters:
    """The parameters of a query string or of an application/x-www-form-urlencoded body."""
    found: Parameters = {}
    for pair in data.split(b"&"):
        if pair:
            name, _, value = pair.partition(b"=")
            found[_unescape(name)] = _unescape(value)
    return found


def parse_multipart(data: bytes, content_type: bytes) -> Parameters:
    """The named parts of a multipart/form-data body (RFC 7578). Raises HttpError 400."""
    match = _BOUNDARY.search(content_type)
    if match is None:
        raise bad("multipart/form-data without a boundary")
    boundary = _unquote(match)
    parts = (b"\r\n" + data).split(b"\r\n--" + boundary)
    if len(parts) < 2 or not parts[-1].startswith(b"--"):
        raise bad("multipart/form-data without its last boundary")
    found: Parameters = {}
    for part in parts[1:-1]:
        head, separator, content = part.partition(b"\r\n\r\n")
        if not separator:
            raise bad("a part of multipart/form-data without an end of its head")
        for line in head.split(b"\r\n"):
            if line[: len(_DISPOSITION)].lower() == _DISPOSITION and (name := _NAME.search(line)):
                found[_unquote(name)] = content
    return found


def _unquote(match: re.Match[bytes]) -> bytes:
    return match[2] if match[1] is None else _ESCAPED.sub(rb"\1", match[1])
