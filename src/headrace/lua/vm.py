"""One LuaJIT virtual machine with the prelude loaded.

lupa's LuaJIT is imported with global symbols (RTLD_NOW | RTLD_GLOBAL), so that C modules built for Lua 5.1 find the
Lua API. Python functions enter Lua once, as the `host` table; Python objects never do: Lua's collector sees a
pointer only, and what it points to would live until the next cycle.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import functools
import importlib
import os
import ssl  # noqa: F401 - brings libcrypto, see _share_crypto()
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PRELUDE: Final = (
    "core",
    "note",
    "trace",
    "sched",
    "plain",
    "wait",
    "thread",
    "io",
    "dial",
    "pool",
    "cosocket",
    "receive",
    "connect",
    "tlsphase",
    "ocsp",
    "ssl",
    "until",
    "udp",
    "output",
    "header",
    "text",
    "context",
    "request",
    "body",
    "reqsocket",
    "subrequest",
    "time",
    "log",
    "misc",
    "regex",
    "resub",
    "heap",
    "zone",
    "shdict",
    "shlist",
    "base",
    "modules",
    "process",
    "balancer",
    "fdstream",
    "pipe",
    "workerthread",
    "cjson",
    "emit",
    "jitv",
    "bcsave",
    "symbols",
    "boot",
)
"""The files of prelude/ for http, in the order in which they build on each other."""


@functools.cache
def _share_crypto() -> None:
    """Let scripts find the symbols of libcrypto and libssl by ffi.C, as in nginx, which is linked with them.

    The libraries that Python's ssl has loaded are opened again, for all to see; where Python brings its own inside, the
    system's are taken. Scripts that need none do not mind when there is none.
    """
    for name in ("crypto", "ssl"):
        path = ctypes.util.find_library(name)
        with contextlib.suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            path = next((line.split(maxsplit=5)[5].strip() for line in maps if f"/lib{name}." in line), path)
        with contextlib.suppress(OSError):
            if path is not None:
                ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_GLOBAL)


@functools.cache
def _luajit() -> Any:
    _share_crypto()
    flags = sys.getdlopenflags()
    sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)
    try:
        return importlib.import_module("lupa.luajit21")
    finally:
        sys.setdlopenflags(flags)


@functools.cache
def _sources(names: tuple[str, ...]) -> tuple[tuple[str, bytes], ...]:
    folder = Path(__file__).with_name("prelude")
    return tuple((name, (folder / f"{name}.lua").read_bytes()) for name in names)


def plain_vm(folder: str) -> tuple[type[Exception], Callable[..., Any]]:
    """A LuaJIT state without any of ours: the class of its errors, and a function that runs code in it.

    The function's arguments: the code, functions by name and a path, which the code finds in `...`.
    folder: where its modules are looked for first.
    """
    module = _luajit()
    lua = module.LuaRuntime(encoding=None, unpack_returned_tuples=True, register_eval=False, register_builtins=False)
    path = f"{folder}/?.lua;{folder}/?/init.lua;".encode("utf-8", "surrogateescape")
    lua.globals()[b"package"][b"path"] = path + lua.globals()[b"package"][b"path"]
    run = lua.eval(b"function(code, host, path) return assert(loadstring(code, '=script'))(host, path) end")

    def load(code: bytes, host: Mapping[str, Callable[..., Any]], path: bytes) -> Any:
        return run(code, lua.table_from({name.encode(): function for name, function in host.items()}), path)

    return module.LuaError, load


class VM:
    """A LuaJIT state. Strings cross as bytes.

    host: the Python functions of the prelude by name. settings: plain values for it (numbers, strings, booleans).
    prelude: its files. overlay: code of a test that is run after the first of them, to replace what the others take.
    """

    def __init__(
        self,
        host: Mapping[str, Callable[..., Any]],
        settings: Mapping[str, Any],
        paths: tuple[str, str],
        prelude: tuple[str, ...] = PRELUDE,
        overlay: bytes | None = None,
    ):
        module = _luajit()
        self.error: type[Exception] = module.LuaError
        self.lua: Any = module.LuaRuntime(
            encoding=None, unpack_returned_tuples=True, register_eval=False, register_builtins=False
        )
        lua = self.lua
        table = lua.table_from({name.encode(): function for name, function in host.items()})
        table[b"settings"] = self.table(settings)
        package = lua.globals()[b"package"]
        package[b"path"] = paths[0].encode("utf-8", "surrogateescape")
        package[b"cpath"] = paths[1].encode("utf-8", "surrogateescape")
        self.state: Any = lua.table()
        load = lua.eval(b"function(code, name) return assert(loadstring(code, name)) end")
        for name, source in _sources(prelude):
            load(source, b"=ngx." + name.encode())(self.state, table)
            if overlay is not None and name == "core":
                load(overlay, b"=overlay")(self.state, table)

    def table(self, values: Mapping[str, Any]) -> Any:
        """A Lua table of plain values."""
        made = self.lua.table()
        for key, value in values.items():
            made[key.encode()] = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
        return made

    def entry(self, name: str) -> Callable[..., Any]:
        """A function of the prelude that Python calls."""
        found: Callable[..., Any] = self.state[name.encode()]
        return found
