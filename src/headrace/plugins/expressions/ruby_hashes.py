"""Methods of hashes and ranges in the Ruby subset. All make new ones: nothing is changed in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.plugins.expressions.ruby_collections import ARRAY, dig, fetched, pairs_of
from headrace.plugins.expressions.ruby_kinds import Block, Range, RubyError, kind, true
from headrace.plugins.expressions.ruby_values import equal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Method = tuple[str, Callable[..., Any]]


def _pairs(items: dict[Any, Any]) -> list[list[Any]]:
    return [[key, value] for key, value in items.items()]


def _merged(items: dict[Any, Any], *others: Any) -> dict[Any, Any]:
    out = dict(items)
    for other in others:
        if not isinstance(other, dict):
            raise RubyError(f"no implicit conversion of {kind(other)} into Hash")
        out.update(other)
    return out


def _kept(items: dict[Any, Any], block: Block, *, when: bool = True) -> dict[Any, Any]:
    return {
        key: value
        for key, value in items.items()
        if true(block.call(key, value) if block.count > 1 else block.call(key)) == when
    }


def _on_pairs(name: str) -> Callable[..., Any]:
    function = ARRAY[name][1]
    return lambda items, *args, **block: function(_pairs(items), *args, **block)


HASH: Final[Mapping[str, Method]] = {
    **{
        name: (ARRAY[name][0], _on_pairs(name))
        for name in (
            "map",
            "collect",
            "flat_map",
            "filter_map",
            "any?",
            "all?",
            "none?",
            "find",
            "detect",
            "count",
            "sum",
            "inject",
            "reduce",
            "sort_by",
            "min_by",
            "max_by",
            "to_a",
            "sort",
            "first",
            "group_by",
            "partition",
            "each_with_index",
            "flatten",
        )
    },
    "length": ("0", len),
    "size": ("0", len),
    "empty?": ("0", lambda items: not items),
    "keys": ("0", list),
    "values": ("0", lambda items: list(items.values())),
    "key?": ("1", lambda items, key: key in items),
    "has_key?": ("1", lambda items, key: key in items),
    "include?": ("1", lambda items, key: key in items),
    "member?": ("1", lambda items, key: key in items),
    "value?": ("1", lambda items, value: any(equal(item, value) for item in items.values())),
    "has_value?": ("1", lambda items, value: any(equal(item, value) for item in items.values())),
    "key": ("1", lambda items, value: next((key for key, item in items.items() if equal(item, value)), None)),
    "fetch": ("1-2b", fetched),
    "dig": ("1-20", dig),
    "values_at": ("1-20", lambda items, *keys: [items.get(key) for key in keys]),
    "merge": ("0-9", _merged),
    "select": ("0B", _kept),
    "filter": ("0B", _kept),
    "reject": ("0B", lambda items, block: _kept(items, block, when=False)),
    "compact": ("0", lambda items: {key: value for key, value in items.items() if value is not None}),
    "slice": ("0-50", lambda items, *keys: {key: items[key] for key in keys if key in items}),
    "except": ("0-50", lambda items, *keys: {key: value for key, value in items.items() if key not in keys}),
    "invert": ("0", lambda items: {value: key for key, value in items.items()}),
    "to_h": ("0b", lambda items, **block: pairs_of(_pairs(items), **block)),
    "transform_values": ("0B", lambda items, block: {key: block.call(value) for key, value in items.items()}),
    "transform_keys": ("0B", lambda items, block: {block.call(key): value for key, value in items.items()}),
}

RANGE: Final[Mapping[str, Method]] = {
    "include?": ("1", Range.holds),
    "cover?": ("1", Range.holds),
    "member?": ("1", Range.holds),
    "to_a": ("0", Range.items),
    "map": ("0B", lambda items, block: [block.call(item) for item in items.items()]),
    "first": ("0", lambda items: items.low),
    "last": ("0", lambda items: items.high),
}
