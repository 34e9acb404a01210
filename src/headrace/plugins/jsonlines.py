"""Many records -> JSON text in one go: what `jsoncodec.encode` writes for each, a few times as fast.

For every output and formatter whose text is JSON with something before and behind it. Records that orjson refuses are
written one by one, by the rules of `jsoncodec`. A slice at a time: what orjson returns keeps 1 KB for as long as it
lives, and a thousand of them are new pages of memory each time.
"""

from __future__ import annotations

from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Final

import orjson

from headrace.plugins.jsoncodec import REJECT, REPLACE, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.pipeline.event import Record

_SLICE: Final = 32


def encode_lines(
    records: Sequence[Record], heads: bytes | Sequence[bytes] = b"", end: bytes = b"\n", policy: str = REPLACE
) -> bytes:
    """JSON of each record, behind its head and before `end`. Raises UnencodableError for the first that has none.

    heads: one for all of them, or one for each.
    """
    if not records:
        return b""
    slices = [records[at : at + _SLICE] for at in range(0, len(records), _SLICE)]
    if isinstance(heads, bytes):
        between = end + heads
        made = [between.join(_texts(some, policy)) for some in slices]
        made[0] = heads + made[0]
        made[-1] += end
        return between.join(made)
    rest = iter(heads)
    return b"".join(
        [
            b"".join(chain.from_iterable(zip(islice(rest, len(some)), _texts(some, policy), repeat(end))))
            for some in slices
        ]
    )


def _texts(records: Sequence[Record], policy: str) -> Iterable[bytes]:
    try:
        texts = list(map(orjson.dumps, records, repeat(None), repeat(orjson.OPT_PASSTHROUGH_SUBCLASS)))
    except TypeError:
        return [encode(record, policy) for record in records]
    # As in `encode`: only a text with a null can hold a NaN.
    if policy == REJECT and any(b"null" in text for text in texts):
        return [encode(record, policy) for record in records]
    return texts
