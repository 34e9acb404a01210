"""The directives of the Lua room: *_by_lua*, lua_package_*, lua_socket_*, lua_ssl_*.

https://github.com/openresty/lua-nginx-module#directives - contexts and arguments are those of that page.
`lua_socket_spin_time` (how long a cosocket tries a read again before it parks; default 50us, 0 is never) and
`lua_socket_turn_time` (how long a handler that never waits keeps the loop; default 4ms) are headrace's own.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from headrace.core.openssl.settings import Settings as TlsSettings
from headrace.edge.families.common import (
    BaseFamily,
    flag_of,
    number_of,
    parse_size,
    parse_time,
    size_of,
    time_of,
)
from headrace.edge.families.tls import checked_protocols, context_of
from headrace.edge.log import DEBUG
from headrace.edge.phases import ACCESS, REWRITE, SERVER_REWRITE
from headrace.edge.tlsserver import located
from headrace.edge.upstream.steer import Steered
from headrace.edge.values import compile_value, to_bytes
from headrace.errors import ConfError
from headrace.lua.api.errlog import LEAST as CAPTURE_LEAST
from headrace.lua.balancer import balanced
from headrace.lua.handlers import LuaHandlers, drop_length, untyped
from headrace.lua.handshakes import Handshakes
from headrace.lua.runtime import Chunk, Runtime, Settings
from headrace.lua.source import Source
from headrace.lua.specs import CORE_NOTICE, HANDSHAKE, INERT, SPECS
from headrace.lua.told import told

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.edge.location import Location
    from headrace.edge.scope import Scope
    from headrace.edge.upstream.peers import Group
    from headrace.lua.runtime import Overlay

NAME_MAX: Final = 56
"""What LuaJIT keeps of a chunk's name without cutting it."""
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(us|ms|s|)")
SHARED_LEAST = 8192
"""Bytes of the smallest shared dictionary."""
_NUMBERS = (
    "lua_socket_pool_size",
    "lua_max_pending_timers",
    "lua_max_running_timers",
    "lua_regex_cache_max_entries",
    "lua_regex_match_limit",
    "lua_ssl_verify_depth",
    "lua_worker_thread_vm_pool_size",
)


