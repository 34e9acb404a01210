"""TLS towards upstreams: proxy_ssl_... and uwsgi_ssl_...

https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_ssl_certificate
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.core.tls_config import TlsConfig
from headrace.edge.families.common import HSL, MANY, flag, flag_of, number_of, refused, spec
from headrace.edge.families.passing import conf_file, value_of
from headrace.edge.upstream.settings import TlsSettings
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.check import Spec
    from headrace.conf.tree import Directive
    from headrace.edge.scope import Scope

PROTOCOLS: Final = ("SSLv2", "SSLv3", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")


def tls_specs(prefix: str) -> tuple[Spec, ...]:
    """The directives under one prefix."""
    return (
        *(flag(f"{prefix}_ssl_{name}", HSL) for name in ("server_name", "verify", "session_reuse")),
        *(
            spec(f"{prefix}_ssl_{name}", HSL, 1)
            for name in ("name", "certificate", "certificate_key", "trusted_certificate", "ciphers", "password_file",
                         "verify_depth", "crl")
        ),
        spec(f"{prefix}_ssl_protocols", HSL, 1, MANY),
        spec(f"{prefix}_ssl_conf_command", HSL, 2),
    )  # fmt: skip


PROXY_TLS_SPECS: Final = tls_specs("proxy")


def apply_tls(scope: Scope, directive: Directive, prefix: str) -> None:
    """Take one of the directives; raises ConfError."""
    short = directive.name.removeprefix(f"{prefix}_ssl_")
    value: Any = directive.args[0]
    if short in ("server_name", "verify", "session_reuse"):
        value = flag_of(directive)
    elif short == "protocols":
        unknown = [word for word in directive.args if word not in PROTOCOLS]
        if unknown:
            raise ConfError(f'invalid value "{unknown[0]}"', directive.place)
        value = directive.args
    elif short == "name":
        value = value_of(scope, directive)
    elif short in ("certificate", "certificate_key"):
        if directive.args[0].startswith(("data:", "engine:")):
            raise refused(directive, f'"{directive.name}" with data or an engine')
        variable = "$" in value
        value = value_of(scope, directive) if variable else conf_file(scope, value).encode("utf-8", "surrogateescape")
    elif short in ("trusted_certificate", "password_file"):
        value = conf_file(scope, value)
    elif short == "verify_depth":
        number_of(directive)
        scope.build.problems.warn(f'"{directive.name}" means nothing here: OpenSSL\'s own bound holds', directive.place)
    elif short in ("crl", "conf_command"):
        raise refused(directive, f'"{directive.name}"')
    scope.set_once(directive, value)


def tls_settings(scope: Scope, prefix: str) -> TlsSettings:
    """What is in force on a level. Raises ConfError when it cannot work."""

    def get(short: str, default: Any = None) -> Any:
        return scope.get(f"{prefix}_ssl_{short}", default)

    protocols = get("protocols", PROTOCOLS[4:])
    known = [name for name in PROTOCOLS[2:] if name in protocols] or ["TLSv1.2"]
    verify = get("verify", False)
    if verify and get("trusted_certificate") is None:
        raise ConfError(f"no {prefix}_ssl_trusted_certificate for {prefix}_ssl_verify", scope.place)
    made = TlsSettings(verify=verify, server_name=get("server_name", False), name=get("name"))
    made.certificate, made.key = get("certificate"), get("certificate_key")
    if made.certificate is not None and made.key is None:
        raise ConfError(f'no "{prefix}_ssl_certificate_key" is defined for certificate', scope.place)
    words = get("password_file")
    if words is not None:
        made.passphrases = _passphrases(words, scope)
    made.static = TlsConfig(
        min_version=known[0],
        max_version=known[-1],
        ciphers=get("ciphers", "DEFAULT"),
        ca_path=get("trusted_certificate") if verify else None,
        verify_mode="peer" if verify else "none",
        verify_hostname=verify,
        reuse_sessions=get("session_reuse", True),
    )
    made.static.context()
    return made


def _passphrases(path: str, scope: Scope) -> tuple[str, ...]:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return tuple(line.rstrip("\r\n") for line in file)
    except OSError as error:
        raise ConfError(f'open() "{path}" failed ({error.errno}: {error.strerror})', scope.place) from None
