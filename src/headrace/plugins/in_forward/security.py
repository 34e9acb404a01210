"""The <security> section: who may send, and how they prove it (https://docs.fluentd.org/input/forward)."""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING

from headrace.conf.params import Configurable, array, boolean, section, string
from headrace.plugins.forward.handshake import HandshakeError
from headrace.plugins.network.clients import AllowList

if TYPE_CHECKING:
    from headrace.conf.params import Problems
    from headrace.plugins.forward.handshake import Ping


class User(Configurable):
    """A user and a password."""

    username = string(doc="Name of the user")
    password = string(secret=True, doc="Password of the user")


class Client(Configurable):
    """A client, or a network of them."""

    host = string(default=None, doc="Address or name of a client")
    network = string(default=None, doc="Network of clients, such as 10.0.0.0/8")
    shared_key = string(default=None, secret=True, doc="The key of this client; default: that of the section")
    users = array(default=[], doc="The users that may send from here; default: all")

    def validate(self, problems: Problems) -> None:
        """Read the network; a name is looked up now, as in Fluentd."""
        self.allows = AllowList(())
        if self.host is not None and self.network is not None:
            problems.error("both of 'host' and 'network' are specified for client", self.place)
        elif self.host is not None:
            try:
                found = socket.getaddrinfo(self.host, None, type=socket.SOCK_STREAM)
            except (OSError, UnicodeError):
                problems.error(f"host '{self.host}' cannot be resolved", self.place_of("host"))
                return
            names = [str(entry[4][0]).partition("%")[0] for entry in found]
            self.allows = AllowList(ipaddress.ip_network(name) for name in names)
        elif self.network is not None:
            try:
                self.allows = AllowList([ipaddress.ip_network(self.network, strict=False)])
            except ValueError:
                text = f"network '{self.network}' address format is invalid"
                problems.error(text, self.place_of("network"), hint="such as 10.0.0.0/8")
        else:
            problems.error("Either of 'host' and 'network' must be specified for client", self.place)


class Security(Configurable):
    """Who may send."""

    self_hostname = string(doc="Our name in the handshake; it must differ from the client's")
    shared_key = string(secret=True, doc="The key that clients must know")
    user_auth = boolean(default=False, doc="Clients must name a user and know the password")
    allow_anonymous_source = boolean(default=True, doc="Clients without a <client> section may send")
    users = section(User, name="user", multi=True, doc="A user")
    clients = section(Client, name="client", multi=True, doc="A client with a key or users of its own")

    def validate(self, problems: Problems) -> None:
        """Check what belongs together."""
        if self.user_auth and not self.users:
            problems.error("<user> sections required if user_auth enabled", self.place_of("user_auth"))
        if not self.allow_anonymous_source and not self.clients:
            problems.error(
                "<client> sections required if allow_anonymous_source disabled",
                self.place_of("allow_anonymous_source"),
            )
        known = {user.username for user in self.users}
        for client in self.clients:
            for name in client.users:
                if name not in known:
                    problems.error(f"user '{name}' of a <client> has no <user> section", client.place_of("users"))

    def admit(self, proof: Ping, address: str, nonce: bytes, auth: bytes) -> str:
        """Return the shared key of a client that may send. Raises HandshakeError with what the client is told."""
        client = next((one for one in self.clients if address in one.allows), None)
        if client is None and not self.allow_anonymous_source:
            raise HandshakeError(f"anonymous source host '{address}' denied")
        shared_key = self.shared_key
        if client is not None and client.shared_key is not None:
            shared_key = client.shared_key
        if not proof.knows_key(nonce, shared_key):
            raise HandshakeError("shared_key mismatch")
        if self.user_auth and not self._is_user(proof, client, auth):
            raise HandshakeError("username/password mismatch")
        return shared_key

    def _is_user(self, proof: Ping, client: Client | None, auth: bytes) -> bool:
        name = proof.username.decode("utf-8", "surrogateescape")
        if client is not None and client.users and name not in client.users:
            return False
        # Every password of that name is tried: how long it takes does not depend on which one fits.
        fits = [proof.knows_password(auth, user.password) for user in self.users if user.username == name]
        return any(fits)
