"""The methods of the Ruby subset, by the class of what they are called on.

A table gives for each method how many arguments it takes, with and without a block, and the function. `find` makes
the one function that compiled code calls: it picks by the type of the value.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from headrace.plugins.expressions import ruby_collections, ruby_hashes, ruby_numbers
from headrace.plugins.expressions.nodes import Refused
from headrace.plugins.expressions.ruby_kinds import (
    Block,
    Range,
    Type,
    is_match,
    is_pattern,
    undefined,
)
from headrace.plugins.expressions.ruby_tables import EVERY, MATCH, MOMENT, NOTHING, PATTERN, TEXT, TYPE
from headrace.plugins.expressions.ruby_text_methods import slice_text
from headrace.plugins.expressions.ruby_time import Moment
from headrace.plugins.registry import near

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Method = tuple[str, Callable[..., Any]]

TESTS: Final = frozenset(
    [
        "nil?",
        "empty?",
        "include?",
        "start_with?",
        "end_with?",
        "match?",
        "key?",
        "has_key?",
        "has_value?",
        "value?",
        "is_a?",
        "kind_of?",
        "instance_of?",
        "any?",
        "all?",
        "none?",
        "zero?",
        "positive?",
        "negative?",
        "even?",
        "odd?",
        "nan?",
        "infinite?",
        "finite?",
        "between?",
        "eql?",
        "equal?",
        "frozen?",
        "respond_to?",
        "valid_encoding?",
        "ascii_only?",
        "member?",
        "integer?",
        "cover?",
        "monday?",
        "sunday?",
        "utc?",
    ]
)
"""Methods that give true or false and nothing else."""

_BY_TYPE: Final[Mapping[type, Mapping[str, Method]]] = {
    str: TEXT,
    int: ruby_numbers.INTEGER,
    float: ruby_numbers.FLOAT,
    bool: {},
    type(None): NOTHING,
    list: ruby_collections.ARRAY,
    dict: ruby_hashes.HASH,
    Moment: MOMENT,
    Range: ruby_hashes.RANGE,
    Type: TYPE,
}
_OF_NAMES: Final[Mapping[str, Mapping[str, Method]]] = {
    "record": ruby_hashes.HASH,
    "tag": TEXT,
    "hostname": TEXT,
    "time": MOMENT,
    "worker_id": ruby_numbers.INTEGER,
    "tag_parts": ruby_collections.ARRAY,
    "tag_prefix": ruby_collections.ARRAY,
    "tag_suffix": ruby_collections.ARRAY,
}
"""Variables whose class is known."""
_CHANGES: Final = frozenset(
    [
        "gsub!",
        "sub!",
        "upcase!",
        "downcase!",
        "strip!",
        "delete",
        "store",
        "push",
        "pop",
        "shift",
        "unshift",
        "<<",
        "merge!",
        "update",
        "replace",
        "clear",
        "insert",
        "append",
        "delete_if",
        "keep_if",
        "reject!",
        "select!",
        "map!",
        "compact!",
        "slice!",
        "[]=",
        "prepend",
    ]
)


def methods_of(value: Any) -> Mapping[str, Method]:
    """The table of a value's class."""
    found = _BY_TYPE.get(type(value))
    if found is not None:
        return found
    if is_match(value):
        return MATCH
    if is_pattern(value):
        return PATTERN
    if isinstance(value, bytes):
        return {}
    return next((table for one, table in _BY_TYPE.items() if isinstance(value, one)), {})


_TABLES: Final = (*_BY_TYPE.values(), MATCH, PATTERN, EVERY)
NAMES: Final = frozenset(name for table in _TABLES for name in table)
"""All methods there are."""


def _takes(signature: str, count: int, *, with_block: bool) -> bool:
    """signature: "1", "0-2", with a b where a block may stand, a B where it must."""
    blocks = signature[-1] in "bB"
    counts = signature.rstrip("bB")
    low, _, high = counts.partition("-")
    if with_block and not blocks:
        return False
    if signature[-1] == "B" and not with_block:
        return False
    return int(low) <= count <= int(high or low)


def _responds(value: Any, name: Any) -> bool:
    return name in EVERY or name in methods_of(value)


def check_of(variable: str, name: str) -> None:
    """Refuse a method that a variable of the event can never have."""
    table = _OF_NAMES.get(variable)
    if table is not None and name not in table and name not in EVERY:
        hint = "nothing can be changed here" if name in _CHANGES else ""
        raise Refused(f'{variable} has no method "{name}" here', hint=hint)


@cache
def find(name: str, count: int, *, with_block: bool) -> Callable[..., Any]:
    """The function that calls a method with a number of arguments. Raises Refused for what no class has."""
    if name not in NAMES:
        changes = name in _CHANGES
        hint = (
            "nothing can be changed here"
            if changes
            else f"did you mean {near(name, sorted(NAMES))}?" * bool(near(name, sorted(NAMES)))
        )
        raise Refused(f'the method "{name}" is not supported', hint=hint)
    if not any(name in table and _takes(table[name][0], count, with_block=with_block) for table in _TABLES):
        raise Refused(f'the method "{name}" cannot be called with {count} arguments{" and a block" * with_block}')
    quick = {
        one: table[name][1]
        for one, table in _BY_TYPE.items()
        if name in table and _takes(table[name][0], count, with_block=with_block)
    }
    if name == "respond_to?":
        return _responds
    every = EVERY[name][1] if name in EVERY and _takes(EVERY[name][0], count, with_block=with_block) else None

    def slow(value: Any, args: tuple[Any, ...], block: dict[str, Block]) -> Any:
        if isinstance(value, bytes):
            return call(value.decode("utf-8", "surrogateescape"), *args, **block)
        found = methods_of(value).get(name)
        if found is not None and _takes(found[0], count, with_block=with_block):
            return found[1](value, *args, **block)
        if every is not None:
            return every(value, *args, **block)
        raise undefined(name, value)

    def call(value: Any, *args: Any, **block: Block) -> Any:
        function = quick.get(type(value))
        return function(value, *args, **block) if function is not None else slow(value, args, block)

    return call


def index(value: Any, first: Any, second: Any = None) -> Any:
    """value[first] and value[first, second]."""
    if type(value) is dict:
        return value.get(first)
    if type(value) is str:
        return slice_text(value, first, second)
    if type(value) is list:
        return ruby_collections.slice_list(value, first, second)
    if is_match(value):
        if isinstance(first, int) and not -1 < first <= value.re.groups:
            return None
        return value.group(first)
    if type(value) is int and type(first) is int and first >= 0:
        return value >> min(first, 1000) & 1
    raise undefined("[]", value)
