"""Methods of arrays, hashes and ranges in the Ruby subset. All make new ones: nothing is changed in place."""

from __future__ import annotations

from functools import cmp_to_key
from typing import TYPE_CHECKING, Any, Final

from headrace.plugins.expressions.ruby_kinds import Block, Range, RubyError, interpolated, kind, true
from headrace.plugins.expressions.ruby_text_methods import piece
from headrace.plugins.expressions.ruby_values import add, case_equal, compare, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Method = tuple[str, Callable[..., Any]]


def slice_list(items: list[Any], first: Any, second: Any = None) -> Any:
    """items[1], items[1, 2], items[1..2]."""
    if isinstance(first, Range):
        span = first.span(len(items))
        return None if span is None else items[span[0] : span[0] + span[1]]
    return piece(items, first, second)


def dig(value: Any, *path: Any) -> Any:
    """One step after the other; nil on the way ends it."""
    for step in path:
        if value is None:
            return None
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list):
            value = slice_list(value, step)
        else:
            raise RubyError(f"{kind(value)} does not have #dig method")
    return value


def _order(left: Any, right: Any) -> int:
    found = compare(left, right)
    if found is None:
        raise RubyError(f"comparison of {kind(left)} with {kind(right)} failed")
    return found


_key: Final = cmp_to_key(_order)


def _joined(items: list[Any], by: Any = "") -> str:
    return ("" if by is None else by).join(
        [_joined(item, by) if isinstance(item, list) else interpolated(item) for item in items]
    )


def _first(items: list[Any], count: Any = None) -> Any:
    return (items[0] if items else None) if count is None else items[:count]


def _last(items: list[Any], count: Any = None) -> Any:
    return (items[-1] if items else None) if count is None else items[max(len(items) - count, 0) :]


def _unique(items: list[Any], block: Block | None = None) -> list[Any]:
    seen: list[Any] = []
    out: list[Any] = []
    for item in items:
        mark = item if block is None else block.call(item)
        if not any(equal(mark, other) for other in seen):
            seen.append(mark)
            out.append(item)
    return out


def _flat(items: list[Any], depth: int = 100) -> list[Any]:
    out: list[Any] = []
    for item in items:
        if isinstance(item, list) and depth:
            out += _flat(item, depth - 1)
        else:
            out.append(item)
    return out


def _sum(items: list[Any], start: Any = 0, block: Block | None = None) -> Any:
    for item in items:
        start = add(start, item if block is None else block.call(item))
    return start


def _folded(items: list[Any], *args: Any, block: Block | None = None) -> Any:
    rest = list(items)
    from headrace.plugins.expressions import ruby_values  # noqa: PLC0415 - only here by name

    operators: dict[str, Callable[..., Any]] = {"+": add, "*": ruby_values.multiply, "-": ruby_values.subtract}
    if args and block is None:
        function: Callable[..., Any] | None = operators.get(args[-1])
        args = args[:-1]
    else:
        function = block.call if block is not None else None
    if function is None:
        raise RubyError("inject needs a block, or one of :+ :* :-")
    if not args and not rest:
        return None
    found = args[0] if args else rest.pop(0)
    for item in rest:
        found = function(found, item)
    return found


def _sorted(items: list[Any], block: Block | None = None) -> list[Any]:
    if block is not None:
        return sorted(items, key=cmp_to_key(lambda left, right: block.call(left, right) or 0))
    return sorted(items, key=_key)


def _tested(items: list[Any], pattern: tuple[Any, ...], block: Block | None) -> list[bool]:
    if block is not None:
        return [true(block.call(item)) for item in items]
    return [case_equal(pattern[0], item) for item in items] if pattern else [true(item) for item in items]


def _any(items: list[Any], *pattern: Any, block: Block | None = None) -> bool:
    return any(_tested(items, pattern, block))


def _all(items: list[Any], *pattern: Any, block: Block | None = None) -> bool:
    return all(_tested(items, pattern, block))


def _none(items: list[Any], *pattern: Any, block: Block | None = None) -> bool:
    return not _any(items, *pattern, block=block)


def _count(items: list[Any], *value: Any, block: Block | None = None) -> int:
    if block is not None:
        return sum(true(block.call(item)) for item in items)
    return sum(equal(item, value[0]) for item in items) if value else len(items)


def _grouped(items: list[Any], block: Block) -> dict[Any, list[Any]]:
    out: dict[Any, list[Any]] = {}
    for item in items:
        out.setdefault(block.call(item), []).append(item)
    return out


def pairs_of(items: list[Any], block: Block | None = None) -> dict[Any, Any]:
    """to_h: of an array of pairs."""
    made = items if block is None else [block.call(item) for item in items]
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in made):
        raise RubyError("to_h needs pairs")
    return dict(made)


