"""secure_link, secure_link_md5, secure_link_secret: links that prove who made them, and until when they hold.

https://nginx.org/en/docs/http/ngx_http_secure_link_module.html
"""

from __future__ import annotations

import base64
import hashlib
import time
from typing import TYPE_CHECKING

from headrace.edge.families.common import HSL, BaseFamily, spec, table
from headrace.edge.values import compile_value, evaluate, to_bytes
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope


class SecureLinkFamily(BaseFamily):
    """`$secure_link` and `$secure_link_expires`."""

    specs = table(
        spec("secure_link", HSL, 1), spec("secure_link_md5", HSL, 1), spec("secure_link_secret", ("location",), 1)
    )

    @staticmethod
    def apply(scope: Scope, directive: Directive) -> Scope | None:
        """See registry.Family."""
        text = directive.args[0]
        secret = directive.name == "secure_link_secret"
        value = to_bytes(text) if secret else compile_value(text, scope.build.variables, directive.place)
        scope.set_once(directive, value)
        _define(scope)
        return None

    def compose(self, scope: Scope, location: Location) -> None:
        """Both forms in one place make no sense."""
        del location
        if scope.own("secure_link_secret") is None and {"secure_link", "secure_link_md5"} & scope.settings.keys():
            scope.settings["secure_link_secret"] = None
        if scope.own("secure_link_secret") is not None and (
            scope.get("secure_link") is not None or scope.get("secure_link_md5") is not None
        ):
            raise ConfError(
                '"secure_link_secret" cannot be mixed with "secure_link" and "secure_link_md5"', scope.place
            )


def _define(scope: Scope) -> None:
    scope.build.variables.define("secure_link", _link)
    scope.build.variables.define("secure_link_expires", lambda r: r.get_slot(b"secure link expires"))


def _link(request: Request) -> bytes | None:
    settings = request.location.settings
    secret = settings.get("secure_link_secret")
    if secret is not None:
        return _old(request, secret)
    given, made = settings.get("secure_link"), settings.get("secure_link_md5")
    if given is None or made is None:
        return None
    text, comma, until = evaluate(given, request).partition(b",")
    expires = 0
    if comma:
        if not until.isdigit() or int(until) <= 0:
            return None
        expires = int(until)
        request.set_slot(b"secure link expires", until)
    if len(text) > 24:
        return None
    try:
        digest = base64.urlsafe_b64decode(text.rstrip(b"=") + b"==")
    except ValueError:
        return None
    if len(digest) != 16 or digest != hashlib.md5(evaluate(made, request)).digest():  # noqa: S324 - the module's
        return None
    return b"0" if expires and expires < time.time() else b"1"


def _old(request: Request, secret: bytes) -> bytes | None:
    """The link behind `/prefix/md5-in-hex/`."""
    digest, slash, link = request.uri[1:].partition(b"/")[2].partition(b"/")
    if not slash or not link or len(digest) != 32:
        return None
    wanted = hashlib.md5(link + secret).hexdigest().encode()  # noqa: S324 - the module's
    return link if digest.lower() == wanted else None
