"""The proxy module: requests handed on to another HTTP server.

https://nginx.org/en/docs/http/ngx_http_proxy_module.html
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from headrace.edge.families.caching import cache_settings
from headrace.edge.families.common import HSL, MANY, invalid, spec, table
from headrace.edge.families.passing import PASS_CONTEXTS, PassFamily, common_specs, group_for, use_resolver, value_of
from headrace.edge.families.proxy_tls import PROXY_TLS_SPECS, apply_tls, tls_settings
from headrace.edge.regex import compile_regex
from headrace.edge.upstream.address import Url, parse_url
from headrace.edge.upstream.ask import CACHED, DEFAULTS, FieldPlan
from headrace.edge.upstream.http import HttpService
from headrace.edge.upstream.rewrites import FLAGS, OFF_FLAGS, prefix_rule, regex_rule
from headrace.edge.values import Value, compile_value, to_bytes
from headrace.errors import ConfError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope

SCHEMES: Final = {"http": 80, "https": 443}
_VERSIONS: Final = {"1.0": b"1.0", "1.1": b"1.1"}
INTERNAL: Final = {
    "$proxy_internal_body_length": "length",
    "$proxy_internal_chunked": "chunked",
}


class ProxyFamily(PassFamily):
    """proxy_pass and its kind."""

    prefix = "proxy"
    specs = table(
        spec("proxy_pass", PASS_CONTEXTS, 1),
        *common_specs("proxy"),
        *PROXY_TLS_SPECS,
        spec("proxy_http_version", HSL, 1),
        spec("proxy_method", HSL, 1),
        spec("proxy_set_header", HSL, 2),
        spec("proxy_set_body", HSL, 1),
        spec("proxy_redirect", HSL, 1, 2),
        spec("proxy_cookie_domain", HSL, 1, 2),
        spec("proxy_cookie_path", HSL, 1, 2),
        spec("proxy_cookie_flags", HSL, 1, MANY),
        spec("proxy_headers_hash_max_size", HSL, 1),
        spec("proxy_headers_hash_bucket_size", HSL, 1),
    )

    def apply(self, scope: Scope, directive: Directive) -> Scope | None:
        """See registry.Family."""
        if directive.name.startswith("proxy_ssl_"):
            apply_tls(scope, directive, "proxy")
            return None
        return super().apply(scope, directive)

    @staticmethod
    def _do_pass(scope: Scope, directive: Directive) -> None:
        if "proxy_pass" in scope.settings:
            raise ConfError('"proxy_pass" directive is duplicate', directive.place)
        text = directive.args[0]
        if "$" in text:
            scope.settings["proxy_pass"] = (directive, value_of(scope, directive))
            return
        scheme, mark, rest = text.partition("://")
        if not mark or scheme.lower() not in SCHEMES:
            raise ConfError("invalid URL prefix", directive.place)
        url = parse_url(rest, SCHEMES[scheme.lower()], "upstream", directive.place)
        if url.uri and (_location_name(scope) is None or scope.kind != "location"):
            raise ConfError(
                '"proxy_pass" cannot have URI part in location given by regular expression, or inside named location, '
                'or inside "if" statement, or inside "limit_except" block',
                directive.place,
            )
        scope.settings["proxy_pass"] = (directive, (scheme.lower(), url))

    @staticmethod
    def _do_http_version(scope: Scope, directive: Directive) -> None:
        if directive.args[0] not in _VERSIONS:
            raise ConfError(f'invalid value "{directive.args[0]}"', directive.place)
        scope.set_once(directive, _VERSIONS[directive.args[0]])

    @staticmethod
    def _do_method(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, value_of(scope, directive))

    @staticmethod
    def _do_set_header(scope: Scope, directive: Directive) -> None:
        scope.add(directive.name, (to_bytes(directive.args[0]), value_of(scope, directive, 1)))

    @staticmethod
    def _do_set_body(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, value_of(scope, directive))

    @staticmethod
    def _do_redirect(scope: Scope, directive: Directive) -> None:
        args = directive.args
        rules = scope.settings.setdefault("proxy_redirect", [])
        if len(args) == 1:
            if args[0] == "off":
                if rules:
                    raise invalid(directive)
                rules.append(None)
                return
            if args[0] != "default":
                raise ConfError(f'invalid parameter "{args[0]}"', directive.place)
            found = scope.settings.get("proxy_pass")
            if found is None:
                raise ConfError(
                    '"proxy_redirect default" should be placed after the "proxy_pass" directive', directive.place
                )
            if not isinstance(found[1], tuple):
                raise ConfError(
                    '"proxy_redirect default" cannot be used with "proxy_pass" directive with variables',
                    directive.place,
                )
            rules.append(_default_redirect(scope, *found[1]))
            return
        rules.append(_redirect_rule(scope, directive))

    @staticmethod
    def _do_cookie_domain(scope: Scope, directive: Directive) -> None:
        _cookie_rule(scope, directive)

    @staticmethod
    def _do_cookie_path(scope: Scope, directive: Directive) -> None:
        _cookie_rule(scope, directive)

    @staticmethod
    def _do_cookie_flags(scope: Scope, directive: Directive) -> None:
        name, *flags = directive.args
        rules = scope.settings.setdefault(directive.name, [])
        if not flags:
            if name != "off":
                raise ConfError(f'invalid parameter "{name}"', directive.place)
            rules.append(None)
            return
        for word in flags:
            if "$" not in word and to_bytes(word).lower() not in {**FLAGS, **OFF_FLAGS}:
                raise ConfError(f'invalid parameter "{word}"', directive.place)
        values = tuple(compile_value(word, scope.build.variables, directive.place) for word in flags)
        rules.append((_pattern(scope, directive, name), values))

    # what runs

    def compose(self, scope: Scope, location: Location) -> None:
        """Give the location its handler, where proxy_pass stands in it."""
        found = scope.own("proxy_pass")
        if found is None:
            return
        directive, target = found
        settings = self.common(scope)
        settings.cache = cache_settings(scope, "proxy", directive)
        outer = scope.enclosing("location")
        assert outer is not None
        variables = scope.build.variables
        own: list[tuple[bytes, Value]] = scope.get("proxy_set_header", [])
        named = {name.lower() for name, _ in own}
        fields = list(own)
        known = {"$proxy_host": target[1].default_host} if isinstance(target, tuple) else {}
        framing = {text: _internal(text) for text in INTERNAL}
        fields += [
            (name, framing.get(text) or known.get(text) or compile_value(text, variables, directive.place))
            for name, text in DEFAULTS
            if name.lower() not in named
        ]
        plan = FieldPlan(fields, pass_headers=settings.pass_headers, framing=tuple(framing.values()))
        fields += [
            (name, compile_value(text, variables, directive.place))
            for name, text in CACHED
            if name.lower() not in named
        ]
        rules = scope.get("proxy_redirect")
        if rules is None and isinstance(target, tuple):
            settings.redirects = (_default_redirect(scope, *target),)
        else:
            settings.redirects = tuple(rule for rule in rules or () if rule is not None)
        settings.cookie_domains = tuple(rule for rule in scope.get("proxy_cookie_domain", ()) if rule)
        settings.cookie_paths = tuple(rule for rule in scope.get("proxy_cookie_path", ()) if rule)
        settings.cookie_flags = tuple(rule for rule in scope.get("proxy_cookie_flags", ()) if rule)
        if not isinstance(target, tuple) or target[0] == "https":
            settings.tls = tls_settings(scope, "proxy")
        service = HttpService(settings, plan, scope.build.upstreams)
        service.cache_plan = FieldPlan(fields, pass_headers=settings.pass_headers)
        service.version = scope.get("proxy_http_version", b"1.0")
        service.method = scope.get("proxy_method")
        service.body = scope.get("proxy_set_body")
        service.location = _location_name(scope) or b""
        service.prompt = not any((settings.cache, settings.store is not None, settings.bind is not None, settings.tls))
        if isinstance(target, tuple):
            scheme, url = target
            service.fix(scheme, url, group_for(scope, url, directive))
        else:
            service.target = target
        use_resolver(scope, service)
        location.content = service.handle


def _location_name(scope: Scope) -> bytes | None:
    """The part of a URI that a URI of proxy_pass replaces; None in locations by regular expression and named ones."""
    outer = scope.enclosing("location")
    words = outer.directive.args if outer is not None and outer.directive is not None else ()
    if not words or words[0].startswith(("~", "@")):
        return None
    return to_bytes(words[-1].lstrip("=^~") if len(words) == 1 else words[1])


def _internal(text: str) -> Callable[[Request], bytes]:
    """Content-Length and Transfer-Encoding: what is known when the request is put together."""
    what = INTERNAL[text]

    def get(request: Request) -> bytes:
        ask = request.upstream.ask
        if what == "chunked":
            return b"chunked" if ask.chunked else b""
        return b"" if ask.length is None or ask.chunked else b"%d" % ask.length

    return get


def _default_redirect(scope: Scope, scheme: str, url: Url) -> Callable[[Request, bytes], bytes | None]:
    shown = f"unix:{url.unix}:" if url.unix is not None else url.shown
    base = f"{scheme}://{shown}".encode("utf-8", "surrogateescape")
    if url.uri:
        return prefix_rule(base + url.uri, _location_name(scope) or b"/")
    return prefix_rule(base + b"/", b"/")


def _pattern(scope: Scope, directive: Directive, text: str) -> re.Pattern[bytes] | Value:
    if not text.startswith("~"):
        return compile_value(text, scope.build.variables, directive.place)
    caseless = text.startswith("~*") or directive.name != "proxy_redirect"
    pattern = compile_regex(text[2:] if text.startswith("~*") else text[1:], directive.place, caseless=caseless)
    for group in pattern.groupindex:
        scope.build.variables.declare(group, directive.place)
    return pattern


def _redirect_rule(scope: Scope, directive: Directive) -> Callable[[Request, bytes], bytes | None]:
    pattern = _pattern(scope, directive, directive.args[0])
    replacement = value_of(scope, directive, 1)
    if isinstance(pattern, re.Pattern):
        return regex_rule(pattern, replacement)
    return prefix_rule(pattern, replacement)


def _cookie_rule(scope: Scope, directive: Directive) -> None:
    rules: list[Any] = scope.settings.setdefault(directive.name, [])
    if len(directive.args) == 1:
        if directive.args[0] != "off":
            raise ConfError(f'invalid parameter "{directive.args[0]}"', directive.place)
        rules.append(None)
        return
    rules.append((_pattern(scope, directive, directive.args[0]), value_of(scope, directive, 1)))
