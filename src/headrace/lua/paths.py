"""Where Lua modules are found.

A module is looked for in lua_package_path (or LUA_PATH_5_1, LUA_PATH when there is no directive), then where users and
distributions put it: the prefix's lualib, the folder of the Python environment (share/lua/5.1, lib/lua/5.1),
luarocks' /usr/local, Debian's /usr. `;;` in a path stands for these defaults.
"""

from __future__ import annotations

import os
import sys
import sysconfig


def _arch_folders() -> list[str]:
    triplet = sysconfig.get_config_var("MULTIARCH") or ""
    return [f"/usr/lib/{triplet}/lua/5.1"] if triplet else []


def default_path(prefix: str) -> str:
    """The folders of Lua files, as package.path has them."""
    roots = [f"{prefix.rstrip('/')}/lualib", f"{sys.prefix}/share/lua/5.1", "/usr/local/share/lua/5.1"]
    roots += ["/usr/local/openresty/lualib", "/usr/share/lua/5.1"]
    parts = ["./?.lua"]
    for root in roots:
        parts += [f"{root}/?.lua", f"{root}/?/init.lua"]
    return ";".join(parts)


def default_cpath(prefix: str) -> str:
    """The folders of C modules, as package.cpath has them."""
    roots = [f"{prefix.rstrip('/')}/lualib", f"{sys.prefix}/lib/lua/5.1", "/usr/local/lib/lua/5.1"]
    roots += ["/usr/local/openresty/lualib", *_arch_folders(), "/usr/lib/lua/5.1"]
    return ";".join(["./?.so", *(f"{root}/?.so" for root in roots)])


def _choose(directive: str | None, names: tuple[str, ...], default: str) -> str:
    text = directive
    if text is None:
        text = next((os.environ[name] for name in names if name in os.environ), None)
    if text is None:
        return default
    # A leading or trailing `;;`, or one in the middle, stands for the defaults (PUC Lua, luaconf.h).
    marked = text.replace(";;", ";\1;")
    return ";".join(default if part == "\1" else part for part in marked.split(";") if part)


def _with_prefix(path: str | None, prefix: str) -> str | None:
    """A path with `$prefix` (or `${prefix}`) written out; the latter brings the slash that ends a prefix along."""
    if path is None:
        return None
    bare = prefix.rstrip("/")
    return path.replace("${prefix}", bare + "/").replace("$prefix", bare)


def search_paths(prefix: str, path: str | None, cpath: str | None) -> tuple[str, str]:
    """package.path and package.cpath for the values of lua_package_path and lua_package_cpath (None: not set)."""
    return (
        _choose(_with_prefix(path, prefix), ("LUA_PATH_5_1", "LUA_PATH"), default_path(prefix)),
        _choose(_with_prefix(cpath, prefix), ("LUA_CPATH_5_1", "LUA_CPATH"), default_cpath(prefix)),
    )
