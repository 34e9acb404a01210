"""Request targets: from what a client sent to the path that locations are matched with.

As nginx does it: percent-escapes are decoded first, so an encoded dot or slash counts as one when dot segments are
resolved; what would climb above the root, a broken escape or an encoded NUL is a 400 (RFC 3986 5.2.4, 2.1).
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote_to_bytes

from headrace.errors import HttpError

_BROKEN: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})|%00")
_UNSAFE_PATH: Final = re.compile(rb"[\x00-\x20%?#\"<>\\^`{|}\x7f-\xff]")
_UNSAFE_ARGS: Final = re.compile(rb"[\x00-\x20#%&+;?\x7f-\xff]")
_UNPRINTABLE: Final = re.compile(rb"[\x00-\x20\x7f-\xff]")
_ESCAPE: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_SCHEME: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")


def split_target(target: bytes, *, merge_slashes: bool = True) -> tuple[bytes, bytes]:
    """Split a request target into normalised path and query string. Raises HttpError 400."""
    path, _, args = target.partition(b"?")
    if (
        b"%" not in path
        and b"/." not in path
        and b"#" not in target
        and path[:1] == b"/"
        and not (merge_slashes and b"//" in path)
    ):
        return path, args
    return _split_slowly(target, merge_slashes=merge_slashes)


def _split_slowly(target: bytes, *, merge_slashes: bool) -> tuple[bytes, bytes]:
    if target[:1] != b"/":
        match = _SCHEME.match(target)
        if match is None:
            raise HttpError(400, "client sent invalid request")
        target = target[match.end() :]
        if target[:1] != b"/":
            target = b"/" + target
    path, mark, args = target.partition(b"?")
    path, fragment, _ = path.partition(b"#")
    if fragment and mark:
        args = b""
    return normalise(path, merge_slashes=merge_slashes), args.partition(b"#")[0]


def normalise(path: bytes, *, merge_slashes: bool = True) -> bytes:
    """Decode a path and resolve its dot segments. Raises HttpError 400."""
    if b"%" in path:
        if _BROKEN.search(path):
            raise HttpError(400, "client sent invalid request")
        path = unquote_to_bytes(path)
    return resolve_dots(path, merge_slashes=merge_slashes)


def resolve_dots(path: bytes, *, merge_slashes: bool = True) -> bytes:
    """Resolve the dot segments of a decoded path that begins with a slash. Raises HttpError 400."""
    if b"/." not in path and not (merge_slashes and b"//" in path):
        return path
    parts = path.split(b"/")[1:]
    last = len(parts) - 1
    out: list[bytes] = []
    for i, part in enumerate(parts):
        if part == b"..":
            if not out:
                raise HttpError(400, "client sent invalid request")
            out.pop()
        elif part != b"." and (part or not merge_slashes or i == last):
            out.append(part)
            continue
        if i == last:
            out.append(b"")
    return b"/" + b"/".join(out)


def escape_path(path: bytes) -> bytes:
    """Percent-encode a decoded path for a request line or a redirect (nginx's NGX_ESCAPE_URI)."""
    return _UNSAFE_PATH.sub(_percent, path)


def escape_args(args: bytes) -> bytes:
    """Percent-encode a value for a query string (nginx's NGX_ESCAPE_ARGS: what would end it or be read as a blank)."""
    return _UNSAFE_ARGS.sub(_percent, args)


def unescape_redirect(path: bytes) -> bytes:
    """Undo the escapes that a redirect does not need, up to the query string; what is left must not break the line."""
    out, position = [], 0
    for match in _ESCAPE.finditer(path.partition(b"?")[0]):
        char = int(match.group(1), 16)
        if 0x25 < char < 0x7F:
            out += [path[position : match.start()], bytes((char,))]
            position = match.end()
            if char == 0x3F:
                break
    out.append(path[position:])
    return _UNPRINTABLE.sub(_percent, b"".join(out))


def _percent(match: re.Match[bytes]) -> bytes:
    return b"%%%02X" % match.group()[0]


def host_only(host: bytes) -> bytes:
    """A Host header in lower case, without its port and trailing dot."""
    if not host:
        return b""
    host = host[: host.find(b"]") + 1] if host.startswith(b"[") else host.partition(b":")[0]
    return host.rstrip(b".").lower()
