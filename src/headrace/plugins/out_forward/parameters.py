"""The parameters of the forward output, and everything about them that `check` can find out."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.conf.params import (
    Configurable,
    array,
    boolean,
    enum,
    integer,
    raw_section,
    section,
    size,
    string,
    time,
)
from headrace.core.names import literal
from headrace.core.tls_config import TlsConfig
from headrace.errors import ConfError
from headrace.pipeline.discovery import Service
from headrace.pipeline.plugin import Output
from headrace.plugins.sd_static import ServerSection
from headrace.plugins.transport import CIPHERS, VERSIONS

if TYPE_CHECKING:
    from headrace.conf.params import Problems

_WINDOWS = "it selects a certificate of Windows, which headrace does not run on"


class Security(Configurable):
    """How we prove to the nodes who we are."""

    self_hostname = string(doc="Our name; it must differ from that of each node")
    shared_key = string(secret=True, doc="The key shared with the nodes")


class ForwardParameters(Output):
    """The parameters, and what is made of them before anything runs."""

    server = section(ServerSection, multi=True, doc="A node to send to")
    service_discovery = raw_section(multi=True, doc="A plugin that finds nodes to send to")
    security = section(Security, doc="The handshake that nodes with <security> ask for")

    transport = enum(("tcp", "tls"), default="tcp", doc="Plain TCP, or TLS")
    send_timeout = time(default=60.0, doc="Seconds without progress after which sending has failed")
    connect_timeout = time(default=None, doc="Seconds for connecting; absent: hard_timeout")
    heartbeat_type = enum(
        ("transport", "tcp", "udp", "none"), default="transport", doc="How nodes are asked whether they live"
    )
    heartbeat_interval = time(default=1.0, doc="Seconds between heartbeats")
    recover_wait = time(default=10.0, doc="Seconds of heartbeats after which a node that was given up is used again")
    hard_timeout = time(
        default=60.0, doc="Seconds of silence after which a node is given up; also those a handshake may take"
    )
    phi_threshold = integer(default=16, doc="Suspicion at which a node is given up")
    phi_failure_detector = boolean(default=True, doc="Give nodes up by the phi accrual failure detector too")
    require_ack_response = boolean(
        default=False, doc="A chunk is delivered when its node has acknowledged it: at least once"
    )
    ack_response_timeout = time(default=190.0, doc="Seconds to wait for an acknowledgement")
    ack_window = integer(
        default=8,
        doc="Chunks that each flush thread may have sent and not yet seen acknowledged (not in Fluentd)",
    )
    read_interval_msec = integer(
        default=50, deprecated="it has no effect: nothing here waits in intervals", doc="No effect"
    )
    read_length = size(default=512, deprecated="it has no effect: replies are read as they come", doc="No effect")
    expire_dns_cache = time(
        default=None, doc="Seconds for which an address is remembered; 0: not at all; absent: always"
    )
    dns_round_robin = boolean(default=False, doc="Another address of the node's name for each connection")
    ignore_network_errors_at_startup = boolean(
        default=False, doc="Start although names of nodes cannot be resolved; such nodes count as given up"
    )
    verify_connection_at_startup = boolean(
        default=False, doc="Start only when a connection to each node, its handshakes included, can be made"
    )
    compress = enum(("text", "gzip", "zstd"), default="text", doc="Compression on the wire, and in the buffer")
    time_as_integer = boolean(default=False, doc="Send times as whole seconds, for receivers older than Fluentd 0.14")
    keepalive = boolean(default=False, doc="Keep connections for the next chunk")
    keepalive_timeout = time(default=None, doc="Seconds for which an unused connection is kept; absent: always")
    send_keepalive_packet = boolean(
        default=False, doc="Let the system probe silent connections (SO_KEEPALIVE); only with keepalive"
    )

    tls_version = enum(VERSIONS, default="TLSv1_2", doc="The version of TLS, unless a range is set")
    tls_min_version = enum(VERSIONS, default=None, doc="The oldest version of TLS (not in Fluentd)")
    tls_max_version = enum(VERSIONS, default=None, doc="The newest version of TLS (not in Fluentd)")
    tls_ciphers = string(default=CIPHERS, doc="OpenSSL's list of ciphers for TLS 1.2 and older")
    tls_insecure_mode = boolean(default=False, doc="Verify nothing")
    tls_allow_self_signed_cert = boolean(
        default=False, doc="As in Fluentd it makes no certificate trusted; name it in tls_cert_path"
    )
    tls_verify_hostname = boolean(default=True, doc="The node's certificate must be for its name")
    tls_ca_cert_path = array(default=None, doc="PEM files of more CAs to trust, beside the system's")
    tls_cert_path = array(default=None, doc="The same, by its older name; it wins")
    tls_client_cert_path = string(default=None, doc="PEM file of our certificate, its chain after it")
    tls_client_private_key_path = string(default=None, doc="PEM file of our private key")
    tls_client_private_key_passphrase = string(default=None, secret=True, doc="Passphrase of our private key")
    tls_cert_thumbprint = string(default=None, secret=True, doc="Refused: it is for Windows")
    tls_cert_logical_store_name = string(default=None, doc="Refused: it is for Windows")
    tls_cert_use_enterprise_store = boolean(default=True, doc="It is for Windows, and has no effect")

    host = string(default=None, obsoleted="use a <server> section", doc="Removed")
    port = integer(default=None, obsoleted="use a <server> section", doc="Removed")

    def validate(self, problems: Problems) -> None:
        """Check everything that can be known before an event comes."""
        super().validate(problems)
        if not self.server and not self.service_discovery:
            problems.error(
                "the forward output needs a node to send to", self.place, hint="add <server> or <service_discovery>"
            )
        self._validate_times(problems)
        if self.heartbeat_type == "tcp":
            place = self.place_of("heartbeat_type")
            problems.warn("heartbeat_type tcp is deprecated", place, hint="write transport")
        if self.dns_round_robin and self.heartbeat_type == "udp":
            problems.error(
                "dns_round_robin does not go with heartbeat_type udp",
                self.place_of("dns_round_robin"),
                hint="use heartbeat_type transport or none",
            )
        if self.keepalive_timeout is not None and not self.keepalive:
            place = self.place_of("keepalive_timeout")
            problems.warn("keepalive_timeout has no effect without keepalive true", place)
        if self.send_keepalive_packet and not self.keepalive:
            place = self.place_of("send_keepalive_packet")
            problems.error("send_keepalive_packet needs keepalive true", place, hint="add keepalive true")
        if not self.security.present:
            for server in self.server:
                if server.shared_key is not None or server.username:
                    problems.warn("shared_key and username have no effect without <security>", server.place)
        if self.compress == "zstd":
            message = "compress zstd: the nodes must know it, as headrace does and Fluentd since 1.19"
            problems.warn(message, self.place_of("compress"))
        self._validate_tls(problems)

    def _validate_times(self, problems: Problems) -> None:
        for name in ("send_timeout", "connect_timeout", "heartbeat_interval", "hard_timeout"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                problems.error(f'parameter "{name}" must be above 0', self.place_of(name))
        for name in ("recover_wait", "expire_dns_cache", "keepalive_timeout"):
            value = getattr(self, name)
            if value is not None and value < 0:
                problems.error(f'parameter "{name}" cannot be negative', self.place_of(name))
        for name in ("ack_response_timeout", "ack_window"):
            if getattr(self, name) < 1:
                problems.error(f'parameter "{name}" must be at least 1', self.place_of(name))

    def _validate_tls(self, problems: Problems) -> None:
        self._tls: TlsConfig | None = None
        for name in ("tls_cert_thumbprint", "tls_cert_logical_store_name"):
            if getattr(self, name) is not None:
                problems.error(f'"{name}" is not supported: {_WINDOWS}', self.place_of(name))
        if self.transport != "tls":
            return
        self._validate_trust(problems)
        right = True
        for name in ("tls_ca_cert_path", "tls_cert_path", "tls_client_cert_path", "tls_client_private_key_path"):
            value = getattr(self, name)
            for path in [value] if isinstance(value, str) else value or ():
                if not os.access(path, os.R_OK):
                    problems.error(f'{name}: "{path}" does not exist or cannot be read', self.place_of(name))
                    right = False
        if not right:
            return
        self._tls = TlsConfig(
            min_version=self.tls_min_version or self.tls_version,
            max_version=self.tls_max_version or self.tls_version,
            ciphers=self.tls_ciphers,
            more_ca=tuple(self.tls_cert_path or self.tls_ca_cert_path or ()),
            cert=self.tls_client_cert_path,
            key=self.tls_client_private_key_path,
            passphrase=self.tls_client_private_key_passphrase,
            verify_mode="none" if self.tls_insecure_mode else "peer",
        )
        # All that nodes need is made now: a worker may not be allowed to read what the master can.
        configs = {self._tls, *(config for server in self.server if (config := self._tls_of(server.service())))}
        if self.service_discovery:
            configs |= {self._tls_of(Service("a.name")) or self._tls, self._tls_of(Service("127.0.0.1")) or self._tls}
        try:
            for config in configs:
                config.context()
        except ConfError as error:
            problems.error(error.message, self.place, hint=error.hint)

    def _validate_trust(self, problems: Problems) -> None:
        """What is allowed, and yet not what one might think."""
        if (self.tls_min_version is None) != (self.tls_max_version is None):
            problems.error("tls_min_version and tls_max_version are set together", self.place)
        if self.tls_insecure_mode:
            problems.warn("tls_insecure_mode: nobody knows whom this speaks to", self.place_of("tls_insecure_mode"))
        elif self.tls_allow_self_signed_cert:
            problems.warn(
                "tls_allow_self_signed_cert makes no certificate trusted, as in Fluentd",
                self.place_of("tls_allow_self_signed_cert"),
                hint="name the certificate in tls_cert_path",
            )
        for server in self.server:
            if not self.tls_insecure_mode and self.tls_verify_hostname and _unverified(server.service()):
                problems.warn(
                    f"the certificate of {server.host} is not checked for its name: host is an address",
                    server.place,
                    hint="set name to the name in the certificate",
                )

    def _tls_of(self, service: Service) -> TlsConfig | None:
        """The settings for one node: its name, where it has one, is what its certificate is checked for."""
        if self._tls is None:
            return None
        name = service.host if literal(service.host, service.port) is None else service.name
        verify = self.tls_verify_hostname and name is not None
        return replace(self._tls, server_hostname=name, verify_hostname=verify)


def _unverified(service: Service) -> bool:
    return literal(service.host, service.port) is not None and service.name is None
