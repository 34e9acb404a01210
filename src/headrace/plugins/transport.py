"""The `<transport>` section of sources that listen: plain TCP or TLS.

https://docs.fluentd.org/configuration/transport-section
"""

from __future__ import annotations

import _hashlib
import socket
import struct
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.conf.params import Configurable, boolean, enum, integer, size, string, time
from headrace.core.tls_config import TlsConfig
from headrace.errors import ConfError
from headrace.plugins.certificates import INSTALL_HINT, Authority, Wanted, cryptography_installed, make

if TYPE_CHECKING:
    from headrace.conf.params import Problems

VERSIONS: Final = ("TLSv1_1", "TLSv1_2", "TLSv1_3", "TLS1_1", "TLS1_2", "TLS1_3")
CIPHERS: Final = "ALL:!aNULL:!eNULL:!SSLv2"
"""Fluentd's default list (https://docs.fluentd.org/configuration/transport-section#ciphers)."""

_RESET: Final = struct.pack("ii", 1, 0)
_YEAR: Final = 365 * 86400.0
_KEY_BITS: Final = (1024, 16384)


def check_socket_buffer(instance: Configurable, value: int | None, problems: Problems) -> None:
    """Report a `receive_buffer_size` that the system would not take."""
    if value is not None and not 0 < value < 1 << 31:
        message = f'parameter "receive_buffer_size" must be from 1 to {(1 << 31) - 1} bytes'
        problems.error(message, instance.place_of("receive_buffer_size"))


def _number(version: str | None) -> str:
    return (version or "").replace("v", "")


class TransportParameters(Configurable):
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
    ensure_fips = boolean(default=False, doc="Do not start unless OpenSSL runs in FIPS mode")
    ca_path = string(default=None, doc="PEM file or folder of the CAs that client certificates are checked with")
    client_cert_auth = boolean(default=False, doc="Only clients with a certificate that ca_path verifies")
    cert_path = string(default=None, doc="PEM file of the server's certificate, its chain after it")
    private_key_path = string(default=None, doc="PEM file of the server's private key")
    private_key_passphrase = string(default=None, secret=True, doc="Passphrase of the private key")
    ca_cert_path = string(default=None, doc="Without cert_path: PEM file of the CA that signs a certificate at start")
    ca_private_key_path = string(default=None, doc="PEM file of that CA's private key")
    ca_private_key_passphrase = string(default=None, secret=True, doc="Passphrase of that CA's private key")
    insecure = boolean(default=False, doc="Without both: a certificate at start that is signed by itself")
    generate_private_key_length = integer(default=2048, doc="Bits of the RSA key of a certificate made at start")
    generate_cert_country = string(default="US", doc="Country of a certificate made at start")
    generate_cert_state = string(default="CA", doc="State of a certificate made at start")
    generate_cert_locality = string(default="Mountain View", doc="Locality of a certificate made at start")
    generate_cert_common_name = string(default=None, doc="Host name in a certificate made at start; this machine's")
    generate_cert_expiration = time(default=10 * _YEAR, doc="Seconds for which a certificate made at start is valid")
    generate_cert_digest = enum(
        ("sha1", "sha256", "sha384", "sha512"), default="sha256", doc="Digest that signs a certificate made at start"
    )
    cert_verifier = string(default=None, doc="Refused: it is a Ruby program")


