"""The upstream module: groups of servers, and how requests are shared out among them.

https://nginx.org/en/docs/http/ngx_http_upstream_module.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.edge.families.common import BaseFamily, block, number_of, parse_size, parse_time, spec, table, time_of
from headrace.edge.scope import Scope
from headrace.edge.upstream.address import addresses, parse_url
from headrace.edge.upstream.balance import ConsistentHash, Hash, IpHash, LeastConn, Random, Ring
from headrace.edge.upstream.peers import Chooser, Group, Peer
from headrace.edge.values import compile_value, evaluate
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.request import Request

UP: Final = ("upstream",)
DEFAULT_PORT: Final = 80


class UpstreamFamily(BaseFamily):
    """`upstream` and what stands within it."""

    specs = table(
        block("upstream", ("http",), 1),
        spec("server", UP, 1, 1 << 30),
        spec("zone", UP, 1, 2),
        spec("ip_hash", UP, 0),
        spec("least_conn", UP, 0),
        spec("hash", UP, 1, 2),
        spec("random", UP, 0, 2),
        spec("keepalive", UP, 1),
        spec("keepalive_requests", UP, 1),
        spec("keepalive_timeout", UP, 1),
        spec("keepalive_time", UP, 1),
    )

    def _do_upstream(self, scope: Scope, directive: Directive) -> Scope:
        build = scope.build
        name = directive.args[0]
        if name.lower() in build.upstreams:
            raise ConfError(f'duplicate upstream "{name}"', directive.place)
        build.upstreams[name.lower()] = group = Group(name, ())
        inner = Scope("upstream", directive, scope, build)
        build.finishers.append(lambda: _finish(inner, group, directive))
        return inner

    @staticmethod
    def _do_server(scope: Scope, directive: Directive) -> None:
        scope.add("server", (directive, _server(directive)))

    @staticmethod
    def _do_zone(scope: Scope, directive: Directive) -> None:
        if len(directive.args) > 1:
            size = parse_size(directive.args[1])
            if size is None:
                raise ConfError(f'invalid zone size "{directive.args[1]}"', directive.place)
            if size < 32768:
                raise ConfError(f'zone "{directive.args[0]}" is too small', directive.place)
        scope.build.problems.warn(
            '"zone" shares nothing here: each worker counts connections and failures of its own', directive.place
        )
        scope.settings["zone"] = directive.args[0]

    def _method(self, scope: Scope, directive: Directive, make: Any) -> None:
        if "method" in scope.settings:
            scope.build.problems.warn("load balancing method redefined", directive.place)
        if "keepalive" in scope.settings:
            scope.build.problems.warn("load balancing method redefined", directive.place)
        scope.settings["method"] = make
        scope.settings["method_name"] = directive.name

    def _do_ip_hash(self, scope: Scope, directive: Directive) -> None:
        self._method(scope, directive, lambda group, request: IpHash(group, _address(request)))

    def _do_least_conn(self, scope: Scope, directive: Directive) -> None:
        self._method(scope, directive, lambda group, _request: LeastConn(group))

    def _do_hash(self, scope: Scope, directive: Directive) -> None:
        key = compile_value(directive.args[0], scope.build.variables, directive.place)
        if len(directive.args) == 1:
            self._method(scope, directive, lambda group, request: Hash(group, evaluate(key, request)))
            return
        if directive.args[1] != "consistent":
            raise ConfError(f'invalid parameter "{directive.args[1]}"', directive.place)
        rings: dict[int, Ring] = {}

        def make(group: Group, request: Request) -> Chooser:
            ring = rings.get(id(group))
            if ring is None:
                ring = rings[id(group)] = Ring(group)
            return ConsistentHash(group, ring, evaluate(key, request))

        self._method(scope, directive, make)

    def _do_random(self, scope: Scope, directive: Directive) -> None:
        args = directive.args
        if args and args[0] != "two":
            raise ConfError(f'invalid parameter "{args[0]}"', directive.place)
        if len(args) > 1 and args[1] not in ("least_conn", "least_conn=conns"):
            raise ConfError(f'invalid parameter "{args[1]}"', directive.place)
        two = bool(args)
        self._method(scope, directive, lambda group, _request: Random(group, two=two))

    @staticmethod
    def _do_keepalive(scope: Scope, directive: Directive) -> None:
        text = directive.args[0]
        if not text.isdigit() or int(text) == 0:
            raise ConfError(f'invalid value "{text}" in "keepalive" directive', directive.place)
        scope.set_once(directive, int(text))

    @staticmethod
    def _do_keepalive_requests(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, number_of(directive))

    @staticmethod
    def _do_keepalive_timeout(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, time_of(directive))

    @staticmethod
    def _do_keepalive_time(scope: Scope, directive: Directive) -> None:
        scope.set_once(directive, time_of(directive))


def _address(request: Request) -> bytes:
    return request.var(b"binary_remote_addr") or b""


def _server(directive: Directive) -> dict[str, Any]:
    """The parameters of a `server`."""
    found: dict[str, Any] = {"backup": False}
    for word in directive.args[1:]:
        name, equals, value = word.partition("=")
        if word == "backup":
            found["backup"] = True
        elif word == "down":
            found["down"] = True
        elif equals and name in ("weight", "max_fails", "max_conns"):
            if not (value.isascii() and value.isdigit()) or (name == "weight" and int(value) == 0):
                raise ConfError(f'invalid parameter "{word}"', directive.place)
            found[name] = int(value)
        elif equals and name in ("fail_timeout", "slow_start"):
            seconds = parse_time(value)
            if seconds is None:
                raise ConfError(f'invalid parameter "{word}"', directive.place)
            found[name] = seconds
        else:
            raise ConfError(f'invalid parameter "{word}"', directive.place)
    return found


def _finish(scope: Scope, group: Group, directive: Directive) -> None:
    """Make the peers, when all of the block is read."""
    servers = scope.own("server", [])
    scripted = scope.own("balancer_by_lua") is not None  # a script names the servers
    if not servers and not scripted:
        raise ConfError(f'no servers are inside upstream in "{directive.args[0]}"', directive.place)
    method = scope.own("method_name")
    primary: list[Peer] = []
    backup: list[Peer] = []
    for line, parameters in servers:
        values = dict(parameters)
        aside = values.pop("backup")
        if aside and method in ("ip_hash", "hash", "random"):
            raise ConfError('balancing method does not support parameter "backup"', line.place)
        if values.get("slow_start") and method in ("ip_hash", "hash", "random"):
            raise ConfError('balancing method does not support parameter "slow_start"', line.place)
        text = line.args[0]
        url = parse_url(text, DEFAULT_PORT, "upstream", line.place)
        if url.uri:
            raise ConfError(f'path is not allowed in upstream "{text}"', line.place)
        for name, target in addresses(url, "upstream", line.place):
            (backup if aside else primary).append(Peer(name, target, server=text, **values))
    if not primary and not scripted:
        raise ConfError(f'no servers in upstream "{directive.args[0]}"', directive.place)
    group.fill(primary, backup)
    group.make = scope.own("method")
    group.keepalive = scope.own("keepalive", 0)
    group.keepalive_requests = scope.own("keepalive_requests", 1000)
    group.keepalive_timeout = scope.own("keepalive_timeout", 60.0)
    group.keepalive_time = scope.own("keepalive_time", 3600.0)
