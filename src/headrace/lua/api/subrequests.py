"""Subrequests of a script: made here, run by the edge, told to the VM when they have ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from headrace.edge.subrequest import Subrequest
from headrace.edge.uri import normalise
from headrace.errors import HttpError

if TYPE_CHECKING:
    from headrace.edge.request import Request
    from headrace.lua.api.headers import HeadersApi

FORWARD_BODY: Final = 1
COPY_VARS: Final = 2
SHARE_VARS: Final = 4
_WITH_BODY: Final = frozenset({b"PUT", b"POST"})


class SubrequestApi:
    """requests: live requests by handle. ended(id, status, truncated, body, fields): the VM's entry for the end."""

    def __init__(self, requests: Mapping[int, Request], headers: HeadersApi) -> None:
        self.requests = requests
        self.headers = headers
        self.ended: Callable[[int, int, int, bytes, bytes], None] = lambda *_: None

    def functions(self) -> dict[str, Callable[..., Any]]:
        """See the package."""
        return {
            "subrequest": self.subrequest,
            "subrequest_var": self.subrequest_var,
            "subrequest_start": self.subrequest_start,
            "is_subrequest": self.is_subrequest,
        }

    def subrequest(
        self, request_id: int, uri: bytes, args: bytes, method: bytes, flags: int, body: bytes | None = None
    ) -> int | None:
        """Make one that does not run yet; returns its handle, None for a URI that cannot be."""
        parent = self.requests[request_id]
        try:
            path = uri if uri.startswith(b"@") else normalise(uri)
        except HttpError:
            return None
        made = Subrequest(parent, path, args, method=method, bare=True, done=self._done)
        if body is not None:
            made.give_body(body)
        elif int(flags) & FORWARD_BODY or method in _WITH_BODY:
            if parent.body_read and (parent.body or parent.body_file):
                made.give_body(parent.body, parent.body_file)
        elif parent.header_in(b"content-length") not in (None, b"0"):
            made.give_body(None)
        if int(flags) & SHARE_VARS:
            made.share_vars(parent)
        elif int(flags) & COPY_VARS:
            made.copy_vars(parent)
        parent.on_cleanup(made.cancel)
        return made.id

    def subrequest_var(self, request_id: int, name: bytes, value: bytes) -> bytes | None:
        """Set a variable of one; returns why that cannot be."""
        made = self.requests[request_id]
        try:
            made.set_var(name, value)
        except KeyError:
            return b'variable "%b" cannot be assigned a value (maybe you forgot to define it first?) ' % name
        except ValueError:
            return b'variable "%b" not changeable' % name
        return None

    def subrequest_start(self, request_id: int) -> None:
        """Let one run, from the loop's next turn on."""
        made = self.requests[request_id]
        assert isinstance(made, Subrequest)
        made.start()

    def is_subrequest(self, request_id: int) -> int:
        """1 for a subrequest."""
        return 1 if isinstance(self.requests[request_id], Subrequest) else 0

    def _done(self, made: Subrequest) -> None:
        body = made.answer
        self.ended(made.handle, made.status, 1 if made.truncated else 0, body, self.headers.fields_of(made))