class LuaFamily(BaseFamily):
    """The family; `runtime` exists once the first Lua chunk or the end of the build needs it.

    block: the level that it belongs to. steered: what its scripts of upstreams steer.
    """

    specs = SPECS
    block = "http"
    steered: type[Steered] = Steered

    def __init__(self, configure: str = "", overlay: Overlay | None = None) -> None:
        self._overlay = overlay
        self._configure = configure
        """What ngx.config.nginx_configure() returns."""
        self.runtime: Runtime | None = None
        self._shared: dict[str, int] = {}
        self._block: Scope | None = None
        self._chunks: dict[tuple[Directive, int], Chunk] = {}
        self._confs: dict[tuple[tuple[str, Any], ...], Any] = {}
        self._handlers: LuaHandlers | None = None

    def apply(self, scope: Scope, directive: Directive) -> None:
        """See edge.registry.Family."""
        name = directive.name
        phase, by_lua, _ = name.partition("_by_lua")
        if phase == "set":
            self._set(scope, directive)
        elif name == "lua_shared_dict":
            self._share(directive)
        elif name == "lua_load_resty_core":
            scope.build.problems.warn(CORE_NOTICE, directive.place)
        elif name in INERT:
            scope.build.means_nothing(directive)
        elif name == "lua_ssl_conf_command":
            scope.add(name, (directive.args[0], directive.args[1]))
        elif by_lua and not name.endswith("_no_postpone"):
            key = f"{phase}_by_lua"
            if key in scope.settings:
                raise ConfError(f'"{name}" directive is duplicate', directive.place)
            scope.settings[key] = directive
            if phase == "balancer":
                self._balance(scope, directive)
        else:
            value = self._value(directive)
            scope.set_once(directive, value)
            if name == "lua_code_cache" and not value:
                scope.build.problems.alert("lua_code_cache is off; this will hurt performance", directive.place)
        block = scope.enclosing(self.block)
        if self._block is None and block is not None:
            self._block = block
            scope.build.finishers.append(self._finish)

    def _share(self, directive: Directive) -> None:
        """A dictionary in memory that all workers share, over reloads too."""
        name = directive.args[0]
        if not name:
            raise ConfError('invalid lua shared dict name ""', directive.place)
        try:
            size = size_of(directive, 1)
        except ConfError:
            size = 0
        if size < SHARED_LEAST:
            raise ConfError(f'invalid lua shared dict size "{directive.args[1]}"', directive.place)
        if name in self._shared:
            raise ConfError(f'lua_shared_dict "{name}" is already defined as "{name}"', directive.place)
        self._shared[name] = size

    def _set(self, scope: Scope, directive: Directive) -> None:
        """A step of the level's rewrite program, in the place where it stands."""
        name, *rest = directive.args
        if len(name) < 2 or not name.startswith("$"):
            raise ConfError(f'invalid variable name "{name}"', directive.place)
        variables = scope.build.variables
        variables.declare(name[1:], directive.place)
        block = directive.text is not None
        args = [compile_value(text, variables, directive.place) for text in (rest if block else rest[1:])]
        code = directive if block else replace(directive, args=(rest[0],))
        steps: list[Any] = []

        def finish() -> None:
            self._build(scope)
            assert self._handlers is not None
            setter = variables.setter(name[1:].encode())
            steps.append(self._handlers.set(self._source(scope, None, code), setter, args))

        scope.build.finishers.append(finish)
        scope.add("rewrite_ops", lambda request: steps[0](request))  # noqa: PLW0108 - made when the build ends

    def _balance(self, scope: Scope, directive: Directive) -> None:
        """The upstream of this level asks a script for each try."""
        if "method" in scope.settings or "keepalive" in scope.settings:
            scope.build.problems.warn("load balancing method redefined", directive.place)
        upstream = scope.directive
        assert upstream is not None

        def finish() -> None:
            self._build(scope)
            assert self._handlers is not None
            group: Group = scope.build.upstreams[upstream.args[0].lower()]
            group.make = balanced(self._handlers, self._source(scope, None, directive), self.steered)

        scope.build.finishers.append(finish)

    def _value(self, directive: Directive) -> Any:
        name = directive.name
        if self.specs[name].flag:
            return flag_of(directive)
        if name in ("lua_socket_spin_time", "lua_socket_turn_time"):
            return _fine_time(directive)
        if name.endswith("_timeout"):
            return time_of(directive) * 1000
        if name == "lua_socket_buffer_size":
            return size_of(directive)
        if name == "lua_capture_error_log":
            return _capture_size(directive)
        if name in _NUMBERS:
            return number_of(directive)
        if name == "lua_ssl_protocols":
            return checked_protocols(directive)
        return directive.args[0]

    def _build(self, scope: Scope) -> Runtime:
        """The runtime, when all directives of the block's level are known."""
        if self.runtime is None:
            block = scope.enclosing(self.block)
            get = block.get if block is not None else scope.get
            settings = Settings(
                prefix=scope.build.prefix,
                package_path=get("lua_package_path"),
                package_cpath=get("lua_package_cpath"),
                spin_time=get("lua_socket_spin_time", 50e-6),
                turn_time=get("lua_socket_turn_time", 4e-3),
                max_pending_timers=get("lua_max_pending_timers", 1024),
                max_running_timers=get("lua_max_running_timers", 256),
                regex_cache_max_entries=get("lua_regex_cache_max_entries", 1024),
                regex_match_limit=get("lua_regex_match_limit", 0),
                worker_thread_vms=get("lua_worker_thread_vm_pool_size", 10),
                capture_error_log=get("lua_capture_error_log", 0),
                shared_dicts=self._shared,
                configure=self._configure,
                overlay=self._overlay,
            )
            self.runtime, self._handlers = self._run(settings)
            self.runtime.threads.pools.update(get("thread_pools", ()))
        return self.runtime

    def _run(self, settings: Settings) -> tuple[Runtime, LuaHandlers]:
        runtime = Runtime(settings)
        return runtime, LuaHandlers(runtime)

    def compose(self, scope: Scope, location: Location) -> None:
        """See edge.registry.Family."""
        rewrite, access, log, header, body = (
            scope.get(f"{phase}_by_lua") for phase in ("rewrite", "access", "log", "header_filter", "body_filter")
        )
        content = scope.get("content_by_lua") if scope.kind == "if" else scope.own("content_by_lua")
        server = scope.get("server_rewrite_by_lua") if scope.kind == "server" else None
        if scope.kind == "server":
            self._shake(scope, location)
        if not (rewrite or access or log or content or header or body or server):
            return
        self._build(scope)
        assert self._handlers is not None
        handlers = told(self._handlers, location)
        if server:
            location.add(SERVER_REWRITE, handlers.server_rewrite(self._source(scope, location, server)))
        if rewrite:
            first = scope.get("rewrite_by_lua_no_postpone", False)
            location.add(REWRITE, handlers.rewrite(self._source(scope, location, rewrite)), first=first)
        if access:
            first = scope.get("access_by_lua_no_postpone", False)
            location.add(ACCESS, handlers.access(self._source(scope, location, access)), first=first)
        if content:
            kept = bool(rewrite or access or log or header or body)
            handler = handlers.content(self._source(scope, location, content), keep=kept)
            location.content = handler if scope.get("lua_use_default_type", True) else untyped(handler)
        if header:
            location.add_header_filter("script", handlers.header_filter(self._source(scope, location, header)))
        if body:
            location.add_header_filter("script", drop_length)
            location.add_body_filter("script", handlers.body_filter(self._source(scope, location, body)))
        if log:
            location.add_log(handlers.log(self._source(scope, location, log)))

    def _shake(self, scope: Scope, location: Location | None = None) -> None:
        """What the server's handshakes run: edge.families.tls.server_tls takes it."""
        found = {phase: scope.get(f"{phase}_by_lua") for phase in HANDSHAKE}
        steps: dict[str, Any] = {}
        for phase, directive in found.items():
            if directive is not None:
                source = self._source(scope, location, directive)
                steps[phase] = Handshakes(source.runtime).made(phase, source)
        if steps:
            scope.settings["tls_steps"] = steps

    def _source(self, scope: Scope, location: Location | None, directive: Directive) -> Source:
        runtime = self._build(scope)
        conf = self._conf(scope, location)
        options: dict[str, Any] = {
            "check_abort": scope.get("lua_check_client_abort", False),
            "need_body": scope.get("lua_need_request_body", False),
            "cached": scope.get("lua_code_cache", True),
        }
        if directive.name.endswith("_file"):
            path = compile_value(directive.args[0], scope.build.variables, directive.place)
            if isinstance(path, bytes) and options["cached"]:
                chunk = runtime.load_file(scope.build.path(directive.args[0]), conf)
                if chunk.failure is None:
                    return Source(runtime, conf, fixed=chunk, **options)
            return Source(runtime, conf, path=path, prefix=scope.build.prefix, **options)
        chunk = runtime.load(*inline(directive, scope.build.conf_dir), conf)
        if chunk.failure is not None:
            text = chunk.failure.decode("utf-8", "replace")
            scope.build.problems.warn(f"failed to load inlined Lua code: {text}", directive.place)
        return Source(runtime, conf, fixed=chunk, **options)

    def _conf(self, scope: Scope, location: Location | None) -> Any:
        """The settings of a place, as one Lua table for all places with the same."""
        get = scope.get
        error_log = location.error_log if location is not None else None
        values: dict[str, Any] = {
            "connect_timeout": get("lua_socket_connect_timeout", 60_000),
            "send_timeout": get("lua_socket_send_timeout", 60_000),
            "read_timeout": get("lua_socket_read_timeout", 60_000),
            "keepalive_timeout": get("lua_socket_keepalive_timeout", 60_000),
            "pool_size": get("lua_socket_pool_size", 30),
            "buffer_size": get("lua_socket_buffer_size", 4096),
            "log_errors": get("lua_socket_log_errors", True),
            "check_client_abort": get("lua_check_client_abort", False),
            "http10_buffering": get("lua_http10_buffering", True),
            "underscores": get("lua_transform_underscores_in_response_headers", True),
            "log_level": error_log.level if error_log is not None and error_log.targets else DEBUG,
            # a filter sees every piece of output by itself, and a session has nothing that waits for more
            "each": self.block != "http" or scope.get("body_filter_by_lua") is not None,
            "tls": self._tls(scope),
            "resolver": self._resolver(scope),
            "resolver_timeout": get("resolver_timeout", 30.0) * 1000,
        }
        key = tuple(values.items())
        found = self._confs.get(key)
        if found is None:
            found = self._confs[key] = self._build(scope).conf(values)
        return found

    def _resolver(self, scope: Scope) -> int:
        """The number of the resolver of a place, -1 for the system's."""
        found = scope.get("resolver")
        if found is None:
            return -1
        known = self._build(scope).scheduler.resolvers
        if found not in known:
            known.append(found)
        return known.index(found)

    def _tls(self, scope: Scope) -> int:
        """The number of the TLS settings of a place."""
        get, folder = scope.get, scope.build.conf_dir
        trusted, crl, cert, key = (
            located(get(f"lua_ssl_{name}", ""), folder)
            for name in ("trusted_certificate", "crl", "certificate", "certificate_key")
        )
        if cert and not key:
            raise ConfError(f'no "lua_ssl_certificate_key" is defined for certificate "{cert}"', scope.place)
        settings = TlsSettings(
            is_server=False,
            protocols=get("lua_ssl_protocols", ("TLSv1.2", "TLSv1.3")),
            ciphers=get("lua_ssl_ciphers", "DEFAULT"),
            pairs=((cert, key),) if cert else (),
            trusted=trusted or None,
            crl=crl or None,
            verify_depth=get("lua_ssl_verify_depth", 1),
            commands=tuple(get("lua_ssl_conf_command", ())),
            folder=folder,
        )
        known = self._build(scope).tls_settings
        if settings not in known:
            if settings != TlsSettings(is_server=False, ciphers=settings.ciphers):
                context_of(scope, settings)  # what is wrong is told now, not when a script needs it
            known.append(settings)
        return known.index(settings)

    def _finish(self) -> None:
        """Every directive is applied: take what runs once a process."""
        scope = self._block
        assert scope is not None
        runtime = self._build(scope)
        for phase in ("init", "init_worker", "exit_worker"):
            directive: Directive | None = scope.own(f"{phase}_by_lua")
            if directive is None:
                continue
            conf = self._conf(scope, None)
            if directive.name.endswith("_file"):
                chunk = runtime.load_file(scope.build.path(directive.args[0]), conf)
            else:
                chunk = runtime.load(*inline(directive, scope.build.conf_dir), conf)
            if phase == "init":
                runtime.at_init(chunk, directive.place)
            elif phase == "init_worker":
                runtime.at_worker_init(chunk)
            else:
                runtime.at_worker_exit(chunk)


