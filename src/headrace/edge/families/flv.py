"""flv: files of Flash Video from a byte on that the client names, with a header of their own before it.

https://nginx.org/en/docs/http/ngx_http_flv_module.html
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

from headrace.edge import phases
from headrace.edge.families.common import BaseFamily, spec, table
from headrace.edge.filesend import send_file

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.phases import Result
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope

HEADER: Final = b"FLV\1\5\0\0\0\x09\0\0\0\0"
"""A file with sound and pictures, and the size of the tag before the first one."""


class FlvFamily(BaseFamily):
    """flv."""

    specs = table(spec("flv", ("location",), 0))

    @staticmethod
    def _do_flv(scope: Scope, directive: Directive) -> None:
        scope.settings["flv"] = directive

    def compose(self, scope: Scope, location: Location) -> None:
        """Before the plain files, which also answer what is not there."""
        if scope.own("flv") is not None:
            location.add(phases.CONTENT, _send)


def _send(request: Request) -> Result | Awaitable[Result]:
    if request.uri.endswith(b"/"):
        return None
    if request.method not in (b"GET", b"HEAD"):
        return 405
    text = (request.var(b"arg_start") or b"") if request.args else b""
    if not text.isdigit() or not int(text):
        return None
    try:
        fd = os.open(request.location.path_of(request), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode) or int(text) >= info.st_size:
        os.close(fd)
        return None
    request.discard_body()
    return send_file(request, fd, info, lead=HEADER, skip=int(text))
