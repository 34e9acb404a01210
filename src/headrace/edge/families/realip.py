"""set_real_ip_from, real_ip_header, real_ip_recursive: the client's address behind trusted proxies.

What is found stands for the client's address from then on: in allow and deny, in logs, in variables.
https://nginx.org/en/docs/http/ngx_http_realip_module.html
"""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import TYPE_CHECKING, Final

from headrace.edge import phases
from headrace.edge.connection import client_port, client_text, peer_port, peer_text
from headrace.edge.families.common import HSL, BaseFamily, flag, flag_of, spec, table
from headrace.edge.families.geo import parse_address
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.phases import Handler
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope

    Network = ipaddress.IPv4Network | ipaddress.IPv6Network
    Trusted = tuple[Network | str, ...]

_WITH_PORT: Final = re.compile(rb"(?:\[([^\]]*)\]|([^:]*))(?::([0-9]{1,5}))?")
_SEPARATORS: Final = re.compile(rb"[ ,\t]+")


class RealipFamily(BaseFamily):
    """Runs as soon as the request is read where a server says so, else before the access phase of a location."""

    specs = table(
        spec("set_real_ip_from", HSL, 1),
        spec("real_ip_header", HSL, 1),
        flag("real_ip_recursive", HSL),
    )

    @staticmethod
    def _do_set_real_ip_from(scope: Scope, directive: Directive) -> None:
        _define(scope)
        text = directive.args[0]
        if text == "unix:":
            scope.add("set_real_ip_from", text)
            return
        try:
            network = ipaddress.ip_network(text, strict=False)
        except ValueError:
            for network in _resolved(text, directive):
                scope.add("set_real_ip_from", network)
            return
        if "/" in text and network.network_address != ipaddress.ip_interface(text).ip:
            scope.build.problems.warn(f"low address bits of {text} are meaningless", directive.place)
        scope.add("set_real_ip_from", network)

    @staticmethod
    def _do_real_ip_header(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, directive.args[0].lower().encode())

    @staticmethod
    def _do_real_ip_recursive(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, flag_of(directive))

    def compose(self, scope: Scope, location: Location) -> None:
        """Add the handler where anybody is trusted."""
        _define(scope)
        trusted = scope.get("set_real_ip_from")
        if trusted:
            phase = phases.POST_READ if location.kind == "server" else phases.PREACCESS
            header, recursive = scope.get("real_ip_header", b"x-real-ip"), scope.get("real_ip_recursive", False)
            handler = _finder(tuple(trusted), header, recursive=recursive)
            location.add(phase, handler)
            if location.kind == "server":
                location.add(phases.PREACCESS, handler)


def _define(scope: Scope) -> None:
    scope.build.variables.define("realip_remote_addr", lambda r: peer_text(r.exchange.conn))
    scope.build.variables.define("realip_remote_port", lambda r: peer_port(r.exchange.conn))


def _resolved(name: str, directive: Directive) -> list[Network]:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM) if "/" not in name else []
    except OSError:
        found = []
    if not found:
        raise ConfError(f'host not found in set_real_ip_from "{name}"', directive.place)
    return [ipaddress.ip_network(entry[4][0]) for entry in found]


def _finder(trusted: Trusted, header: bytes, *, recursive: bool) -> Handler:
    def find(request: Request) -> None:
        if request.client is not None or request.parent is not None:
            return
        if header == b"proxy_protocol":
            value = request.var(b"proxy_protocol_addr") or b""
            port = request.var(b"proxy_protocol_port")
        else:
            values = [text for name, text in request.headers_in() if name.lower() == header]
            value, port = b", ".join(values), None
        if not value:
            return
        found, at = _behind(request, trusted, value, recursive=recursive)
        if found is not None:
            request.client = str(found).encode(), port or at

    return find


def _behind(
    request: Request, trusted: Trusted, value: bytes, *, recursive: bool
) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address | None, bytes | None]:
    """The last address of the field that comes from a trusted one, with its port."""
    current = parse_address(client_text(request))
    if current is None and "unix:" not in trusted:
        return None, client_port(request)
    if current is not None and not _is_trusted(current, trusted):
        return None, None
    found, at = None, None
    for text in reversed(_SEPARATORS.split(value.strip(b" ,\t"))):
        match = _WITH_PORT.fullmatch(text)
        address = parse_address(text)
        port = None
        if address is None and match is not None:
            address, port = parse_address(match.group(1) or match.group(2) or b""), match.group(3)
        if address is None:
            break
        found, at = address, port
        if not recursive or not _is_trusted(address, trusted):
            break
    return found, at


def _is_trusted(address: ipaddress.IPv4Address | ipaddress.IPv6Address, trusted: Trusted) -> bool:
    return any(not isinstance(net, str) and net.version == address.version and address in net for net in trusted)
