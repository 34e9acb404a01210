"""auth_request, auth_request_set: authorization by the status of a subrequest.

https://nginx.org/en/docs/http/ngx_http_auth_request_module.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.edge import log, phases
from headrace.edge.families.common import HSL, BaseFamily, spec, table
from headrace.edge.subrequest import run_to_end
from headrace.edge.uri import normalise
from headrace.edge.values import Value, compile_value, evaluate, to_bytes
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.phases import Handler
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope
    from headrace.edge.variables import Setter

    Assignment = tuple[Setter, Value]


class AuthRequestFamily(BaseFamily):
    """Another location decides."""

    specs = table(spec("auth_request", HSL, 1), spec("auth_request_set", HSL, 2))

    @staticmethod
    def _do_auth_request(scope: Scope, directive: Directive) -> None:
        text = directive.args[0]
        scope.set_once(directive, None if text == "off" else to_bytes(text))

    @staticmethod
    def _do_auth_request_set(scope: Scope, directive: Directive) -> None:
        name, text = directive.args
        if len(name) < 2 or not name.startswith("$"):
            raise ConfError(f'invalid variable name "{name}"', directive.place)
        variables = scope.build.variables
        variables.declare(name[1:], directive.place)
        value = compile_value(text, variables, directive.place)
        scope.add("auth_request_set", (variables.setter(name[1:].encode()), value))

    def compose(self, scope: Scope, location: Location) -> None:
        """Ask in the access phase, behind what needs no waiting."""
        uri: bytes | None = scope.get("auth_request")
        if uri is not None:
            location.add(phases.ACCESS, _checker(uri, tuple(scope.get("auth_request_set", ()))))


def _checker(target: bytes, assignments: tuple[Assignment, ...]) -> Handler:
    path, _, args = target.partition(b"?")
    uri = normalise(path) if path.startswith(b"/") else path

    async def check(request: Request) -> int | None:
        answer = await run_to_end(request, uri, args, header_only=True, shared=True)
        for setter, value in assignments:
            setter(request, evaluate(value, answer))
        status = answer.status
        if status == 401:
            for challenge in answer.headers_out.get_all(b"WWW-Authenticate"):
                request.headers_out.add(b"WWW-Authenticate", challenge)
            return status
        if status == 403:
            return status
        if 200 <= status < 300:
            return phases.OK
        request.log_error(log.ERR, b"auth request unexpected status: %d" % status)
        return 500

    return check
