"""Functions and methods for Python expressions: what they take, bounded in what they make."""

from __future__ import annotations

import re
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

from headrace.pipeline.timezone import zone as zone_named
from headrace.plugins.expressions.ruby_kinds import TEXT_MAX
from headrace.plugins.jsoncodec import decode, encode
from headrace.plugins.time_format import time_formatter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_BITS_MAX: Final = 512
_WIDTH: Final = re.compile(r"\d+")


def _bounded(value: Any) -> Any:
    if type(value) is int and value.bit_length() > _BITS_MAX:
        raise ValueError("the number is too large")
    return value


def add(left: Any, right: Any) -> Any:
    """Left + right."""
    if (
        isinstance(left, (str, bytes, list))
        and isinstance(right, (str, bytes, list))
        and len(left) + len(right) > TEXT_MAX
    ):
        raise ValueError("the text is too long")
    return _bounded(left + right)


def multiply(left: Any, right: Any) -> Any:
    """Left * right."""
    for one, count in ((left, right), (right, left)):
        if isinstance(one, (str, bytes, list)) and (not isinstance(count, int) or len(one) * count > TEXT_MAX):
            raise ValueError("the text is too long")
    return _bounded(left * right)


def power(left: Any, right: Any) -> Any:
    """Left ** right."""
    if isinstance(left, int) and isinstance(right, int) and right > 0 and left.bit_length() * right > _BITS_MAX:
        raise ValueError("the number is too large")
    return left**right


def modulo(left: Any, right: Any) -> Any:
    """Left % right, of numbers."""
    if isinstance(left, (str, bytes)):
        raise TypeError("write f'...' instead of %")
    return left % right


def shift(left: Any, right: Any) -> Any:
    """Left << right."""
    if right > _BITS_MAX:
        raise ValueError("the number is too large")
    return _bounded(left << right)


def formatted(value: Any, spec: str, conversion: int) -> str:
    """{value!conversion:spec} of an f-string."""
    if any(int(width) > 1000 for width in _WIDTH.findall(spec)):
        raise ValueError("too wide a format")
    if conversion == ord("r"):
        value = repr(value)
    elif conversion in {ord("s"), ord("a")}:
        value = str(value)
    return format(value, spec)


def joined(*parts: str) -> str:
    """The parts of an f-string."""
    return "".join(parts)


def iterated(value: Any) -> Any:
    """What a comprehension may go over."""
    if isinstance(value, (list, dict, str)) or type(value).__name__ in {"dict_items", "dict_keys", "dict_values"}:
        return value
    raise TypeError(f"cannot go over {type(value).__name__}")


def _integer(value: Any = 0, base: Any = None) -> int:
    return int(value) if base is None else int(value, base)


def _strftime(time: float, format: str, zone: str | None = None) -> str:  # noqa: A002 - as Python names it
    if len(format) > 1000:
        raise ValueError("too long a format")
    where = UTC if zone in {"UTC", "Z"} else zone_named(zone)
    return time_formatter(format, where)(time if isinstance(time, int) and time > 10**14 else int(time * 1_000_000_000))


def _sub(pattern: str, replacement: str, text: str, count: int = 0) -> str:
    return _pattern(pattern).sub(replacement, text, count)


def _pattern(pattern: str) -> re.Pattern[str]:
    if len(pattern) > 1000:
        raise ValueError("too long a pattern")
    return re.compile(pattern)


def _search(pattern: str, text: str, group: int | str = 0) -> str | None:
    match = _pattern(pattern).search(text)
    return None if match is None else match.group(group)


def _sum(items: Any) -> Any:
    return sum(items)


def _text(value: Any = "") -> str:
    return str(value)


FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "str": _text,
    "int": _integer,
    "float": float,
    "bool": bool,
    "len": len,
    "abs": abs,
    "min": min,
    "max": max,
    "round": round,
    "sorted": lambda items, reverse=False: sorted(items, reverse=reverse),
    "sum": _sum,
    "any": any,
    "all": all,
    "list": list,
    "dict": dict,
    "isinstance_str": lambda value: isinstance(value, str),
    "ord": ord,
    "chr": chr,
    "hex": hex,
    "json_dumps": lambda value: encode(value).decode(),
    "json_loads": lambda text: decode(text.encode("utf-8", "surrogateescape")),
    "strftime": _strftime,
    "re_sub": _sub,
    "re_search": _search,
}
KEYWORDS: Final = frozenset({"reverse", "default", "count", "group", "zone", "maxsplit", "base"})


def _on(kinds: tuple[type, ...], name: str) -> Callable[..., Any]:
    def call(value: Any, *args: Any, **keywords: Any) -> Any:
        if type(value) not in kinds:
            raise TypeError(f"{type(value).__name__} has no method {name}")
        return getattr(value, name)(*args, **keywords)

    return call


def _padded(name: str) -> Callable[..., Any]:
    def call(value: Any, width: int, *pad: str) -> str:
        if type(value) is not str or width > 10_000:
            raise TypeError(f"{name} is for texts, up to 10000 characters")
        found: str = getattr(value, name)(width, *pad)
        return found

    return call


def _replace(value: Any, old: str, new: str, count: int = -1) -> str:
    if type(value) is not str:
        raise TypeError(f"{type(value).__name__} has no method replace")
    if value.count(old) * len(new) + len(value) > TEXT_MAX:
        raise ValueError("the text is too long")
    return value.replace(old, new, count)


def _join(value: Any, items: Any) -> str:
    if type(value) is not str or type(items) is not list or len(value) * len(items) > TEXT_MAX:
        raise TypeError("join is for a text and a list")
    return value.join(items)


_TEXT: Final = (
    "upper lower title capitalize swapcase casefold strip lstrip rstrip startswith endswith removeprefix removesuffix "
    "split rsplit splitlines partition rpartition find rfind isdigit isalpha isalnum isnumeric isdecimal isspace "
    "isupper islower"
)
METHODS: Final[Mapping[str, Callable[..., Any]]] = {
    **{name: _on((str,), name) for name in _TEXT.split()},
    **{name: _on((dict,), name) for name in ("get", "keys", "values", "items")},
    **{name: _on((str, list), name) for name in ("index", "count")},
    **{name: _on((int, float), name) for name in ("is_integer", "bit_length")},
    **{name: _padded(name) for name in ("ljust", "rjust", "center", "zfill")},
    "replace": _replace,
    "join": _join,
}
