"""HELO, PING, PONG: how two ends of a forward connection prove that they know a shared key.

    server: ["HELO", {"nonce": ..., "auth": salt or "", "keepalive": true}]
    client: ["PING", hostname, salt, sha512(salt, hostname, nonce, key), username, sha512(auth, username, password)]
    server: ["PONG", accepted, reason, hostname, sha512(salt, hostname, nonce, key)]

Digests are SHA-512 in hexadecimal. `auth` is empty where no user is asked for. Messages are lists as
msgpack gives them; a peer may send any text as str or bin. No I/O, and no state: a connection keeps its
nonce and salts itself (Forward Protocol Specification v1, handshake phase).
"""

from __future__ import annotations

import hmac
import os
from hashlib import sha512
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace.errors import Error

if TYPE_CHECKING:
    from collections.abc import Iterable

SALT_SIZE: Final = 16
"""Bytes of a nonce or salt."""


class HandshakeError(Error):
    """The peer does not know the key, or does not speak the protocol. The message may go to the peer."""

    kind = "handshake"


def as_bytes(value: object) -> bytes:
    """A text of the wire, str or bin. Raises HandshakeError for anything else."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    raise HandshakeError("invalid message: a text is expected")


def new_salt() -> bytes:
    """Return random bytes for a nonce or a salt."""
    return os.urandom(SALT_SIZE)


def digest(parts: Iterable[bytes]) -> str:
    """SHA-512 of the parts one after the other, in hexadecimal."""
    total = sha512()
    for part in parts:
        total.update(part)
    return total.hexdigest()


def _same(given: bytes, wanted: str) -> bool:
    # Where the first difference is must not show in the time it takes.
    return hmac.compare_digest(given, wanted.encode())


class Helo(NamedTuple):
    """What a server opens with. auth: the salt for a password, b"" where none is asked for."""

    nonce: bytes
    auth: bytes
    keepalive: bool


class Ping(NamedTuple):
    """What a client proves itself with."""

    hostname: bytes
    salt: bytes
    digest: bytes
    username: bytes
    password_digest: bytes

    def knows_key(self, nonce: bytes, shared_key: str) -> bool:
        """Whether the client has the server's key. nonce: of the HELO it answers."""
        key = as_bytes(shared_key)
        return _same(self.digest, digest((self.salt, self.hostname, nonce, key)))

    def knows_password(self, auth: bytes, password: str) -> bool:
        """Whether the client has the password of `username`. auth: of the HELO it answers."""
        return _same(self.password_digest, digest((auth, self.username, as_bytes(password))))


def helo(nonce: bytes, auth: bytes = b"", *, keepalive: bool = True) -> list[Any]:
    """Return a server's HELO. auth: the salt for the user's password, b"" where no user is asked for."""
    return ["HELO", {"nonce": nonce, "auth": auth, "keepalive": keepalive}]


def check_helo(message: object) -> Helo:
    """Read a HELO; options that are missing have the values that make a later check fail. Raises HandshakeError."""
    if not (isinstance(message, list) and len(message) == 2 and message[0] in ("HELO", b"HELO")):
        raise HandshakeError("received invalid helo message")
    given = message[1] or {}
    if not isinstance(given, dict):
        raise HandshakeError("received invalid helo message")
    options = {as_bytes(name): value for name, value in given.items()}
    return Helo(
        as_bytes(options.get(b"nonce") or b""),
        as_bytes(options.get(b"auth") or b""),
        bool(options.get(b"keepalive", True)),
    )


def ping(
    greeting: Helo, salt: bytes, *, hostname: str, shared_key: str, username: str = "", password: str = ""
) -> list[Any]:
    """Return a client's PING. salt: its own, which the PONG is checked with. A user is named only when asked for."""
    key_digest = digest((salt, as_bytes(hostname), greeting.nonce, as_bytes(shared_key)))
    if not greeting.auth:
        return ["PING", hostname, salt, key_digest, "", ""]
    password_digest = digest((greeting.auth, as_bytes(username), as_bytes(password)))
    return ["PING", hostname, salt, key_digest, username, password_digest]


def check_ping(message: object) -> Ping:
    """Read a PING; its methods check it. Raises HandshakeError."""
    if not (isinstance(message, list) and len(message) == 6 and message[0] in ("PING", b"PING")):
        raise HandshakeError("invalid ping message")
    return Ping(*(as_bytes(part if part is not None else "") for part in message[1:]))


def pong(proof: Ping, nonce: bytes, *, hostname: str, shared_key: str) -> list[Any]:
    """Return the PONG that accepts a PING. nonce: of the HELO before it; hostname: the server's."""
    key_digest = digest((proof.salt, as_bytes(hostname), nonce, as_bytes(shared_key)))
    return ["PONG", True, "", hostname, key_digest]


def refusal(reason: str) -> list[Any]:
    """Return the PONG that refuses; the server closes the connection after it."""
    return ["PONG", False, reason, "", ""]


def check_pong(message: object, greeting: Helo, salt: bytes, *, hostname: str, shared_key: str) -> str:
    """Check a server's PONG; return the server's hostname.

    greeting, salt: of the PING before it. Raises HandshakeError with Fluentd's words for what is wrong; a
    server with our own hostname is ourselves, which would send our events round for ever.
    """
    if not (isinstance(message, list) and len(message) == 5 and message[0] in ("PONG", b"PONG")):
        raise HandshakeError("invalid format for PONG message")
    _pong, accepted, reason, name, proof = message
    if accepted is not True:
        raise HandshakeError("authentication failed: " + as_bytes(reason).decode("utf-8", "replace"))
    server = as_bytes(name)
    if server == as_bytes(hostname):
        raise HandshakeError("same hostname between input and output: invalid configuration")
    if not _same(as_bytes(proof), digest((salt, server, greeting.nonce, as_bytes(shared_key)))):
        raise HandshakeError("shared key mismatch")
    return server.decode("utf-8", "replace")
