"""The main and events levels: process settings, read by the supervisor from MainSettings.

https://nginx.org/en/docs/ngx_core_module.html
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.edge.families.common import (
    MANY,
    BaseFamily,
    block,
    flag,
    flag_of,
    invalid,
    number_of,
    refused,
    size_of,
    spec,
    table,
    time_of,
)
from headrace.edge.scope import Scope
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.conf.tree import Directive

NGINX_MODULES = frozenset(
    {
        "ndk_http_module.so",
        "ngx_http_echo_module.so",
        "ngx_http_headers_more_filter_module.so",
        "ngx_http_lua_module.so",
        "ngx_http_set_misc_module.so",
    }
)


@dataclass
class MainSettings:
    """Process settings of an nginx.conf.

    user: (user, group or None) to become, None: stay. pid: path of the pid file, None: the default of the command
    line. worker_shutdown_timeout: seconds for a graceful stop, None: no limit. rlimit_nofile: descriptors a worker
    may open, None: as inherited. env: (name, value or None to inherit).
    """

    daemon: bool = True
    master_process: bool = True
    user: tuple[str, str | None] | None = None
    pid: str | None = None
    worker_processes: int = 1
    worker_connections: int = 512
    worker_shutdown_timeout: float | None = None
    rlimit_nofile: int | None = None
    rlimit_core: int | None = None
    working_directory: str | None = None
    priority: int | None = None
    env: list[tuple[str, str | None]] = field(default_factory=list)


MEANINGLESS = {
    "worker_cpu_affinity": (("main",), 1, MANY),
    "thread_pool": (("main",), 2, 3),
    "timer_resolution": (("main",), 1, 1),
    "pcre_jit": (("main",), 1, 1),
    "lock_file": (("main",), 1, 1),
    "ssl_engine": (("main",), 1, 1),
    "debug_points": (("main",), 1, 1),
    "accept_mutex_delay": (("events",), 1, 1),
    "worker_aio_requests": (("events",), 1, 1),
}


class MainFamily(BaseFamily):
    """Directives of the main and events levels."""

    specs = table(
        flag("daemon", ("main",)),
        flag("master_process", ("main",)),
        spec("user", ("main",), 1, 2),
        spec("pid", ("main",), 1),
        spec("worker_processes", ("main",), 1),
        spec("worker_rlimit_nofile", ("main",), 1),
        spec("worker_rlimit_core", ("main",), 1),
        spec("worker_shutdown_timeout", ("main",), 1),
        spec("worker_priority", ("main",), 1),
        spec("working_directory", ("main",), 1),
        spec("env", ("main",), 1),
        spec("load_module", ("main",), 1),
        block("events", ("main",), 0),
        spec("worker_connections", ("events",), 1),
        flag("multi_accept", ("events",)),
        flag("accept_mutex", ("events",)),
        spec("use", ("events",), 1),
        spec("debug_connection", ("events",), 1),
        *(spec(name, contexts, least, most) for name, (contexts, least, most) in MEANINGLESS.items()),
    )

    def __init__(self) -> None:
        self.settings = MainSettings()
        self.seen_events = False

    def apply(self, scope: Scope, directive: Directive) -> Scope | None:
        """See registry.Family."""
        if directive.name in MEANINGLESS:
            if directive.name == "thread_pool":  # its name is what scripts ask for
                scope.settings.setdefault("thread_pools", []).append(directive.args[0])
            self._notice(scope, directive)
            return None
        if directive.name not in ("env", "load_module", "debug_connection", "events"):
            scope.set_once(directive, directive.args)
        return super().apply(scope, directive)

    def _notice(self, scope: Scope, directive: Directive) -> None:
        scope.build.means_nothing(directive)

    def _do_events(self, scope: Scope, directive: Directive) -> Scope:
        if self.seen_events:
            raise ConfError('"events" directive is duplicate', directive.place)
        self.seen_events = True
        return Scope("events", directive, scope, scope.build)

    def _do_daemon(self, _scope: Scope, directive: Directive) -> None:
        self.settings.daemon = flag_of(directive)

    def _do_master_process(self, _scope: Scope, directive: Directive) -> None:
        self.settings.master_process = flag_of(directive)

    def _do_user(self, _scope: Scope, directive: Directive) -> None:
        self.settings.user = (directive.args[0], directive.args[1] if len(directive.args) > 1 else None)

    def _do_pid(self, scope: Scope, directive: Directive) -> None:
        self.settings.pid = scope.build.path(directive.args[0])

    def _do_worker_processes(self, _scope: Scope, directive: Directive) -> None:
        if directive.args[0] == "auto":
            self.settings.worker_processes = len(os.sched_getaffinity(0))
            return
        text = directive.args[0]
        if not text.isascii() or not text.isdigit() or int(text) == 0:
            raise invalid(directive)
        self.settings.worker_processes = int(text)

    def _do_worker_rlimit_nofile(self, _scope: Scope, directive: Directive) -> None:
        self.settings.rlimit_nofile = number_of(directive)

    def _do_worker_rlimit_core(self, _scope: Scope, directive: Directive) -> None:
        self.settings.rlimit_core = size_of(directive)

    def _do_worker_shutdown_timeout(self, _scope: Scope, directive: Directive) -> None:
        self.settings.worker_shutdown_timeout = time_of(directive)

    def _do_worker_priority(self, _scope: Scope, directive: Directive) -> None:
        try:
            self.settings.priority = int(directive.args[0])
        except ValueError:
            raise ConfError('"worker_priority" directive invalid number', directive.place) from None

    def _do_working_directory(self, _scope: Scope, directive: Directive) -> None:
        self.settings.working_directory = directive.args[0]

    def _do_env(self, _scope: Scope, directive: Directive) -> None:
        name, equals, value = directive.args[0].partition("=")
        self.settings.env.append((name, value if equals else None))

    def _do_load_module(self, scope: Scope, directive: Directive) -> None:
        module = os.path.basename(directive.args[0])
        if module in NGINX_MODULES:
            scope.build.problems.warn(f'module "{module}" is not loaded: what it does is built in', directive.place)
            return
        scope.build.problems.warn(
            f'module "{module}" is not loaded: its directives are refused where headrace has not got them',
            directive.place,
        )

    def _do_worker_connections(self, _scope: Scope, directive: Directive) -> None:
        self.settings.worker_connections = number_of(directive)

    def _do_multi_accept(self, scope: Scope, directive: Directive) -> None:
        if flag_of(directive):
            self._notice(scope, directive)

    def _do_accept_mutex(self, scope: Scope, directive: Directive) -> None:
        if flag_of(directive):
            self._notice(scope, directive)

    def _do_use(self, scope: Scope, directive: Directive) -> None:
        if directive.args[0] not in ("epoll", "poll", "select", "kqueue", "eventport", "/dev/poll"):
            raise ConfError(f'invalid event type "{directive.args[0]}"', directive.place)
        if directive.args[0] != "epoll":
            scope.build.problems.warn(f'"use {directive.args[0]}" means nothing here: epoll is used', directive.place)

    def _do_debug_connection(self, _scope: Scope, directive: Directive) -> None:
        raise refused(directive, '"debug_connection"')