def _best(items: list[Any], block: Block | None = None, *, sign: int, by: bool = False) -> Any:
    best: Any = None
    mark: Any = None
    for index, item in enumerate(items):
        value = block.call(item) if by and block is not None else item
        if not index or _order(value, mark) * sign > 0:
            best, mark = item, value
    return best


def _found(items: list[Any], block: Block) -> Any:
    return next((item for item in items if true(block.call(item))), None)


def _position(items: list[Any], *value: Any, block: Block | None = None) -> int | None:
    for index, item in enumerate(items):
        if true(block.call(item)) if block is not None else equal(item, value[0]):
            return index
    return None


def _slices(items: list[Any], size: int) -> list[list[Any]]:
    if size < 1:
        raise RubyError("invalid slice size")
    return [items[at : at + size] for at in range(0, len(items), size)]


def fetched(items: Any, key: Any, *default: Any, block: Block | None = None) -> Any:
    """The value of a key or an index, a default, or an error."""
    if isinstance(items, list):
        if -len(items) <= key < len(items):
            return items[key]
    elif key in items:
        return items[key]
    if block is not None:
        return block.call(key)
    if default:
        return default[0]
    raise RubyError(f"key not found: {key!r}" if isinstance(items, dict) else f"index {key} outside of array bounds")


ARRAY: Final[Mapping[str, Method]] = {
    "length": ("0", len),
    "size": ("0", len),
    "empty?": ("0", lambda items: not items),
    "first": ("0-1", _first),
    "last": ("0-1", _last),
    "join": ("0-1", _joined),
    "reverse": ("0", lambda items: items[::-1]),
    "include?": ("1", lambda items, value: any(equal(item, value) for item in items)),
    "member?": ("1", lambda items, value: any(equal(item, value) for item in items)),
    "map": ("0B", lambda items, block: [block.call(item) for item in items]),
    "collect": ("0B", lambda items, block: [block.call(item) for item in items]),
    "flat_map": ("0B", lambda items, block: _flat([block.call(item) for item in items], 1)),
    "each_with_index": ("0", lambda items: [[item, index] for index, item in enumerate(items)]),
    "select": ("0B", lambda items, block: [item for item in items if true(block.call(item))]),
    "filter": ("0B", lambda items, block: [item for item in items if true(block.call(item))]),
    "filter_map": ("0B", lambda items, block: [found for item in items if true(found := block.call(item))]),
    "reject": ("0B", lambda items, block: [item for item in items if not true(block.call(item))]),
    "partition": (
        "0B",
        lambda items, block: [[item for item in items if true(block.call(item)) == side] for side in (True, False)],
    ),
    "any?": ("0-1b", _any),
    "all?": ("0-1b", _all),
    "none?": ("0-1b", _none),
    "find": ("0B", _found),
    "detect": ("0B", _found),
    "find_index": ("0-1b", _position),
    "index": ("0-1b", _position),
    "count": ("0-1b", _count),
    "sum": ("0-1b", _sum),
    "inject": ("0-2b", _folded),
    "reduce": ("0-2b", _folded),
    "sort": ("0b", _sorted),
    "sort_by": ("0B", lambda items, block: sorted(items, key=lambda item: _key(block.call(item)))),
    "min": ("0", lambda items: _best(items, sign=-1)),
    "max": ("0", lambda items: _best(items, sign=1)),
    "min_by": ("0B", lambda items, block: _best(items, block, sign=-1, by=True)),
    "max_by": ("0B", lambda items, block: _best(items, block, sign=1, by=True)),
    "uniq": ("0b", _unique),
    "compact": ("0", lambda items: [item for item in items if item is not None]),
    "flatten": ("0-1", _flat),
    "take": ("1", lambda items, count: items[:count]),
    "drop": ("1", lambda items, count: items[count:]),
    "dig": ("1-20", dig),
    "slice": ("1-2", slice_list),
    "at": ("1", slice_list),
    "fetch": ("1-2b", fetched),
    "values_at": ("1-20", lambda items, *ats: [slice_list(items, at) for at in ats]),
    "to_a": ("0", list),
    "to_h": ("0b", pairs_of),
    "group_by": ("0B", _grouped),
    "tally": (
        "0",
        lambda items: {key: len(found) for key, found in _grouped(items, Block(lambda item: item, 1)).items()},
    ),
    "zip": (
        "1",
        lambda items, other: [[item, other[at] if at < len(other) else None] for at, item in enumerate(items)],
    ),
    "each_slice": ("1", _slices),
    "rotate": ("0-1", lambda items, by=1: items[by % len(items) :] + items[: by % len(items)] if items else []),
    "concat": ("1", lambda items, other: items + other),
    "minmax": ("0", lambda items: [_best(items, sign=-1), _best(items, sign=1)]),
}
