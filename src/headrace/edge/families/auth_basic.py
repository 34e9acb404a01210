"""auth_basic, auth_basic_user_file: HTTP Basic authentication (RFC 7617).

https://nginx.org/en/docs/http/ngx_http_auth_basic_module.html
"""

from __future__ import annotations

import base64
import errno
import os
from typing import TYPE_CHECKING

from headrace.edge import log, phases
from headrace.edge.families.common import HSL, BaseFamily, spec, table
from headrace.edge.passwords import PasswordFile, matches
from headrace.edge.values import Value, compile_value, evaluate

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.phases import Handler
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope

AT = (*HSL, "limit_except")
MAX_FILES = 256
"""Password files that are kept, where the name has variables."""


class AuthBasicFamily(BaseFamily):
    """Users by a password file."""

    specs = table(spec("auth_basic", AT, 1), spec("auth_basic_user_file", AT, 1))

    def __init__(self) -> None:
        self._files: dict[bytes, PasswordFile] = {}

    def apply(self, scope: Scope, directive: Directive) -> Scope | None:
        """See registry.Family."""
        text = directive.args[0]
        if directive.name == "auth_basic_user_file" and not text.startswith(("/", "$")):
            text = f"{scope.build.conf_dir}/{text}"
        scope.set_once(directive, compile_value(text, scope.build.variables, directive.place))
        return None

    def compose(self, scope: Scope, location: Location) -> None:
        """Check in the access phase, behind allow and deny."""
        realm, path = scope.get("auth_basic"), scope.get("auth_basic_user_file")
        if realm is not None and realm != b"off" and path is not None:
            location.add(phases.ACCESS, self._checker(realm, path))

    def _checker(self, realm: Value, path: Value) -> Handler:
        def check(request: Request) -> int | None:
            shown = evaluate(realm, request)
            if shown == b"off":
                return None
            found = credentials(request)
            if found is None:
                request.log_error(log.INFO, b"no user/password was provided for basic authentication")
                return _ask(request, shown)
            user, password = found
            name = evaluate(path, request)
            try:
                hashed = self._file(name).get(user)
            except OSError as error:
                text = f"failed ({error.errno}: {os.strerror(error.errno or 0)})".encode()
                missing = error.errno == errno.ENOENT
                request.log_error(log.ERR if missing else log.CRIT, b'open() "%b" %b' % (name, text))
                return 403 if missing else 500
            if hashed is None:
                request.log_error(log.ERR, b'user "%b" was not found in "%b"' % (user, name))
                return _ask(request, shown)
            try:
                if matches(password, hashed):
                    return phases.OK
            except ValueError as error:
                request.log_error(log.CRIT, b'crypt() of the password of "%b" failed: %b' % (user, str(error).encode()))
                return 500
            request.log_error(log.ERR, b'user "%b": password mismatch' % user)
            return _ask(request, shown)

        return check

    def _file(self, path: bytes) -> PasswordFile:
        found = self._files.get(path)
        if found is None:
            if len(self._files) >= MAX_FILES:
                self._files.clear()
            found = self._files[path] = PasswordFile(path)
        return found


def credentials(request: Request) -> tuple[bytes, bytes] | None:
    """User and password of the Authorization field; None without any."""
    header = request.header_in(b"authorization")
    if header is None or header[:6].lower() != b"basic ":
        return None
    text = header[6:].strip(b" ")
    try:
        user, colon, password = base64.b64decode(text + b"=" * (-len(text) % 4), validate=True).partition(b":")
    except ValueError:
        return None
    return (user, password) if colon and user else None


def _ask(request: Request, realm: bytes) -> int:
    request.headers_out.set(b"WWW-Authenticate", b'Basic realm="%b"' % realm)
    return 401
