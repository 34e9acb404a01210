"""TLS towards upstreams: proxy_ssl_..., uwsgi_ssl_... and grpc_ssl_...

https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_ssl_certificate
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.core.openssl.settings import Settings
from headrace.edge.families.common import HSL, MANY, flag, flag_of, number_of, spec
from headrace.edge.families.passing import value_of
from headrace.edge.families.tls import checked_protocols, context_of, read_passphrases
from headrace.edge.tlsserver import LateCertificate, located
from headrace.edge.upstream.tls import TlsSettings
from headrace.edge.values import to_bytes
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.check import Spec
    from headrace.conf.tree import Directive
    from headrace.edge.scope import Scope


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
    folder = scope.build.conf_dir
    value: Any = directive.args[0]
    if short == "conf_command":
        scope.add(directive.name, (directive.args[0], directive.args[1]))
        return
    if short in ("server_name", "verify", "session_reuse"):
        value = flag_of(directive)
    elif short == "protocols":
        value = checked_protocols(directive)
    elif short == "name":
        value = value_of(scope, directive)
    elif short in ("certificate", "certificate_key"):
        value = value_of(scope, directive) if "$" in value else located(value, folder)
    elif short in ("trusted_certificate", "crl"):
        value = located(value, folder)
    elif short == "password_file":
        value = read_passphrases(directive, located(value, folder))
    elif short == "verify_depth":
        value = number_of(directive)
    scope.set_once(directive, value)


def tls_settings(scope: Scope, prefix: str, alpn: tuple[str, ...] = ()) -> TlsSettings:
    """What is in force on a level. Raises ConfError when it cannot work."""

    def get(short: str, default: Any = None) -> Any:
        return scope.get(f"{prefix}_ssl_{short}", default)

    verify = get("verify", False)
    if verify and get("trusted_certificate") is None:
        raise ConfError(f"no {prefix}_ssl_trusted_certificate for {prefix}_ssl_verify", scope.place)
    cert, key = get("certificate"), get("certificate_key")
    if cert and key is None:
        raise ConfError(
            f'no "{prefix}_ssl_certificate_key" is defined for certificate "{cert if isinstance(cert, str) else ""}"',
            scope.place,
        )
    passphrases = get("password_file", ())
    fixed = isinstance(cert, str) and isinstance(key, str)
    late = None
    if cert and not fixed:
        one, two = (to_bytes(text) if isinstance(text, str) else text for text in (cert, key))
        late = LateCertificate(one, two, scope.build.conf_dir, passphrases)
    settings = Settings(
        is_server=False,
        protocols=get("protocols", ("TLSv1.2", "TLSv1.3")),
        ciphers=get("ciphers", "DEFAULT"),
        pairs=((cert, key),) if cert and fixed else (),
        passphrases=passphrases,
        trusted=get("trusted_certificate") if verify else None,
        crl=get("crl") if verify else None,
        verify="on" if verify else "off",
        verify_depth=get("verify_depth", 1),
        alpn=alpn,
        commands=tuple(get("conf_command", ())),
        folder=scope.build.conf_dir,
        reuse_sessions=get("session_reuse", True),
    )
    return TlsSettings(context_of(scope, settings), verify, get("server_name", False), get("name"), late)
