"""The `<transport>` section of sources that listen: plain TCP or TLS.

https://docs.fluentd.org/configuration/transport-section
"""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.conf.params import Configurable, any_, boolean, enum, integer, size, string
from headrace.core.tls_config import TlsConfig
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.params import Problems

VERSIONS: Final = ("TLSv1_1", "TLSv1_2", "TLSv1_3", "TLS1_1", "TLS1_2", "TLS1_3")
CIPHERS: Final = "ALL:!aNULL:!eNULL:!SSLv2"
"""Fluentd's default list (https://docs.fluentd.org/configuration/transport-section#ciphers)."""

_RESET: Final = struct.pack("ii", 1, 0)
_MAKE: Final = "make a certificate with openssl, and set cert_path and private_key_path"
_REFUSED: Final = {
    "insecure": _MAKE,
    "ca_cert_path": _MAKE,
    "ca_private_key_path": _MAKE,
    "ca_private_key_passphrase": _MAKE,
    "generate_private_key_length": _MAKE,
    "generate_cert_country": _MAKE,
    "generate_cert_state": _MAKE,
    "generate_cert_locality": _MAKE,
    "generate_cert_common_name": _MAKE,
    "generate_cert_expiration": _MAKE,
    "generate_cert_digest": _MAKE,
    "cert_verifier": "it is a Ruby program; client_cert_auth with ca_path checks client certificates",
    "ensure_fips": "configure FIPS in OpenSSL itself",
}
"""Parameters of Fluentd that are not built, and what to do instead."""


class Transport(Configurable):
    """What a listening source speaks to its clients."""

    protocol = enum(("tcp", "tls"), default="tcp", doc="Plain TCP, or TLS")
    linger_timeout = integer(
        default=None,
        doc="0: a closed connection is reset, which leaves nothing in TIME_WAIT, but may destroy an answer under "
        "way; absent or larger: it is closed in order. (Fluentd's default is 0.)",
    )
    receive_buffer_size = size(default=None, doc="SO_RCVBUF of each connection")
    version = enum(VERSIONS, default="TLSv1_2", doc="The version of TLS, unless min_version and max_version are set")
    min_version = enum(VERSIONS, default=None, doc="The oldest version of TLS")
    max_version = enum(VERSIONS, default=None, doc="The newest version of TLS")
    ciphers = string(default=CIPHERS, doc="OpenSSL's list of ciphers for TLS 1.2 and older")
    ca_path = string(default=None, doc="PEM file or folder of the CAs that client certificates are checked with")
    cert_path = string(default=None, doc="PEM file of the server's certificate, its chain after it")
    private_key_path = string(default=None, doc="PEM file of the server's private key")
    private_key_passphrase = string(default=None, secret=True, doc="Passphrase of the private key")
    client_cert_auth = boolean(default=False, doc="Only clients with a certificate that ca_path verifies")

    insecure = any_(default=None, doc="Refused: certificates are not generated")
    ca_cert_path = any_(default=None, doc="Refused: certificates are not generated")
    ca_private_key_path = any_(default=None, doc="Refused: certificates are not generated")
    ca_private_key_passphrase = any_(default=None, secret=True, doc="Refused: certificates are not generated")
    generate_private_key_length = any_(default=None, doc="Refused: certificates are not generated")
    generate_cert_country = any_(default=None, doc="Refused: certificates are not generated")
    generate_cert_state = any_(default=None, doc="Refused: certificates are not generated")
    generate_cert_locality = any_(default=None, doc="Refused: certificates are not generated")
    generate_cert_common_name = any_(default=None, doc="Refused: certificates are not generated")
    generate_cert_expiration = any_(default=None, doc="Refused: certificates are not generated")
    generate_cert_digest = any_(default=None, doc="Refused: certificates are not generated")
    cert_verifier = any_(default=None, doc="Refused: a Ruby program")
    ensure_fips = any_(default=None, doc="Refused: FIPS is OpenSSL's own setting")

    tls: TlsConfig | None = None
    """The settings for core; None without TLS. Set by a configuration that is right."""

    def validate(self, problems: Problems) -> None:
        """Refuse what is not built, and load the certificates once, so that `check` finds what is wrong."""
        for name, hint in _REFUSED.items():
            # "false" asks for nothing, as if the parameter were absent.
            if getattr(self, name) not in (None, "false", "no", False):
                problems.error(f'"{name}" is not supported', self.place_of(name), hint=hint)
        if (self.min_version is None) != (self.max_version is None):
            problems.error("min_version and max_version are set together", self.place)
        if self.protocol != "tls":
            return
        if self.cert_path is None or self.private_key_path is None:
            problems.error("<transport tls> needs cert_path and private_key_path", self.place)
            return
        if self.client_cert_auth and self.ca_path is None:
            problems.error("client_cert_auth needs ca_path", self.place_of("client_cert_auth"))
            return
        for name in ("cert_path", "private_key_path", "ca_path"):
            path = getattr(self, name)
            if path is not None and not Path(path).exists():
                problems.error(f'{name} "{path}" does not exist', self.place_of(name))
                return
        self.tls = TlsConfig(
            role="server",
            min_version=self.min_version or self.version,
            max_version=self.max_version or self.version,
            ciphers=self.ciphers,
            ca_path=self.ca_path,
            cert=self.cert_path,
            key=self.private_key_path,
            passphrase=self.private_key_passphrase,
            verify_mode="peer" if self.client_cert_auth else "none",
        )
        try:
            self.tls.context()
        except ConfError as error:
            problems.error(error.message, self.place, hint=error.hint)

    def prepare(self, sock: socket.socket) -> None:
        """Set the options of an accepted socket."""
        if self.linger_timeout == 0 and sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        if self.receive_buffer_size is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer_size)
