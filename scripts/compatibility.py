"""Write docs/compatibility.md: what of nginx, ngx_lua and Fluentd is built, from the declarations in the code.

    python scripts/compatibility.py

A test compares the file with what this makes (tests/scripts/test_compatibility.py).
"""

from __future__ import annotations

import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from headrace.conf.declare import Configurable, declared_params, declared_sections
from headrace.edge import unbuilt as unbuilt_directives
from headrace.lua import names
from headrace.lua.stream import names as stream_names
from headrace.plugins import registry
from headrace.plugins import unbuilt as unbuilt_plugins
from headrace.topology.gateway import families
from headrace.version import FLUENTD_VERSION, NGINX_VERSION, NGX_LUA_VERSION

sys.path.insert(0, str(Path(__file__).parent))
import phasetable as phases
import suites

TARGET = Path(__file__).parents[1] / "docs" / "compatibility.md"

CONTEXTS = ("main", "events", "http", "server", "location", "if in server", "if in location", "limit_except")
"""The order of the contexts; others follow."""


def main() -> None:
    """Write the file."""
    TARGET.write_text("\n".join(document()) + "\n", encoding="utf-8")


def document() -> Iterator[str]:
    """The lines of the file."""
    yield "# What is built"
    yield ""
    yield from _wrapped(
        f"Measured against nginx {NGINX_VERSION}, ngx_lua {NGX_LUA_VERSION} and Fluentd {FLUENTD_VERSION}. "
        "This file is made from the code by `make docs`. `headrace check` tells what is not built, with file and line: "
        "a directive or a plugin is an error, a name of the Lua API a warning, because code may test for it."
    )
    yield from _directives()
    yield from _lua()
    yield from phases.document()
    yield from _stream_lua()
    yield from _plugins()
    yield from suites.document()


def _directives() -> Iterator[str]:
    found: dict[str, set[str]] = defaultdict(set)
    built: set[str] = set()
    for family in families():
        for name, spec in family.specs.items():
            built.add(name)
            for context in spec.contexts:
                for one in ("if in server", "if in location") if context == "if" else (context,):
                    found[one].add(name)
    yield ""
    yield f"## Directives of nginx.conf ({len(built)})"
    order = [context for context in CONTEXTS if context in found]
    for context in [*order, *sorted(found.keys() - set(order))]:
        yield ""
        yield f"### {context} ({len(found[context])})"
        yield ""
        yield from _list(found[context])
    missing = unbuilt_directives.NAMES - built
    yield ""
    yield f"### Not built ({len(missing)})"
    yield ""
    yield from _list(missing)


def _lua() -> Iterator[str]:
    missing = names.unbuilt()
    built = names.DOCUMENTED - missing
    constants = {name for name in built if name.rpartition(".")[2].isupper()}
    yield ""
    yield f"## The Lua API ({len(built)} of {len(names.DOCUMENTED)} documented names)"
    yield ""
    yield from _list(built - constants)
    yield ""
    yield f"### Constants ({len(constants)})"
    yield ""
    yield from _list(constants)
    yield ""
    yield "### Methods of TCP cosockets"
    yield ""
    yield from _list(f"tcpsock:{name}" for name in names.SOCKET_METHODS - names.unbuilt_methods())
    yield ""
    yield f"### Not built ({len(missing)} names)"
    yield ""
    yield from _list(missing | {f"tcpsock:{name}" for name in names.unbuilt_methods()})
    yield ""
    modules = names.unbuilt_modules()
    yield "### Modules of lua-resty-core"
    yield ""
    yield from _wrapped(f"Built: {_joined(names.MODULES - modules)}. Not built: {_joined(modules)}.")


def _stream_lua() -> Iterator[str]:
    missing = stream_names.unbuilt()
    built = stream_names.DOCUMENTED - missing
    yield ""
    yield f"## The Lua API in stream ({len(built)} of {len(stream_names.DOCUMENTED)} documented names)"
    yield ""
    yield from _wrapped(
        "As in OpenResty it has a VM of its own: names of http that are not here are nil there. The constants are not "
        "listed."
    )
    yield ""
    yield from _list(name for name in built if not name.rpartition(".")[2].isupper())
    yield ""
    methods = stream_names.unbuilt_methods()
    yield from _wrapped(f"Methods of ngx.req.socket(): {_joined(stream_names.CLIENT_METHODS - methods)}.")
    yield ""
    yield from _wrapped(f"Not built: {_joined(missing | methods)}.")


def _plugins() -> Iterator[str]:
    yield ""
    yield "## Plugins of fluent.conf"
    yield ""
    yield "`headrace plugins KIND:NAME` shows the parameters of one."
    for kind, table in registry.BUILT_INS.items():
        yield ""
        yield f"### {kind} ({len(table)})"
        yield ""
        yield "| @type | parameters | of its sections |"
        yield "|---|---|---|"
        for name in sorted(table):
            cls = registry.lookup(kind, name)
            inner = {section.key: _count(section.cls) for section in declared_sections(cls) if section.cls is not None}
            sections = ", ".join(f"`<{key}>` {count}" for key, count in sorted(inner.items()))
            yield f"| `{name}` | {len(declared_params(cls))} | {sections} |"
        missing = unbuilt_plugins.NAMES[kind] - table.keys()
        if missing:
            yield ""
            yield from _wrapped(f"Not built: {_joined(missing)}.")


def _count(cls: type[Configurable]) -> int:
    inner = sum(_count(section.cls) for section in declared_sections(cls) if section.cls is not None)
    return len(declared_params(cls)) + inner


def _joined(found: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(found)) or "none"


def _list(found: Iterable[str]) -> list[str]:
    return _wrapped(_joined(found))


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 118, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    main()
