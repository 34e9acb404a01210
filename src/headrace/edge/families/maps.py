"""map and split_clients: variables whose value depends on another's.

https://nginx.org/en/docs/http/ngx_http_map_module.html
https://nginx.org/en/docs/http/ngx_http_split_clients_module.html
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headrace.edge.families.common import BaseFamily, block, spec, table
from headrace.edge.location import take_captures
from headrace.edge.regex import compile_regex
from headrace.edge.servernames import NameTable, ServerName
from headrace.edge.values import Value, compile_value, evaluate, to_bytes
from headrace.errors import ConfError

if TYPE_CHECKING:
    import re

    from headrace.conf.tree import Directive
    from headrace.edge.request import Request
    from headrace.edge.scope import Scope
    from headrace.edge.variables import Getter, Variables

_MASK: Final = 0xFFFFFFFF


class MapFamily(BaseFamily):
    """map, split_clients."""

    specs = table(
        block("map", ("http",), 2, data=True),
        block("split_clients", ("http",), 2, data=True),
        spec("map_hash_max_size", ("http",), 1),
        spec("map_hash_bucket_size", ("http",), 1),
    )

    @staticmethod
    def _do_map(scope: Scope, directive: Directive) -> None:
        name = variable_name(directive, directive.args[1])
        source = compile_value(directive.args[0], scope.build.variables, directive.place)
        made = _read_map(scope.build.variables, directive)
        scope.build.variables.define(name, _mapped(name, source, made))

    @staticmethod
    def _do_split_clients(scope: Scope, directive: Directive) -> None:
        name = variable_name(directive, directive.args[1])
        source = compile_value(directive.args[0], scope.build.variables, directive.place)
        parts = _read_parts(directive)
        variables = scope.build.variables
        values = [(limit, to_bytes(text)) for limit, text in parts]

        def get(request: Request) -> bytes:
            number = murmur2(evaluate(source, request))
            for limit, value in values:
                if number < limit:
                    return value
            return b""

        variables.define(name, get)

    @staticmethod
    def _do_map_hash_max_size(scope: Scope, directive: Directive) -> None:
        _noticed(scope, directive)

    @staticmethod
    def _do_map_hash_bucket_size(scope: Scope, directive: Directive) -> None:
        _noticed(scope, directive)


def _noticed(scope: Scope, directive: Directive) -> None:
    if not directive.args[0].rstrip("kKmM").isdigit():
        raise ConfError(f'"{directive.name}" directive invalid value', directive.place)
    scope.build.means_nothing(directive)


def variable_name(directive: Directive, text: str) -> str:
    """The name of the variable that a block defines; raises ConfError as nginx words it."""
    if len(text) < 2 or not text.startswith("$"):
        raise ConfError(f'invalid variable name "{text}"', directive.place)
    return text[1:].lower()


@dataclass
class _Map:
    default: Value = b""
    plain: dict[bytes, Value] = field(default_factory=dict)
    names: NameTable[Value | None] = field(default_factory=lambda: NameTable(None))
    regexes: list[tuple[re.Pattern[bytes], Value]] = field(default_factory=list)
    hostnames: bool = False
    volatile: bool = False


def _read_map(variables: Variables, directive: Directive) -> _Map:
    made = _Map()
    defaults = 0
    entries = directive.block or ()
    for entry in entries:
        if not entry.args and entry.name in ("hostnames", "volatile"):
            setattr(made, entry.name, True)
    for entry in entries:
        if not entry.args and entry.name in ("hostnames", "volatile"):
            continue
        if len(entry.args) != 1 or entry.block is not None:
            raise ConfError("invalid number of the map parameters", entry.place)
        value = compile_value(entry.args[0], variables, entry.place)
        key = entry.name
        if key == "default":
            defaults += 1
            if defaults > 1:
                raise ConfError("duplicate default map parameter", entry.place)
            made.default = value
        elif key.startswith("~"):
            caseless = key.startswith("~*")
            pattern = compile_regex(key[2:] if caseless else key[1:], entry.place, caseless=caseless)
            for group in pattern.groupindex:
                variables.declare(group, entry.place)
            made.regexes.append((pattern, value))
        else:
            _add(made, entry, key.removeprefix("\\"), value)
    return made


def _add(made: _Map, entry: Directive, key: str, value: Value) -> None:
    if made.hostnames and ("*" in key or key.startswith(".")):
        for kind, begin, end in (("head", "*.", ""), ("dot", ".", ""), ("tail", "", ".*")):
            if key.startswith(begin) and key.endswith(end) and len(key) > len(begin) + len(end):
                made.names.add(ServerName(kind, key[len(begin) : len(key) - len(end)].lower()), value)
                return
        raise ConfError(f'invalid hostname or wildcard "{key}"', entry.place)
    text = to_bytes(key).lower()
    if text in made.plain:
        raise ConfError(f'conflicting parameter "{key}"', entry.place)
    made.plain[text] = value


def _mapped(name: str, source: Value, made: _Map) -> Getter:
    slot = b"map " + name.encode()

    def find(request: Request) -> bytes:
        text = evaluate(source, request)
        low = text.lower()
        if made.hostnames and low.endswith(b"."):
            low = low[:-1]
        value: Value | None = made.plain.get(low)
        if value is None and made.hostnames:
            value, _ = made.names.find(low)
        if value is None:
            for pattern, candidate in made.regexes:
                match = pattern.search(text)
                if match is not None:
                    take_captures(request, match)
                    value = candidate
                    break
        return evaluate(made.default if value is None else value, request)

    def get(request: Request) -> bytes:
        known = request.get_slot(slot)
        if known is None:
            known = find(request)
            request.set_slot(slot, known)
        return known

    return find if made.volatile else get


def _read_parts(directive: Directive) -> list[tuple[int, str]]:
    """(the hash below which a part is chosen, its value), in order."""
    parts: list[tuple[int, str]] = []
    total = 0
    for entry in directive.block or ():
        if len(entry.args) != 1:
            raise ConfError('invalid number of arguments in "split_clients" directive', entry.place)
        if entry.name == "*":
            parts.append((_MASK + 1, entry.args[0]))
            continue
        whole, _dot, part = entry.name.removesuffix("%").partition(".")
        hundredths = (whole or "0") + (part + "00")[:2]
        if not entry.name.endswith("%") or not hundredths.isdigit() or len(part) > 2 or not int(hundredths):
            raise ConfError(f'invalid percent value "{entry.name}"', entry.place)
        total += int(hundredths)
        if total > 10_000:
            raise ConfError("percent total is greater than 100%", directive.place)
        parts.append((_MASK * total // 10_000, entry.args[0]))
    return parts


def murmur2(data: bytes) -> int:
    """MurmurHash2 of 32 bits without a seed, as nginx uses it for split_clients."""
    m = 0x5BD1E995
    h = len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & _MASK
        k = (k ^ k >> 24) * m & _MASK
        h = (h * m & _MASK) ^ k
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & _MASK
    h = (h ^ h >> 13) * m & _MASK
    return h ^ h >> 15
