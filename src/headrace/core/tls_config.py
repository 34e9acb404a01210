"""TLS settings, the contexts made of them, and what to do about a certificate that fails.

A context is expensive (it reads the certificate store), so one is kept for each `TlsConfig`; the config is
a value, and may be part of a pool's key.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from headrace import errors
from headrace.core.failure import failure
from headrace.core.tls_engine import TlsEngine

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from headrace.core.openssl.hooks import Hooks
    from headrace.core.tls_engine import Engine

_VERSIONS = {
    "SSLV3": ssl.TLSVersion.SSLv3,
    "TLSV1": ssl.TLSVersion.TLSv1,
    "TLSV1_1": ssl.TLSVersion.TLSv1_1,
    "TLSV1_2": ssl.TLSVersion.TLSv1_2,
    "TLSV1_3": ssl.TLSVersion.TLSv1_3,
}
_VERIFY = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "peer": ssl.CERT_REQUIRED}


def tls_version(name: str) -> ssl.TLSVersion:
    """A protocol version by the names in use: TLSv1_2 and TLS1_2 (Fluentd), TLSv1.2 (nginx), any case.

    errors.ConfError: no such version.
    """
    wanted = name.strip().upper().lstrip(":").replace(".", "_").replace("-", "_")
    if wanted.startswith("TLS") and not wanted.startswith("TLSV"):
        wanted = "TLSV" + wanted[3:]
    version = _VERSIONS.get(wanted.removesuffix("_0"))
    if version is None:
        raise errors.ConfError(f'unknown TLS version "{name}"', hint="one of TLSv1, TLSv1_1, TLSv1_2, TLSv1_3")
    return version


@dataclass(frozen=True)
class TlsConfig:
    """One side's TLS settings.

    role: "client" or "server". min_version, max_version: names as `tls_version` takes them.
    ciphers: OpenSSL's list for TLS 1.2 and older. ca_path: file or folder of trusted CAs (PEM); None: the
    system's. more_ca: files of CAs beside those. cert, key: PEM files; the key may be in the certificate's file.
    passphrase: of the key.
    verify_mode: "peer", "optional" (servers: a client may come without), "none".
    verify_hostname: clients: the certificate must be for the name. server_hostname: the name to verify and
    to send as SNI instead of the host that is dialled. alpn: protocols to offer, the best one first.
    reuse_sessions: clients: resume the last session with the same peer.
    """

    role: str = "client"
    min_version: str | None = "TLSv1_2"
    max_version: str | None = None
    ciphers: str | None = None
    ca_path: str | None = None
    more_ca: tuple[str, ...] = ()
    cert: str | None = None
    key: str | None = None
    passphrase: str | None = field(default=None, repr=False)
    verify_mode: str = "peer"
    verify_hostname: bool = True
    server_hostname: str | None = None
    alpn: tuple[str, ...] = ()
    reuse_sessions: bool = False

    @property
    def is_server(self) -> bool:
        """Whether this side answers handshakes."""
        return self.role == "server"

    def name_of(self, dialled: str | None) -> str | None:
        """Clients: the name to send and to verify, for a host that was dialled."""
        return None if self.is_server else self.server_hostname or dialled or None

    def engine(self, *, name: str | None, resume: Any, outer: Engine | None, hooks: Hooks | None) -> TlsEngine:
        """A session of Python's ssl; it has no hooks. errors.ConfError: the settings cannot work."""
        if hooks is not None:
            raise errors.ConfError("hooks of a handshake need OpenSSL's own library")
        context = self.context()
        return TlsEngine(context, server_side=self.is_server, server_hostname=name, resume=resume, outer=outer)

    def context(self) -> ssl.SSLContext:
        """The context of these settings; errors.ConfError, naming the file, when they cannot work."""
        # The name is the session's matter: nodes that differ in nothing else share a context.
        key = self if self.server_hostname is None else replace(self, server_hostname=None)
        context = _contexts.get(key)
        if context is None:
            context = _contexts[key] = _build(key)
        return context


_contexts: dict[TlsConfig, ssl.SSLContext] = {}


def forget_contexts() -> None:
    """Read certificates again from now on (they were renewed)."""
    _contexts.clear()


