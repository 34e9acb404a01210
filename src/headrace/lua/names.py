"""The names below `ngx` and `ndk` that ngx_lua 0.10.26 documents, and which of them the prelude defines.

https://github.com/openresty/lua-nginx-module#nginx-api-for-lua. Fields that users name themselves (a variable, a
header, a dictionary) stand for the table they are in.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from headrace.lua.runtime import Runtime, Settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.lua.vm import VM

SHARED: Final = {
    "ngx.re": "match find gmatch sub gsub",
    "ngx.socket": "tcp udp stream connect",
    "ngx.thread": "spawn wait kill",
    "ngx.timer": "at every running_count pending_count",
    "ngx.config": "subsystem debug prefix nginx_version nginx_configure ngx_lua_version",
    "ngx.worker": "exiting pid pids count id",
}
"""The names of tables that http and stream have alike."""

_NAMES: Final = {
    "ngx": """
        arg var ctx status header headers_sent null is_subrequest shared
        print say log flush exit eof exec redirect send_headers sleep on_abort get_phase run_worker_thread
        escape_uri unescape_uri encode_args decode_args encode_base64 decode_base64 decode_base64mime quote_sql_str
        crc32_short crc32_long hmac_sha1 md5 md5_bin sha1_bin
        today time now update_time localtime utctime cookie_time http_time parse_http_time
        OK ERROR AGAIN DONE DECLINED STDERR EMERG ALERT CRIT ERR WARN NOTICE INFO DEBUG
        HTTP_GET HTTP_HEAD HTTP_PUT HTTP_POST HTTP_DELETE HTTP_OPTIONS HTTP_MKCOL HTTP_COPY HTTP_MOVE HTTP_PROPFIND
        HTTP_PROPPATCH HTTP_LOCK HTTP_UNLOCK HTTP_PATCH HTTP_TRACE
        HTTP_CONTINUE HTTP_SWITCHING_PROTOCOLS HTTP_OK HTTP_CREATED HTTP_ACCEPTED HTTP_NO_CONTENT
        HTTP_PARTIAL_CONTENT HTTP_SPECIAL_RESPONSE HTTP_MOVED_PERMANENTLY HTTP_MOVED_TEMPORARILY HTTP_SEE_OTHER
        HTTP_NOT_MODIFIED HTTP_TEMPORARY_REDIRECT HTTP_PERMANENT_REDIRECT HTTP_BAD_REQUEST HTTP_UNAUTHORIZED
        HTTP_PAYMENT_REQUIRED HTTP_FORBIDDEN HTTP_NOT_FOUND HTTP_NOT_ALLOWED HTTP_NOT_ACCEPTABLE
        HTTP_REQUEST_TIMEOUT HTTP_CONFLICT HTTP_GONE HTTP_UPGRADE_REQUIRED HTTP_TOO_MANY_REQUESTS HTTP_CLOSE
        HTTP_ILLEGAL HTTP_INTERNAL_SERVER_ERROR HTTP_METHOD_NOT_IMPLEMENTED HTTP_NOT_IMPLEMENTED HTTP_BAD_GATEWAY
        HTTP_SERVICE_UNAVAILABLE HTTP_GATEWAY_TIMEOUT HTTP_VERSION_NOT_SUPPORTED HTTP_INSUFFICIENT_STORAGE
    """,
    "ngx.location": "capture capture_multi",
    "ngx.resp": "get_headers",
    "ngx.req": """
        is_internal start_time http_version raw_header get_method set_method set_uri set_uri_args get_uri_args
        get_post_args get_headers set_header clear_header read_body discard_body get_body_data get_body_file
        set_body_data set_body_file init_body append_body finish_body socket
    """,
    **SHARED,
    "ndk": "set_var",
}

DOCUMENTED: Final = frozenset(_NAMES) - {"ngx"} | {
    f"{table}.{name}" for table, names in _NAMES.items() for name in names.split()
}
"""Every documented name, dotted; tables too."""

_METHODS: Final = """
    bind connect setclientcert sslhandshake send receive receiveany receiveuntil close settimeout settimeouts
    setoption setkeepalive getreusedtimes
"""
SOCKET_METHODS: Final = frozenset(_METHODS.split())
"""Methods of the object that ngx.socket.tcp makes."""

MODULES: Final = frozenset({"ngx.semaphore", "ngx.balancer", "ngx.ssl", "ngx.ocsp"})
"""Modules that the same page lists; they are required by name."""

_ASK: Final = b"""function(first, ...)
    local function index(value, key) return value[key] end
    local value = _G[first]
    for i = 1, select("#", ...) do
        local ok, found = pcall(index, value, (select(i, ...)))
        if not ok then
            return value ~= nil -- a field of a request, and there is none
        end
        value = found
    end
    return value ~= nil
end"""


@functools.cache
def reference() -> VM:
    """A VM that runs nothing: what the prelude defines is asked there, and code is compiled there."""
    return Runtime(Settings()).vm


def values_of(vm: VM, names: Iterable[str]) -> frozenset[str]:
    """Those of dotted names that have a value in a VM."""
    ask = vm.lua.eval(_ASK)
    return frozenset(name for name in names if ask(*(part.encode() for part in name.split("."))))


@functools.cache
def unbuilt() -> frozenset[str]:
    """The documented names that are nil at run time."""
    return DOCUMENTED - values_of(reference(), DOCUMENTED)


@functools.cache
def unbuilt_methods() -> frozenset[str]:
    """The documented methods of TCP cosockets that are nil at run time."""
    methods = reference().state[b"socket_methods"]
    return frozenset(name for name in SOCKET_METHODS if methods[name.encode()] is None)


@functools.cache
def unbuilt_modules() -> frozenset[str]:
    """The modules of MODULES that cannot be required."""
    require = reference().lua.eval(b"function(name) return (pcall(require, name)) end")
    return frozenset(name for name in MODULES if not require(name.encode()))
