"""ssl_stapling... and ssl_ocsp...

https://nginx.org/en/docs/http/ngx_http_ssl_module.html#ssl_ocsp
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.core.openssl.sessions import SharedSessions
from headrace.core.openssl.settings import Stapling
from headrace.edge.families.common import flag, flag_of, parse_size, spec
from headrace.edge.ocsp import ClientCheck, Responder, Stapler
from headrace.edge.tlsserver import located
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.scope import Scope
    from headrace.edge.tlsserver import ServerTls

HS: Final = ("http", "server")
LEAST_ZONE: Final = 8 * 4096
OCSP_SPECS: Final = (
    flag("ssl_stapling", HS),
    flag("ssl_stapling_verify", HS),
    spec("ssl_stapling_file", HS, 1),
    spec("ssl_stapling_responder", HS, 1),
    spec("ssl_ocsp", HS, 1),
    spec("ssl_ocsp_responder", HS, 1),
    spec("ssl_ocsp_cache", HS, 1),
)
OCSP_NAMES: Final = tuple(one.name for one in OCSP_SPECS)


def ocsp_value(scope: Scope, directive: Directive) -> object:
    """What one of the directives says. Raises ConfError."""
    name, text = directive.name, directive.args[0]
    if name in ("ssl_stapling", "ssl_stapling_verify"):
        return flag_of(directive)
    if name == "ssl_stapling_file":
        return located(text, scope.build.conf_dir)
    if name == "ssl_ocsp":
        if text not in ("off", "on", "leaf"):
            raise ConfError(f'invalid value "{text}"', directive.place)
        return text
    if name == "ssl_ocsp_responder":
        if Responder.of(text, None, 0.0) is None:
            raise ConfError(f'invalid URL prefix in OCSP responder "{text}" in "ssl_ocsp_responder"', directive.place)
        return text
    if name == "ssl_ocsp_cache":
        return _cache(directive)
    return text


def _cache(directive: Directive) -> tuple[str, int] | None:
    text = directive.args[0]
    if text == "off":
        return None
    kind, _, rest = text.partition(":")
    name, _, number = rest.partition(":")
    size = parse_size(number)
    if kind != "shared" or not name or not size:
        raise ConfError(f'invalid OCSP cache "{text}"', directive.place)
    if size < LEAST_ZONE:
        raise ConfError(f'OCSP cache "{text}" is too small', directive.place)
    return name, size


def stapling_of(scope: Scope) -> Stapling | None:
    """What is stapled, None when nothing is."""
    get = scope.get
    if not get("ssl_stapling", False):
        return None
    return Stapling(get("ssl_stapling_file"), get("ssl_stapling_responder"), get("ssl_stapling_verify", False))


def add_stapler(scope: Scope, made: ServerTls) -> None:
    """Give the context its stapler, unless it has one (another server has the same settings)."""
    context = made.context
    if context is None or context.settings.stapling is None or context.stapler is not None:
        return
    wanted = context.settings.stapling
    stapler = Stapler(context, verify=wanted.verify)
    context.stapler = stapler
    if wanted.file is not None:
        stapler.add_file(wanted.file)
        return
    for problem in stapler.add_asked(wanted.responder, *_resolver(scope)):
        scope.build.problems.warn(f'"ssl_stapling" ignored, {problem}', scope.place)


def add_client_check(scope: Scope, made: ServerTls) -> None:
    """Let clients' certificates be asked about. Raises ConfError."""
    mode = scope.get("ssl_ocsp", "off")
    if mode == "off" or made.verify == "off":
        return
    if made.verify == "optional_no_ca":
        raise ConfError('"ssl_ocsp" is incompatible with "ssl_verify_client optional_no_ca"', scope.place)
    url, cache = scope.get("ssl_ocsp_responder"), scope.get("ssl_ocsp_cache")
    resolver = _resolver(scope)
    made.ocsp = ClientCheck(
        whole=mode == "on",
        responder=None if url is None else Responder.of(url, *resolver),
        resolver=resolver[0],
        resolver_timeout=resolver[1],
        cache=None if cache is None else SharedSessions(f"ocsp {cache[0]}", cache[1]),
    )


def _resolver(scope: Scope) -> tuple[Any, float]:
    return scope.get("resolver"), scope.get("resolver_timeout", 30.0)
