"""`headrace plugins`: what a configuration may use, and the parameters of each, from their declarations."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from headrace.conf.declare import Section, declared
from headrace.conf.values import REQUIRED
from headrace.errors import ConfError
from headrace.plugins import registry

if TYPE_CHECKING:
    from headrace.plugins.folder import Folders

_KINDS: Final = {"in": "input", "out": "output", "source": "input", "match": "output"}


def list_all(folders: Folders) -> int:
    """Print all names by kind; the exit status."""
    for kind in registry.PREFIXES:
        sys.stdout.write(f"{kind}: {' '.join(folders.names(kind))}\n")
    return 0


def show(name: str, folders: Folders) -> int:
    """Print the parameters of "KIND:NAME", or of "NAME" of every kind that has one; the exit status."""
    kind, colon, plugin = name.partition(":")
    if not colon and (kinds := [kind for kind in registry.PREFIXES if name in folders.names(kind)]):
        return max(show(f"{kind}:{name}", folders) for kind in kinds)
    kind = _KINDS.get(kind, kind)
    if not colon or kind not in registry.PREFIXES:
        sys.stderr.write(f"{name} is not of the form KIND:NAME; kinds: {' '.join(registry.PREFIXES)}\n")
        return 1
    try:
        cls = folders.lookup(kind, plugin)
    except ConfError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{kind}:{plugin}\n")
    _print(cls, "  ")
    return 0


def _print(cls: type[Any], indent: str) -> None:
    for item in declared(cls):
        if isinstance(item, Section):
            sys.stdout.write(f"{indent}<{item.key}>{'  ' + item.doc if item.doc else ''}\n")
            inner = getattr(item, "cls", None)
            if isinstance(inner, type):
                _print(inner, indent + "  ")
            continue
        default = "; required" if item.default is REQUIRED else f"; default {item.default!r}"
        if item.default is None or item.default == "":
            default = ""
        sys.stdout.write(f"{indent}{item.key} ({item.type_name}{default})  {item.doc}\n")
