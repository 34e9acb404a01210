"""The names of the Lua room's directives: where each may stand, and how many arguments it takes.

https://github.com/openresty/lua-nginx-module#directives
"""

from __future__ import annotations

from typing import Final

from headrace.conf.check import Spec
from headrace.edge.families.common import MANY, flag, spec, table

HTTP: Final = ("http",)
HSLI: Final = ("http", "server", "location", "if in location")
SLI: Final = ("server", "location", "if")
CONTENT_AT: Final = ("location", "if in location")

PHASES: Final = {
    "init": HTTP,
    "init_worker": HTTP,
    "exit_worker": HTTP,
    "server_rewrite": ("http", "server"),
    "rewrite": HSLI,
    "access": HSLI,
    "content": CONTENT_AT,
    "header_filter": HSLI,
    "body_filter": HSLI,
    "log": HSLI,
    "balancer": ("upstream",),
    "ssl_client_hello": ("http", "server"),
    "ssl_certificate": ("http", "server"),
    "ssl_session_fetch": HTTP,
    "ssl_session_store": HTTP,
}
HANDSHAKE: Final = ("ssl_client_hello", "ssl_certificate", "ssl_session_fetch", "ssl_session_store")
"""The phases of a TLS handshake."""
_BLOCK_OR_FILE: Final = frozenset(("exit_worker", "server_rewrite", "balancer", *HANDSHAKE))
CORE_NOTICE: Final = "lua_load_resty_core is deprecated (the lua-resty-core library is required since ngx_lua v0.10.16)"
INERT: Final = {
    "lua_load_resty_core": (HTTP, 1, 1),
    "lua_malloc_trim": (HTTP, 1, 1),
    "lua_sa_restart": (HTTP, 1, 1),
    "lua_socket_send_lowat": (HSLI, 1, 1),
    "lua_thread_cache_max_entries": (HTTP, 1, 1),
}
"""Switches of what is not so here: resty.core is built in, memory is given back by size, system calls go on after a
signal, threads are kept while they are few."""


def _by_lua(phase: str, contexts: tuple[str, ...]) -> list[Spec]:
    made = [
        Spec(f"{phase}_by_lua_block", frozenset(contexts), 0, 0, "lua"),
        spec(f"{phase}_by_lua_file", contexts, 1),
    ]
    if phase not in _BLOCK_OR_FILE:
        made.append(spec(f"{phase}_by_lua", contexts, 1))
    return made


SPECS: Final = table(
    *(item for phase, contexts in PHASES.items() for item in _by_lua(phase, contexts)),
    Spec("set_by_lua_block", frozenset(SLI), 1, 1, "lua"),
    spec("set_by_lua", SLI, 2, MANY),
    spec("set_by_lua_file", SLI, 2, MANY),
    spec("lua_package_path", HTTP, 1),
    spec("lua_package_cpath", HTTP, 1),
    flag("lua_code_cache", HSLI),
    spec("lua_capture_error_log", HTTP, 1),
    flag("lua_http10_buffering", HSLI),
    spec("lua_max_pending_timers", HTTP, 1),
    spec("lua_max_running_timers", HTTP, 1),
    spec("lua_regex_cache_max_entries", HTTP, 1),
    spec("lua_regex_match_limit", HTTP, 1),
    spec("lua_worker_thread_vm_pool_size", HTTP, 1),
    spec("lua_shared_dict", HTTP, 2),
    flag("lua_need_request_body", HSLI),
    flag("lua_check_client_abort", HSLI),
    flag("lua_transform_underscores_in_response_headers", HSLI),
    flag("lua_socket_log_errors", HSLI),
    flag("lua_use_default_type", HSLI),
    flag("rewrite_by_lua_no_postpone", HTTP),
    flag("access_by_lua_no_postpone", HTTP),
    *(spec(name, contexts, least, most) for name, (contexts, least, most) in INERT.items()),
    spec("lua_socket_connect_timeout", HSLI, 1),
    spec("lua_socket_send_timeout", HSLI, 1),
    spec("lua_socket_read_timeout", HSLI, 1),
    spec("lua_socket_keepalive_timeout", HSLI, 1),
    spec("lua_socket_buffer_size", HSLI, 1),
    spec("lua_socket_pool_size", HSLI, 1),
    spec("lua_socket_spin_time", HTTP, 1),
    spec("lua_socket_turn_time", HTTP, 1),
    spec("lua_ssl_trusted_certificate", HSLI, 1),
    spec("lua_ssl_protocols", HSLI, 1, 5),
    spec("lua_ssl_ciphers", HSLI, 1),
    spec("lua_ssl_certificate", HSLI, 1),
    spec("lua_ssl_certificate_key", HSLI, 1),
    spec("lua_ssl_crl", HSLI, 1),
    spec("lua_ssl_verify_depth", HSLI, 1),
    spec("lua_ssl_conf_command", HSLI, 2),
)
