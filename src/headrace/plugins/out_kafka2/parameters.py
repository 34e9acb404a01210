"""The parameters of the kafka2 output, and everything about them that `check` can find out."""

from __future__ import annotations

import importlib.util
import re
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headrace.conf.params import (
    array,
    boolean,
    declared_params,
    enum,
    hash_,
    integer,
    raw_section,
    section,
    size,
    string,
    time,
)
from headrace.conf.values import as_string
from headrace.errors import ConfError
from headrace.pipeline.accessor import Accessor
from headrace.pipeline.plugin import Output
from headrace.plugins.blanks import drop_blanks
from headrace.plugins.inject import Inject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.conf.params import Problems

INSTALL_HINT: Final = "install it with: pip install 'headrace[kafka]'"
CODECS: Final = ("gzip", "snappy", "lz4", "zstd")
MECHANISMS: Final = {"sha256": "SCRAM-SHA-256", "sha512": "SCRAM-SHA-512"}
_BROKER: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:/]+):(\d{1,5})")
_CLIENT: Final = "it has no effect: the client tries again within ack_timeout, and then <buffer> does"


def aiokafka_installed() -> bool:
    """Whether the client is there; imports nothing."""
    return importlib.util.find_spec("aiokafka") is not None


class KafkaParameters(Output):
    """The parameters, and what is made of them before anything runs."""

    default_chunk_keys = ("topic",)
    nested_types: ClassVar[Mapping[str, str]] = {"format": "json"}

    brokers = array(default=["localhost:9092"], doc="Brokers to ask for the others: host:port")
    topic = string(default=None, placeholders=True, doc="The topic")
    topic_key = string(default="topic", doc="Chunk key with the topic, where there is no topic")
    default_topic = string(default=None, doc="The topic where the record names none; absent: the tag")
    use_default_for_unknown_topic = boolean(default=False, doc="Send to default_topic what goes to no known topic")
    message_key_key = string(default="message_key", doc="Field with the message's key")
    default_message_key = string(default=None, doc="The key where there is no such field")
    partition_key_key = string(default="partition_key", doc="Field whose hash chooses the partition")
    default_partition_key = string(default=None, doc="What is hashed where there is no such field")
    partition_key = string(default="partition", doc="Field with the partition's number")
    default_partition = integer(default=None, doc="The partition where there is no such field")
    partitioner_hash_function = enum(("crc32", "murmur2"), default="crc32", doc="How keys are hashed")
    exclude_topic_key = boolean(default=False, doc="Remove the field topic_key")
    exclude_message_key = boolean(default=False, doc="Remove the field message_key_key")
    exclude_partition_key = boolean(default=False, doc="Remove the field partition_key_key")
    exclude_partition = boolean(default=False, doc="Remove the field partition_key")
    exclude_fields = array(default=[], doc="Further fields to remove")
    record_key = string(default=None, doc="Send only this field")
    use_event_time = boolean(default=False, doc="The message's time is the event's")
    headers = hash_(default={}, value_type=as_string, doc="Headers of messages")
    headers_from_record = hash_(default={}, value_type=as_string, doc="Headers, with the fields they come from")
    max_send_limit_bytes = size(default=None, doc="Bytes of the largest message; a larger one goes to @ERROR")
    discard_kafka_delivery_failed = boolean(default=False, doc="Drop what could not be delivered")

    client_id = string(default="fluentd", doc="How we are called in the broker's log")
    required_acks = integer(default=-1, doc="Replicas that must have a message: -1 all, 1 the leader, 0 none")
    ack_timeout = time(default=None, doc="Seconds to wait for them, tries of the client included (30)")
    compression_codec = enum(CODECS, default=None, doc="Compression of batches")
    idempotent = boolean(default=False, doc="Let the broker drop what the client sends twice")
    share_producer = boolean(default=False, doc="One producer for all flush threads")
    get_kafka_client_log = boolean(default=False, doc="Log what the client logs")

    ssl_ca_cert = array(default=None, doc="PEM files of the CAs to trust")
    ssl_ca_certs_from_system = boolean(default=False, doc="Trust the system's CAs")
    ssl_client_cert = string(default=None, doc="PEM file of the client certificate, its chain after it")
    ssl_client_cert_key = string(default=None, doc="PEM file of its key")
    ssl_client_cert_key_password = string(default=None, secret=True, doc="Passphrase of the key")
    ssl_client_cert_chain = string(
        default=None, obsoleted="put the chain behind the certificate in ssl_client_cert", doc="Refused"
    )
    ssl_verify_hostname = boolean(default=True, doc="The certificate must be for the broker's name")
    username = string(default=None, doc="User for SASL PLAIN or SCRAM")
    password = string(default=None, secret=True, doc="Password for it")
    scram_mechanism = enum(tuple(MECHANISMS), default=None, doc="SCRAM in place of PLAIN")
    sasl_over_ssl = boolean(default=True, doc="SASL only over TLS")

    max_send_retries = integer(default=None, deprecated=_CLIENT, doc="No effect")
    connect_timeout = integer(default=None, deprecated=_CLIENT, doc="No effect")
    socket_timeout = integer(default=None, deprecated=_CLIENT, doc="No effect")
    resolve_seed_brokers = boolean(
        default=None, deprecated="it has no effect: all addresses of a name are tried", doc="No effect"
    )
    exception_backup = boolean(default=None, deprecated="it belongs to ignore_exceptions", doc="No effect")
    principal = string(default=None, obsoleted="Kerberos is not here: use username", doc="Refused")
    keytab = string(default=None, secret=True, obsoleted="Kerberos is not here: use username", doc="Refused")
    sasl_aws_msk_iam_access_key_id = string(
        default=None, secret=True, obsoleted="IAM is not here: use SCRAM (username, scram_mechanism)", doc="Refused"
    )
    sasl_aws_msk_iam_secret_key_id = string(
        default=None, secret=True, obsoleted="IAM is not here: use SCRAM (username, scram_mechanism)", doc="Refused"
    )
    sasl_aws_msk_iam_aws_region = string(
        default=None, obsoleted="IAM is not here: use SCRAM (username, scram_mechanism)", doc="Refused"
    )
    ignore_exceptions = array(default=None, obsoleted="it names classes of Ruby", doc="Refused")
    active_support_notification_regex = string(default=None, obsoleted="it is a part of Ruby on Rails", doc="Refused")

    format_section = raw_section(name="format", doc="The formatter; json by default")
    inject = section(Inject, name="inject", doc="Values to add to each record")

    def validate(self, problems: Problems) -> None:
        """Check everything that can be known before an event comes."""
        super().validate(problems)
        drop_blanks(self, *(item.name for item in declared_params(type(self)) if item.default is None))
        if not aiokafka_installed():
            problems.error("the kafka2 output needs aiokafka, which is not installed", self.place, hint=INSTALL_HINT)
        if self.compression_codec not in {None, "gzip"} and importlib.util.find_spec("cramjam") is None:
            problems.error(
                f"{self.compression_codec} needs cramjam, which is not installed", self.place, hint=INSTALL_HINT
            )
        if not self.brokers:
            problems.error("No brokers specified. Need one broker at least.", self.place_of("brokers"))
        for broker in self.brokers:
            match = _BROKER.fullmatch(broker)
            if match is None or not 0 < int(match[1]) < 65536:
                problems.error(f'"{broker}" in brokers is not host:port', self.place_of("brokers"))
        if self.required_acks not in {-1, 0, 1}:
            problems.error("required_acks is -1, 0 or 1", self.place_of("required_acks"))
        if self.idempotent and self.required_acks != -1:
            problems.error("idempotent needs required_acks -1", self.place_of("idempotent"))
        if self.use_default_for_unknown_topic and self.default_topic is None:
            problems.error("default_topic must be set when use_default_for_unknown_topic is true", self.place)
        self._accessors(problems)
        self._validate_security(problems)

    def _accessors(self, problems: Problems) -> None:
        def made(name: str, text: str) -> Accessor | None:
            try:
                return Accessor(text)
            except ValueError as error:
                problems.error(f'parameter "{name}": {error}', self.place_of(name))
                return None

        fields = [made("exclude_fields", text) for text in self.exclude_fields]
        self.removed = [field for field in fields if field is not None]
        self.record_field = made("record_key", self.record_key) if self.record_key is not None else None
        headers = {name: made("headers_from_record", text) for name, text in self.headers_from_record.items()}
        self.header_fields = [(name, field) for name, field in headers.items() if field is not None]

    @property
    def secure(self) -> bool:
        """Whether brokers are spoken to by TLS."""
        return bool(self.ssl_ca_cert or self.ssl_ca_certs_from_system or self.ssl_client_cert)

    def _validate_security(self, problems: Problems) -> None:
        if (self.ssl_client_cert is None) != (self.ssl_client_cert_key is None):
            problems.error("ssl_client_cert and ssl_client_cert_key are set together", self.place)
        if (self.username is None) != (self.password is None):
            problems.error("username and password are set together", self.place)
        elif self.username is not None and self.sasl_over_ssl and not self.secure:
            hint = "set ssl_ca_cert or ssl_ca_certs_from_system, or sasl_over_ssl false"
            problems.error("SASL is to be spoken over TLS, but TLS is not configured", self.place, hint=hint)
        self._ssl: ssl.SSLContext | None = None
        if not self.secure:
            return
        for name in ("ssl_client_cert", "ssl_client_cert_key", "ssl_ca_cert"):
            given = getattr(self, name) or []
            for path in [given] if isinstance(given, str) else given:
                if not Path(path).is_file():
                    problems.error(f'{name} "{path}" does not exist', self.place_of(name))
                    return
        try:
            self._ssl = self._context()
        except ConfError as error:
            problems.error(error.message, self.place)

    def _context(self) -> ssl.SSLContext:
        """The TLS settings, as aiokafka wants them. Raises ConfError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.ssl_verify_hostname
        try:
            for path in self.ssl_ca_cert or []:
                context.load_verify_locations(cafile=path)
            if self.ssl_ca_certs_from_system or not self.ssl_ca_cert:
                context.load_default_certs()
            if self.ssl_client_cert is not None:
                word = self.ssl_client_cert_key_password
                context.load_cert_chain(self.ssl_client_cert, self.ssl_client_cert_key, word or (lambda: b""))
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise ConfError(f"TLS files cannot be loaded: {error}") from error
        return context

    def producer_options(self) -> dict[str, Any]:
        """What an AIOKafkaProducer is made with."""
        sasl: dict[str, Any] = {}
        if self.username is not None:
            mechanism = MECHANISMS[self.scram_mechanism] if self.scram_mechanism else "PLAIN"
            sasl = {
                "sasl_mechanism": mechanism,
                "sasl_plain_username": self.username,
                "sasl_plain_password": self.password,
            }
        protocol = ("SASL_" if sasl else "") + ("SSL" if self.secure else "PLAINTEXT")
        acks: dict[int, Any] = {-1: "all", 0: 0, 1: 1}
        return {
            "bootstrap_servers": list(self.brokers),
            "client_id": self.client_id,
            "acks": acks[self.required_acks],
            "compression_type": self.compression_codec,
            "enable_idempotence": self.idempotent,
            "request_timeout_ms": int((self.ack_timeout or 30.0) * 1000),
            "security_protocol": protocol,
            "ssl_context": self._ssl,
            **sasl,
        }