def _build(config: TlsConfig) -> ssl.SSLContext:
    if config.role not in {"client", "server"}:
        raise errors.ConfError(f'unknown TLS role "{config.role}"', hint="client or server")
    if config.verify_mode not in _VERIFY:
        raise errors.ConfError(f'unknown verify mode "{config.verify_mode}"', hint="peer, optional or none")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if config.is_server else ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    if config.min_version:
        context.minimum_version = tls_version(config.min_version)
    if config.max_version:
        context.maximum_version = tls_version(config.max_version)
    if config.ciphers:
        _attempt(f'cipher list "{config.ciphers}"', lambda: context.set_ciphers(config.ciphers or ""))
    # In this order: check_hostname cannot be on without verification.
    context.check_hostname = False
    context.verify_mode = _VERIFY[config.verify_mode]
    context.check_hostname = not config.is_server and config.verify_hostname and config.verify_mode == "peer"
    _load_trust(context, config)
    if config.cert:
        cert, key, word = config.cert, config.key, config.passphrase
        _attempt(
            f'certificate "{cert}"' + (f' with key "{key}"' if key else ""),
            lambda: context.load_cert_chain(cert, key, word if word is not None else _no_passphrase),
        )
    elif config.is_server:
        raise errors.ConfError("a TLS server needs a certificate", hint="set its certificate and its key")
    if config.alpn:
        context.set_alpn_protocols(list(config.alpn))
    return context


def _load_trust(context: ssl.SSLContext, config: TlsConfig) -> None:
    if config.ca_path:
        path = config.ca_path
        if os.path.isdir(path):
            _attempt(f'CA folder "{path}"', lambda: context.load_verify_locations(capath=path))
        else:
            _attempt(f'CA file "{path}"', lambda: context.load_verify_locations(cafile=path))
    elif not config.is_server and config.verify_mode != "none":
        context.load_default_certs()
    for path in config.more_ca:
        _attempt(f'CA file "{path}"', partial(context.load_verify_locations, cafile=path))


def _no_passphrase() -> str:
    raise errors.ConfError("the private key is encrypted", hint="set its passphrase")


def _attempt(what: str, load: Callable[[], object]) -> None:
    try:
        load()
    except errors.ConfError:
        raise
    except ssl.SSLError as error:
        raise errors.ConfError(f"cannot load {what}: {reason_of(error)}") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise errors.ConfError(f"cannot load {what}: {reason}") from error


def reason_of(error: ssl.SSLError) -> str:
    """OpenSSL's reason in plain words; errors that Python makes itself have none."""
    reason = getattr(error, "reason", None) or str(error.args[-1] if error.args else error)
    return str(reason).replace("_", " ").lower()


def handshake_error(error: Exception, peer: str) -> errors.ConnectionFailed:
    """The error of a handshake, with the way to mend it when a certificate is the reason."""
    if isinstance(error, ssl.SSLCertVerificationError):
        text = f"TLS handshake with {peer} failed: {error.verify_message} ({_advice(error)})"
        made = errors.ConnectionFailed(text, kind="certificate")
    elif isinstance(error, ssl.SSLEOFError):
        text = f"TLS handshake with {peer} failed: peer closed the connection (does it speak TLS on this port?)"
        made = errors.ConnectionFailed(text, kind="tls")
    elif isinstance(error, ssl.SSLError):
        hint = _HINTS.get(getattr(error, "reason", None) or "", "")
        made = errors.ConnectionFailed(f"TLS handshake with {peer} failed: {reason_of(error)}{hint}", kind="tls")
    elif isinstance(error, OSError):
        return failure(f"TLS handshake with {peer}", error)
    else:
        made = errors.ConnectionFailed(f"TLS handshake with {peer} failed: {error}", kind="tls")
    made.__cause__ = error
    return made


_HINTS = {
    "WRONG_VERSION_NUMBER": " (the peer does not speak TLS on this port: plain HTTP?)",
    "HTTP_REQUEST": " (the peer sent plain HTTP)",
    "UNSUPPORTED_PROTOCOL": " (no TLS version in common: see the version settings of both sides)",
    "TLSV1_ALERT_PROTOCOL_VERSION": " (no TLS version in common: see the version settings of both sides)",
    "NO_SHARED_CIPHER": " (no cipher in common: see the cipher settings of both sides)",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": " (no cipher or version in common, or a client certificate is wanted)",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": " (the peer wants a client certificate: set certificate and key)",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": " (this side wants a client certificate)",
    "TLSV1_ALERT_UNKNOWN_CA": " (the peer does not trust our certificate's CA)",
}


def _advice(error: ssl.SSLCertVerificationError) -> str:
    """X509_V_ERR codes, see openssl-verification-options(1)."""
    if error.verify_code in {18, 19, 20, 21}:
        return "if you trust it, set the CA certificate path to the certificate of its CA"
    if error.verify_code == 10:
        return "renew the peer's certificate"
    if error.verify_code == 9:
        return "check the date of this machine"
    if error.verify_code in {62, 64}:
        return "dial the name that is in the certificate, or set the server name to verify"
    return "see the CA and verification settings"
