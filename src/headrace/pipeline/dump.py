"""A configuration as text, for logs and remote calls: as Fluentd dumps it, secrets hidden.

A parameter is secret when the class that reads it says so, or when its name does: sections of plugins that are not
known here may hold passwords too.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from headrace.conf.declare import declared_params, declared_sections
from headrace.conf.params import literal_of, reserved
from headrace.errors import ConfError
from headrace.pipeline.system import SystemSection

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.conf.declare import Configurable, Param
    from headrace.conf.tree import Directive
    from headrace.pipeline.context import Lookup

HIDDEN: Final = "xxxxxx"
_SECRET: Final = re.compile(r"passw|passphrase|secret|token|shared_key|api_key|access_key|credential", re.IGNORECASE)
_IN_URL: Final = re.compile(r"(://[^/@\s\"]*:)[^/@\s\"]+@")
"""The password in https://user:password@host."""
_FIELD: Final = re.compile(_SECRET.pattern + r"|authorization|cookie|api-?key|auth-", re.IGNORECASE)
"""Names of header fields, and of their kind, with values that are never shown."""
_PAIR: Final = re.compile(
    rf"""("?[\w-]*(?:{_FIELD.pattern})[\w-]*"?\s*[:=]\s*)("(?:[^"\\]|\\.)*"|[^,{{}}"]+)""", re.IGNORECASE
)
"""A name and its value, in a hash that is JSON or written as a:b,c:d."""
_KINDS: Final = {
    "source": "input", "match": "output", "filter": "filter", "store": "output", "secondary": "output",
    "parse": "parser", "format": "formatter", "buffer": "buffer", "storage": "storage", "service_discovery": "sd",
}  # fmt: skip


def conf_text(tree: Sequence[Directive], lookup: Lookup) -> str:
    """The text of a whole configuration."""
    lines = ["<ROOT>"]
    for directive in tree:
        lines += _lines(directive, None, lookup, "  ")
    return "\n".join([*lines, "</ROOT>"])


def is_secret(name: str, item: Param[Any] | None) -> bool:
    """Whether the value of a parameter is never shown. item: its declaration, if that is known."""
    return (item is not None and item.secret) or _SECRET.search(name) is not None


def without_password(text: str) -> str:
    """A text without the passwords of URLs in it."""
    return _IN_URL.sub(rf"\1{HIDDEN}@", text)


def without_secrets(value: Any, item: Param[Any] | None) -> Any:
    """A value that may be shown: no passwords of URLs, and in a hash no field whose name tells of a secret.

    item: the parameter's declaration, if that is known.
    """
    if isinstance(value, dict):
        return {
            key: HIDDEN if _FIELD.search(str(key)) and not isinstance(one, (dict, list)) else without_secrets(one, item)
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [without_secrets(one, item) for one in value]
    if not isinstance(value, str):
        return value
    if item is None or item.type_name.startswith("hash"):
        value = _PAIR.sub(lambda found: found[1] + (f'"{HIDDEN}"' if found[2].startswith('"') else HIDDEN), value)
    return without_password(value)


def _lines(directive: Directive, outer: type[Configurable] | None, lookup: Lookup, indent: str) -> Iterator[str]:
    if directive.block is None:
        return
    cls = _class_of(directive, outer, lookup)
    params = {key: item for item in declared_params(cls) for key in item.keys} if cls is not None else {}
    argument = "".join(f" {text}" for text in directive.args if text)
    yield f"{indent}<{directive.name}{argument}>"
    for child in directive.block:
        if child.block is not None:
            yield from _lines(child, cls, lookup, indent + "  ")
            continue
        item = params.get(child.name)
        if is_secret(child.name, item):
            shown = HIDDEN
        else:
            quoted = item is not None and item.type_name == "string" and not child.name.startswith("@")
            shown = _shown(without_secrets(literal_of(child), item), quoted=quoted)
        yield f"{indent}  {child.name} {shown}"
    yield f"{indent}</{directive.name}>"


def _class_of(directive: Directive, outer: type[Configurable] | None, lookup: Lookup) -> type[Configurable] | None:
    """The class that reads a section, if that can be known."""
    if outer is not None:
        for section in declared_sections(outer):
            if section.key == directive.name and section.cls is not None:
                return section.cls
    if directive.name == "system" and outer is None:
        return SystemSection
    kind, name = _KINDS.get(directive.name), reserved(directive, "@type")
    if kind is None or name is None:
        return None
    try:
        return lookup(kind, name)
    except ConfError:
        return None


def _shown(value: Any, *, quoted: bool) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False) if quoted else value
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False, default=str)
