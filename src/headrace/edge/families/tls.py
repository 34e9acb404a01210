"""ssl_*: certificates, protocols, sessions and client certificates of TLS listeners.

https://nginx.org/en/docs/http/ngx_http_ssl_module.html
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from headrace.core.openssl.context import Context
from headrace.core.openssl.settings import CIPHERS, VERSIONS, Cache, Settings
from headrace.edge.families.common import (
    MANY,
    BaseFamily,
    flag,
    flag_of,
    number_of,
    parse_size,
    size_of,
    spec,
    table,
    time_of,
)
from headrace.edge.families.tls_ocsp import (
    LEAST_ZONE,
    OCSP_NAMES,
    OCSP_SPECS,
    add_client_check,
    add_stapler,
    ocsp_value,
    stapling_of,
)
from headrace.edge.tlsserver import LateCertificate, ServerTls, located
from headrace.edge.values import compile_value
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.scope import Scope

HS: Final = ("http", "server")
_FILES: Final = ("ssl_client_certificate", "ssl_trusted_certificate", "ssl_crl", "ssl_dhparam")
_SOURCES: Final = ("ssl_certificate", "ssl_certificate_key")
_FLAGS: Final = ("ssl_prefer_server_ciphers", "ssl_session_tickets", "ssl_early_data", "ssl_reject_handshake")
_VERIFY: Final = ("off", "on", "optional", "optional_no_ca")
_RECORD: Final = (512, 16384)


class TlsFamily(BaseFamily):
    """Settings of the listeners that have `ssl`."""

    specs = table(
        *(spec(name, HS, 1) for name in (*_SOURCES, *_FILES)),
        *(flag(name, HS) for name in _FLAGS),
        spec("ssl_protocols", HS, 1, MANY),
        spec("ssl_ciphers", HS, 1),
        spec("ssl_ecdh_curve", HS, 1),
        spec("ssl_verify_client", HS, 1),
        spec("ssl_verify_depth", HS, 1),
        spec("ssl_password_file", HS, 1),
        spec("ssl_session_cache", HS, 1, 2),
        spec("ssl_session_timeout", HS, 1),
        spec("ssl_session_ticket_key", HS, 1),
        spec("ssl_buffer_size", HS, 1),
        spec("ssl_conf_command", HS, 2),
        *OCSP_SPECS,
    )

    def apply(self, scope: Scope, directive: Directive) -> Scope | None:
        """See registry.Family."""
        name, args = directive.name, directive.args
        folder = scope.build.conf_dir
        if name in _SOURCES:
            scope.add(name, args[0] if "$" in args[0] else located(args[0], folder))
        elif name == "ssl_session_ticket_key":
            scope.add(name, located(args[0], folder))
        elif name == "ssl_conf_command":
            scope.add(name, (args[0], args[1]))
        else:
            scope.set_once(directive, self._value(scope, directive))
        return None

    @staticmethod
    def _value(scope: Scope, directive: Directive) -> object:
        name, args = directive.name, directive.args
        if name in _FLAGS:
            return flag_of(directive)
        if name in _FILES:
            return located(args[0], scope.build.conf_dir)
        if name == "ssl_password_file":
            return read_passphrases(directive, located(args[0], scope.build.conf_dir))
        if name in OCSP_NAMES:
            return ocsp_value(scope, directive)
        reader = _READERS.get(name)
        return args[0] if reader is None else reader(directive)


def checked_protocols(directive: Directive) -> tuple[str, ...]:
    """The versions that a directive names."""
    unknown = [word for word in directive.args if word not in VERSIONS]
    if unknown:
        raise ConfError(f'invalid value "{unknown[0]}"', directive.place)
    return tuple(directive.args)


def read_passphrases(directive: Directive, path: str) -> tuple[bytes, ...]:
    """The lines of a password file; read once, it may be a pipe. Raises ConfError."""
    try:
        with open(path, "rb") as file:
            return tuple(line.rstrip(b"\r\n") for line in file)
    except OSError as error:
        raise ConfError(f'open() "{path}" failed ({error.errno}: {error.strerror})', directive.place) from None


def _verify_client(directive: Directive) -> str:
    if directive.args[0] not in _VERIFY:
        raise ConfError(f'invalid value "{directive.args[0]}"', directive.place)
    return directive.args[0]


def _session_cache(directive: Directive) -> Cache:
    builtin, zone, size = None, None, 0
    for word in directive.args:
        kind, _, rest = word.partition(":")
        if word in ("off", "none"):
            return Cache(word)
        if word == "builtin":
            builtin = 0
        elif kind == "builtin" and rest.isdigit() and int(rest):
            builtin = int(rest)
        elif kind == "shared" and rest:
            zone, _, text = rest.partition(":")
            found = parse_size(text)
            if not zone or not found:
                raise ConfError(f'invalid session cache "{word}"', directive.place)
            if found < LEAST_ZONE:
                raise ConfError(f'session cache "{word}" is too small', directive.place)
            size = found
        else:
            raise ConfError(f'invalid session cache "{word}"', directive.place)
    return Cache("on", builtin, zone, size)


_READERS: Final[dict[str, Callable[[Directive], object]]] = {
    "ssl_alpn": lambda directive: tuple(directive.args),
    "ssl_protocols": checked_protocols,
    "ssl_verify_client": _verify_client,
    "ssl_verify_depth": number_of,
    "ssl_session_timeout": time_of,
    "ssl_session_cache": _session_cache,
    "ssl_buffer_size": lambda directive: min(max(size_of(directive), _RECORD[0]), _RECORD[1]),
}


def server_tls(scope: Scope, kind: str = "http", alpn: tuple[str, ...] = ()) -> ServerTls:
    """What TLS is for a server; raises ConfError as nginx words it.

    kind: "http" or "stream", whose session caches are not the same.
    """
    get = scope.get
    certs, keys = get("ssl_certificate", ()), get("ssl_certificate_key", ())
    made = ServerTls(verify=get("ssl_verify_client", "off"), reject=get("ssl_reject_handshake", False))
    steps = scope.own("tls_steps", {})
    if not certs and not made.reject:
        if "ssl_client_hello" in steps or "ssl_certificate" in steps:
            raise ConfError("no ssl configured for the server", scope.place)
        return made
    if len(keys) < len(certs):
        raise ConfError(f'no "ssl_certificate_key" is defined for certificate "{certs[-1]}"', scope.place)
    if made.verify in ("on", "optional") and get("ssl_client_certificate") is None:
        raise ConfError("no ssl_client_certificate for ssl_verify_client", scope.place)
    passphrases = get("ssl_password_file", ())
    fixed, late = [], []
    for cert, key in zip(certs, keys, strict=False):
        if "$" in cert or "$" in key:
            one, two = (compile_value(text, scope.build.variables, scope.place) for text in (cert, key))
            late.append(LateCertificate(one, two, scope.build.conf_dir, passphrases))
        else:
            fixed.append((cert, key))
    made.late = tuple(late)
    cache: Cache = get("ssl_session_cache", Cache("none"))
    if cache.zone is not None:
        _check_zone(scope, f"{kind} {cache.zone}", cache)
        cache = Cache("on", cache.builtin, f"{kind} {cache.zone}", cache.size)
    settings = Settings(
        protocols=get("ssl_protocols", ("TLSv1.2", "TLSv1.3")),
        ciphers=get("ssl_ciphers", CIPHERS),
        prefer_server_ciphers=get("ssl_prefer_server_ciphers", False),
        curves=get("ssl_ecdh_curve", "auto"),
        dhparam=get("ssl_dhparam"),
        pairs=tuple(fixed),
        passphrases=passphrases,
        client_ca=get("ssl_client_certificate"),
        trusted=get("ssl_trusted_certificate"),
        crl=get("ssl_crl"),
        verify=made.verify,
        verify_depth=get("ssl_verify_depth", 1),
        alpn=alpn,
        commands=tuple(get("ssl_conf_command", ())),
        folder=scope.build.conf_dir,
        cache=cache,
        timeout=get("ssl_session_timeout", 300.0),
        tickets=get("ssl_session_tickets", True),
        ticket_keys=tuple(get("ssl_session_ticket_key", ())),
        early_data=get("ssl_early_data", False),
        stapling=stapling_of(scope) if kind == "http" else None,
        record_size=get("ssl_buffer_size", _RECORD[1]),
    )
    made.context = context_of(scope, settings)
    made.client_hello, made.certificate = steps.get("ssl_client_hello"), steps.get("ssl_certificate")
    made.session_fetch, made.session_store = steps.get("ssl_session_fetch"), steps.get("ssl_session_store")
    if kind == "http":
        add_stapler(scope, made)
        add_client_check(scope, made)
    return made


def context_of(scope: Scope, settings: Settings) -> Context:
    """The context of these settings: servers that differ in nothing share one."""
    contexts: dict[Any, Context] = scope.build.tls_contexts
    found = contexts.get(settings)
    if found is None:
        try:
            found = contexts[settings] = Context(settings)
        except ConfError as error:
            raise ConfError(error.message, scope.place, hint=error.hint) from error
    return found


def _check_zone(scope: Scope, name: str, cache: Cache) -> None:
    sizes: dict[str, int] = scope.build.tls_zones
    known = sizes.setdefault(name, cache.size)
    if known != cache.size:
        raise ConfError(
            f'the size {cache.size} of shared memory zone "{name.partition(" ")[2]}" conflicts with already declared '
            f"size {known}",
            scope.place,
        )
