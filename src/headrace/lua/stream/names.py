"""The names below `ngx` that stream-lua-nginx-module 0.0.16 documents, and which of them a VM of stream has.

https://github.com/openresty/stream-lua-nginx-module#nginx-api-for-lua
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from headrace.lua.names import SHARED, values_of
from headrace.lua.runtime import Runtime, Settings
from headrace.lua.stream.side import StreamSide

if TYPE_CHECKING:
    from headrace.lua.vm import VM

_NAMES: Final = {
    "ngx": """
        var ctx status null shared print say log flush exit eof sleep on_abort get_phase
        escape_uri unescape_uri encode_args decode_args encode_base64 decode_base64 quote_sql_str
        crc32_short crc32_long hmac_sha1 md5 md5_bin sha1_bin today time now update_time localtime utctime
        OK ERROR AGAIN DONE DECLINED STDERR EMERG ALERT CRIT ERR WARN NOTICE INFO DEBUG
    """,
    "ngx.req": "socket start_time",
    **SHARED,
}

DOCUMENTED: Final = frozenset(_NAMES) - {"ngx"} | {
    f"{table}.{name}" for table, names in _NAMES.items() for name in names.split()
}
"""Every documented name, dotted; tables too."""

_METHODS: Final = """
    receive receiveany receiveuntil send settimeout settimeouts peek shutdown getfd serversslhandshake
"""
CLIENT_METHODS: Final = frozenset(_METHODS.split())
"""Methods of the object that ngx.req.socket gives for a connection."""


@functools.cache
def reference() -> VM:
    """A VM that runs nothing: what the prelude defines is asked there."""
    return Runtime(Settings(), {}, StreamSide).vm


@functools.cache
def unbuilt() -> frozenset[str]:
    """The documented names that are nil at run time."""
    return DOCUMENTED - values_of(reference(), DOCUMENTED)


@functools.cache
def unbuilt_methods() -> frozenset[str]:
    """The methods of CLIENT_METHODS that are nil at run time."""
    methods = reference().state[b"client_methods"]
    return frozenset(name for name in CLIENT_METHODS if methods[name.encode()] is None)