def inline(directive: Directive, conf_dir: str, *, argument: int = 0) -> tuple[bytes, bytes]:
    """The code of an inline directive and its chunk name. argument: which one is the code where there is no block."""
    text = directive.text if directive.text is not None else directive.args[argument]
    phase = directive.name.partition("_by_lua")[0]
    tag = f"{phase}_by_lua"
    file = _shown(directive.file, conf_dir, NAME_MAX - len(tag) - len(str(directive.line)))
    return to_bytes(text), to_bytes(f"={tag}({file}:{directive.line})")


def _shown(file: str, conf_dir: str, room: int) -> str:
    """A configuration file in a chunk's name: nginx.conf, a path below the folder of the configuration, or a path."""
    if file.endswith("/nginx.conf"):
        return "nginx.conf"
    shown = file.removeprefix(conf_dir.rstrip("/") + "/")
    return shown if len(shown) <= room else "..." + shown[len(shown) - room + 3 :]


def _capture_size(directive: Directive) -> int:
    """The bytes of the buffer for the error log."""
    text = directive.args[0]
    size = parse_size(text)
    if size is None or size < CAPTURE_LEAST:
        least = f", minimum size is {CAPTURE_LEAST}" if text else ""
        raise ConfError(f'invalid capture error log size "{text}"{least}', directive.place)
    return size


def _fine_time(directive: Directive) -> float:
    """A time in seconds; microseconds too."""
    match = _DURATION.fullmatch(directive.args[0])
    if match is None:
        seconds = parse_time(directive.args[0])
        if seconds is None:
            raise ConfError(f'"{directive.name}" directive invalid value', directive.place)
        return seconds
    return float(match[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0}[match[2]]
