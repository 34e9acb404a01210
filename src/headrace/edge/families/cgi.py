"""fastcgi, scgi and uwsgi: requests handed on to applications.

https://nginx.org/en/docs/http/ngx_http_fastcgi_module.html (and ..._scgi_module, ..._uwsgi_module)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.edge.families.caching import cache_settings
from headrace.edge.families.common import HSL, MANY, flag, number_of, spec, table
from headrace.edge.families.passing import PASS_CONTEXTS, PassFamily, common_specs, group_for, use_resolver, value_of
from headrace.edge.families.proxy_tls import apply_tls, tls_settings, tls_specs
from headrace.edge.regex import compile_regex
from headrace.edge.upstream.address import parse_url
from headrace.edge.upstream.cgi import Params
from headrace.edge.upstream.fastcgi import CgiService
from headrace.edge.values import to_bytes
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope

PREFIXES: Final = ("fastcgi", "scgi", "uwsgi")


class _CgiFamily(PassFamily):
    """What the three share: ..._pass and ..._param."""

    def _do_pass(self, scope: Scope, directive: Directive) -> None:
        if directive.name in scope.settings:
            raise ConfError(f'"{directive.name}" directive is duplicate', directive.place)
        text = directive.args[0]
        scope.settings[directive.name] = (directive, value_of(scope, directive) if "$" in text else text)

    @staticmethod
    def _do_param(scope: Scope, directive: Directive) -> None:
        args = directive.args
        if len(args) > 2 and args[2] != "if_not_empty":
            raise ConfError(f'invalid parameter "{args[2]}"', directive.place)
        scope.add(directive.name, (to_bytes(args[0]), value_of(scope, directive, 1), len(args) > 2))

    def compose(self, scope: Scope, location: Location) -> None:
        """Give the location its handler, where ..._pass stands in it."""
        prefix = self.prefix
        found = scope.own(f"{prefix}_pass")
        if found is None:
            return
        directive, target = found
        settings = self.common(scope)
        settings.cache = cache_settings(scope, prefix, directive)
        params = Params(scope.get(f"{prefix}_param", ()), pass_headers=settings.pass_headers)
        service = CgiService(settings, params, scope.build.upstreams, prefix)
        self.options(scope, service)
        if prefix == "uwsgi" and (callable(target) or target.startswith("suwsgi://")):
            settings.tls = tls_settings(scope, "uwsgi")
        if not isinstance(target, str):
            service.target = target
        else:
            scheme, mark, rest = target.partition("://")
            if not mark or scheme not in service.schemes:
                scheme, rest = prefix, target
            url = parse_url(rest, 0, "upstream", directive.place)
            known = url.host.lower() in scope.build.upstreams
            if url.unix is None and not url.explicit and not known:
                raise ConfError(f'no port in upstream "{rest}"', directive.place)
            service.fix(scheme, url, group_for(scope, url, directive))
        use_resolver(scope, service)
        location.content = service.handle

    def options(self, scope: Scope, service: CgiService) -> None:
        """Set what one of the protocols has of its own."""


def _specs(prefix: str) -> tuple:  # type: ignore[type-arg]
    return (
        spec(f"{prefix}_pass", PASS_CONTEXTS, 1),
        *common_specs(prefix),
        spec(f"{prefix}_param", HSL, 2, 3),
    )


class FastcgiFamily(_CgiFamily):
    """The fastcgi module."""

    prefix = "fastcgi"
    specs = table(
        *_specs("fastcgi"),
        spec("fastcgi_index", HSL, 1),
        spec("fastcgi_split_path_info", HSL, 1),
        flag("fastcgi_keep_conn", HSL),
        spec("fastcgi_catch_stderr", HSL, 1, MANY),
    )

    @staticmethod
    def _do_index(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, to_bytes(directive.args[0]))

    @staticmethod
    def _do_keep_conn(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, directive.args[0].lower() == "on")

    @staticmethod
    def _do_catch_stderr(scope: Scope, directive: Directive) -> None:
        for word in directive.args:
            scope.add(directive.name, to_bytes(word))

    @staticmethod
    def _do_split_path_info(scope: Scope, directive: Directive) -> None:
        pattern = compile_regex(directive.args[0], directive.place)
        if pattern.groups != 2:
            raise ConfError(f'pattern "{directive.args[0]}" must have 2 captures', directive.place)
        scope.set_once(directive, pattern)

    def compose(self, scope: Scope, location: Location) -> None:
        """See registry.Family; the variables of the module too."""
        if location.kind == "server":
            scope.build.variables.define("fastcgi_script_name", _script_name)
            scope.build.variables.define("fastcgi_path_info", _path_info)
        super().compose(scope, location)

    def options(self, scope: Scope, service: CgiService) -> None:
        """keep_conn and catch_stderr."""
        service.options = {
            "keep_conn": scope.get("fastcgi_keep_conn", False),
            "catch_stderr": tuple(scope.get("fastcgi_catch_stderr", ())),
        }


def _split(request: Request) -> tuple[bytes, bytes]:
    settings = request.location.settings
    pattern = settings.get("fastcgi_split_path_info")
    match = pattern.search(request.uri) if pattern is not None else None
    if match is not None:
        return match[1] or b"", match[2] or b""
    return request.uri, b""


def _script_name(request: Request) -> bytes:
    script, _ = _split(request)
    return script + request.location.settings.get("fastcgi_index", b"") if script.endswith(b"/") else script


def _path_info(request: Request) -> bytes:
    return _split(request)[1]


class ScgiFamily(_CgiFamily):
    """The scgi module."""

    prefix = "scgi"
    specs = table(*_specs("scgi"))


class UwsgiFamily(_CgiFamily):
    """The uwsgi module."""

    prefix = "uwsgi"
    specs = table(
        *_specs("uwsgi"), *tls_specs("uwsgi"), spec("uwsgi_modifier1", HSL, 1), spec("uwsgi_modifier2", HSL, 1)
    )

    def apply(self, scope: Scope, directive: Directive) -> Scope | None:
        """See registry.Family."""
        if directive.name.startswith("uwsgi_ssl_"):
            apply_tls(scope, directive, "uwsgi")
            return None
        return super().apply(scope, directive)

    @staticmethod
    def _do_modifier1(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, _octet(directive))

    @staticmethod
    def _do_modifier2(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, _octet(directive))

    def options(self, scope: Scope, service: CgiService) -> None:
        """The modifiers."""
        service.options = {
            "modifier1": scope.get("uwsgi_modifier1", 0),
            "modifier2": scope.get("uwsgi_modifier2", 0),
        }


def _octet(directive: Directive) -> int:
    number = number_of(directive)
    if number > 255:
        raise ConfError("value must be equal to or less than 255", directive.place)
    return number