class Transport(TransportParameters):
    """The section, and what it does to sockets.

    tls: the settings for core, None without TLS; set by `open`.
    """

    tls: TlsConfig | None = None
    _made: tempfile.TemporaryDirectory[str] | None = None

    def validate(self, problems: Problems) -> None:
        """Load the certificates once, so that `check` finds what is wrong."""
        if (self.min_version is None) != (self.max_version is None):
            problems.error("min_version and max_version are set together", self.place)
        elif _number(self.min_version) > _number(self.max_version):
            problems.error("min_version is newer than max_version", self.place_of("min_version"))
        if self.cert_verifier is not None:
            hint = "client_cert_auth with ca_path checks client certificates"
            problems.error('"cert_verifier" is not supported', self.place_of("cert_verifier"), hint=hint)
        check_socket_buffer(self, self.receive_buffer_size, problems)
        if self.protocol != "tls":
            return
        if self.ensure_fips and not _hashlib.get_fips_mode():
            problems.error("ensure_fips: OpenSSL does not run in FIPS mode", self.place_of("ensure_fips"))
        if self.client_cert_auth and self.ca_path is None:
            problems.error("client_cert_auth needs ca_path", self.place_of("client_cert_auth"))
        try:
            if self.cert_path is not None:
                self._validate_files(problems)
            elif self.ca_cert_path is not None or self.insecure:
                self._validate_making(problems)
            else:
                problems.error("<transport tls> needs one of cert_path, ca_cert_path and insecure", self.place)
        except ConfError as error:
            problems.error(error.message, self.place, hint=error.hint)

    def _validate_files(self, problems: Problems) -> None:
        if self.private_key_path is None:
            problems.error("cert_path needs private_key_path", self.place_of("cert_path"))
            return
        for name in ("cert_path", "private_key_path", "ca_path"):
            path = getattr(self, name)
            if path is not None and not Path(path).exists():
                problems.error(f'{name} "{path}" does not exist', self.place_of(name))
                return
        self._config(self.cert_path, self.private_key_path).context()

    def _validate_making(self, problems: Problems) -> None:
        if not cryptography_installed():
            problems.error(
                "making a certificate needs cryptography, which is not installed", self.place, hint=INSTALL_HINT
            )
            return
        if self.ca_cert_path is not None:
            if self.ca_private_key_path is None:
                problems.error("ca_cert_path needs ca_private_key_path", self.place_of("ca_cert_path"))
                return
            self._authority(self.ca_cert_path, self.ca_private_key_path).load()
        if not _KEY_BITS[0] <= self.generate_private_key_length <= _KEY_BITS[1]:
            message = f'parameter "generate_private_key_length" must be from {_KEY_BITS[0]} to {_KEY_BITS[1]} bits'
            problems.error(message, self.place_of("generate_private_key_length"))
        if not 0 < self.generate_cert_expiration <= 1000 * _YEAR:
            message = 'parameter "generate_cert_expiration" must be above 0, and at most 1000 years'
            problems.error(message, self.place_of("generate_cert_expiration"))
        if _number(self.min_version) <= _number(self.max_version):
            # As a client, for a server's context needs the certificate that is not there yet.
            replace(self._config(None, None), role="client").context()
        if self.ca_cert_path is None:
            hint = "clients cannot know whom they speak to; set cert_path and private_key_path"
            problems.warn("TLS with a certificate that is signed by itself", self.place_of("insecure"), hint=hint)

    def _authority(self, cert_path: str, key_path: str) -> Authority:
        return Authority(cert_path, key_path, self.ca_private_key_passphrase)

    def _config(self, cert: str | None, key: str | None) -> TlsConfig:
        return TlsConfig(
            role="server",
            min_version=self.min_version or self.version,
            max_version=self.max_version or self.version,
            ciphers=self.ciphers,
            ca_path=self.ca_path,
            cert=cert,
            key=key,
            passphrase=self.private_key_passphrase,
            verify_mode="peer" if self.client_cert_auth else "none",
        )

    def open(self) -> None:
        """Set `tls`; a certificate that is to be made is made now. Raises ConfError."""
        if self.protocol != "tls":
            return
        if self.cert_path is not None:
            self.tls = self._config(self.cert_path, self.private_key_path)
            return
        wanted = Wanted(
            self.generate_private_key_length,
            self.generate_cert_country,
            self.generate_cert_state,
            self.generate_cert_locality,
            self.generate_cert_common_name or socket.gethostname(),
            self.generate_cert_expiration,
            self.generate_cert_digest,
        )
        authority = None
        if self.ca_cert_path is not None and self.ca_private_key_path is not None:
            authority = self._authority(self.ca_cert_path, self.ca_private_key_path)
        cert, key = make(wanted, authority)
        # OpenSSL reads files; the folder is for this user only, and goes when the source does.
        self._made = tempfile.TemporaryDirectory(prefix="headrace-tls-")
        paths = Path(self._made.name, "cert.pem"), Path(self._made.name, "key.pem")
        for path, text in zip(paths, (cert, key), strict=True):
            path.write_bytes(text)
        self.tls = self._config(str(paths[0]), str(paths[1]))
        self.tls.context()

    def close(self) -> None:
        """Remove what `open` made."""
        made, self._made = self._made, None
        if made is not None:
            made.cleanup()

    def prepare(self, sock: socket.socket) -> None:
        """Set the options of an accepted socket."""
        if self.linger_timeout == 0 and sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        if self.receive_buffer_size is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer_size)
