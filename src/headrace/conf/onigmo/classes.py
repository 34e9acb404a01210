r"""Bracket classes and the sets that have names: `[a-z]`, `\d`, `[[:alpha:]]`, `\p{Greek}`.

In Ruby `\d`, `\s`, `\w`, `\h` are ASCII, POSIX brackets follow Unicode. What is made of code points alone is worked
out here and written for `re`; what needs Unicode's properties is written for `regex`, which has them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

Ranges = tuple[tuple[int, int], ...]

LAST: Final = 0x10FFFF

DIGIT: Final[Ranges] = ((48, 57),)
WORD: Final[Ranges] = ((48, 57), (65, 90), (95, 95), (97, 122))
SPACE: Final[Ranges] = ((9, 13), (32, 32))
HEX: Final[Ranges] = ((48, 57), (65, 70), (97, 102))

POSIX: Final = {
    "alnum": r"\p{Alphabetic}\p{Nd}",
    "alpha": r"\p{Alphabetic}",
    "ascii": r"\x00-\x7f",
    "blank": r"\p{Zs}\t",
    "cntrl": r"\p{Cc}",
    "digit": r"\p{Nd}",
    "graph": r"[^\p{White_Space}\p{Cc}\p{Cn}\p{Cs}]",
    "lower": r"\p{Lowercase}",
    "print": r"[^\p{Zl}\p{Zp}\p{Cc}\p{Cn}\p{Cs}]",
    "punct": r"\p{P}$+<=>\^`\|\~",
    "space": r"\p{White_Space}",
    "upper": r"\p{Uppercase}",
    "word": r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}",
    "xdigit": r"0-9A-Fa-f",
}
"""Name -> the inner part of a class of `regex`."""
ASCII: Final[dict[str, Ranges]] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": DIGIT,
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": SPACE,
    "upper": ((65, 90),),
    "word": WORD,
    "xdigit": HEX,
}
_AS_IN_ASCII: Final = frozenset({"ascii", "xdigit"})


@dataclass(slots=True)
class Property:
    """A set that only Unicode's tables know; inner: how a class of `regex` spells it."""

    inner: str
    negated: bool = False


@dataclass(slots=True)
class Class:
    """The union of its parts, cut with the classes of `cuts`, and perhaps negated."""

    ranges: list[tuple[int, int]] = field(default_factory=list)
    parts: list[Class | Property] = field(default_factory=list)
    cuts: list[Class] = field(default_factory=list)
    negated: bool = False


def named(name: str, *, negated: bool, ascii_only: bool) -> Class:
    """`[:name:]`. Raises ValueError for an unknown one."""
    if name not in POSIX:
        raise ValueError(f"[:{name}:] is no class")
    if ascii_only or name in _AS_IN_ASCII:
        return Class(ranges=list(ASCII[name]), negated=negated)
    return Class(parts=[Property(POSIX[name], negated)])


def union(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted, without overlaps."""
    out: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if out and low <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], high))
        else:
            out.append((low, high))
    return out


def complement(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """All other code points."""
    out: list[tuple[int, int]] = []
    at = 0
    for low, high in union(ranges):
        if low > at:
            out.append((at, low - 1))
        at = high + 1
    if at <= LAST:
        out.append((at, LAST))
    return out


def resolve(cls: Class, *, icase: bool = False) -> tuple[bool, list[tuple[int, int]]] | None:
    """(negated, ranges) of a class that is made of code points alone; None for another.

    With icase None as well where a set within is negated or cut: case makes more of such a set than its members.
    """
    ranges = list(cls.ranges)
    for part in cls.parts:
        inner = None if isinstance(part, Property) else resolve(part, icase=icase)
        if inner is None or (icase and inner[0]):
            return None
        ranges += complement(inner[1]) if inner[0] else inner[1]
    if cls.cuts:
        if icase:
            return None
        left = complement(ranges)
        for cut in cls.cuts:
            inner = resolve(cut)
            if inner is None:
                return None
            left += inner[1] if inner[0] else complement(inner[1])
        ranges = complement(left)
    return cls.negated, union(ranges)
