"""ssl_*: certificates and protocols of TLS listeners.

https://nginx.org/en/docs/http/ngx_http_ssl_module.html
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headrace.core.tls_config import TlsConfig
from headrace.edge.families.common import MANY, BaseFamily, flag, flag_of, parse_time, spec, table
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.scope import Scope

HS: Final = ("http", "server")
PROTOCOLS: Final = ("SSLv2", "SSLv3", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
_FILES: Final = (
    "ssl_certificate",
    "ssl_certificate_key",
    "ssl_client_certificate",
    "ssl_trusted_certificate",
    "ssl_password_file",
)
_VERIFY: Final = {"off": "none", "on": "peer", "optional": "optional"}


class TlsFamily(BaseFamily):
    """Settings of the listeners that have `ssl`."""

    specs = table(
        spec("ssl_certificate", HS, 1),
        spec("ssl_certificate_key", HS, 1),
        spec("ssl_protocols", HS, 1, MANY),
        spec("ssl_ciphers", HS, 1),
        flag("ssl_prefer_server_ciphers", HS),
        spec("ssl_client_certificate", HS, 1),
        spec("ssl_trusted_certificate", HS, 1),
        spec("ssl_verify_client", HS, 1),
        spec("ssl_password_file", HS, 1),
        spec("ssl_session_cache", HS, 1, 2),
        spec("ssl_session_timeout", HS, 1),
        flag("ssl_session_tickets", HS),
    )

    def apply(self, scope: Scope, directive: Directive) -> Scope | None:
        """See registry.Family."""
        name, args = directive.name, directive.args
        value: object = args[0]
        if name in _FILES:
            if "$" in args[0] or args[0].startswith(("data:", "engine:")):
                raise ConfError(f'"{name}" with a variable or engine is not supported by headrace', directive.place)
            path = args[0] if args[0].startswith("/") else f"{scope.build.conf_dir}/{args[0]}"
            value = _passphrases(directive, path) if name == "ssl_password_file" else path
        elif name == "ssl_protocols":
            unknown = [word for word in args if word not in PROTOCOLS]
            if unknown:
                raise ConfError(f'invalid value "{unknown[0]}"', directive.place)
            value = args
        elif name == "ssl_verify_client":
            if args[0] not in _VERIFY:
                raise ConfError(f'invalid value "{args[0]}"', directive.place)
            value = _VERIFY[args[0]]
        elif name in ("ssl_prefer_server_ciphers", "ssl_session_tickets"):
            value = flag_of(directive)
            if name == "ssl_prefer_server_ciphers" and not value:
                scope.build.problems.warn(f'"{name} off" means nothing here: our order counts', directive.place)
        elif name == "ssl_session_timeout":
            value = parse_time(args[0])
        if name in ("ssl_session_cache", "ssl_session_timeout", "ssl_session_tickets"):
            scope.build.means_nothing(directive)
        scope.set_once(directive, value)
        return None


def tls_config(scope: Scope) -> TlsConfig:
    """What a TLS listener of a server uses; raises ConfError as nginx words it."""
    get = scope.get
    cert, key = get("ssl_certificate"), get("ssl_certificate_key")
    if key is None:
        raise ConfError(f'no "ssl_certificate_key" is defined for certificate "{cert}"', scope.place)
    protocols = get("ssl_protocols", ("TLSv1.2", "TLSv1.3"))
    known = [name for name in PROTOCOLS[1:] if name in protocols] or ["TLSv1.2"]
    config = TlsConfig(
        role="server",
        min_version=known[0],
        max_version=known[-1],
        ciphers=get("ssl_ciphers", "HIGH:!aNULL:!MD5"),
        ca_path=get("ssl_client_certificate"),
        more_ca=() if get("ssl_trusted_certificate") is None else (get("ssl_trusted_certificate"),),
        cert=cert,
        key=key,
        verify_mode=get("ssl_verify_client", "none"),
        alpn=("h2", "http/1.1") if scope.get("http2", False) else ("http/1.1",),
    )
    return _with_passphrase(config, get("ssl_password_file", ()))


def _with_passphrase(config: TlsConfig, words: tuple[str, ...]) -> TlsConfig:
    """The settings with the first passphrase that opens the key, the last one when none does."""
    for word in words:
        config = replace(config, passphrase=word)
        try:
            config.context()
        except ConfError:
            continue
        break
    return config


def _passphrases(directive: Directive, path: str) -> tuple[str, ...]:
    """The lines of a password file; read once, it may be a pipe."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return tuple(line.rstrip("\r\n") for line in file)
    except OSError as error:
        raise ConfError(f'open() "{path}" failed ({error.errno}: {error.strerror})', directive.place) from None
