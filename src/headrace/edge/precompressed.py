"""Files that were compressed beforehand, beside the plain ones: gzip_static, brotli_static, zstd_static.

https://nginx.org/en/docs/http/ngx_http_gzip_static_module.html
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from headrace.edge.filesend import send_file

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headrace.edge.phases import Handler, Result
    from headrace.edge.request import Request


def sender(coding: bytes, suffix: bytes, *, wanted: Callable[[Request], bool], vary: bool, always: bool) -> Handler:
    """The content handler that sends the file with this suffix, where it is and the client takes the coding.

    vary: an answer says that it depends on Accept-Encoding. always: also to clients that do not take the coding.
    """

    def send(request: Request) -> Result | Awaitable[Result]:
        if request.method not in (b"GET", b"HEAD") or request.uri.endswith(b"/"):
            return None
        packed = always or wanted(request)
        if not packed and not vary:
            return None
        try:
            fd = os.open(request.location.path_of(request) + suffix, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            os.close(fd)
            return None
        if not always:
            request.vary = vary
        if not packed:
            os.close(fd)
            return None
        request.discard_body()
        request.headers_out.set(b"Content-Encoding", coding)
        return send_file(request, fd, info)

    return send
