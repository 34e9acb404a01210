"""Msgpack values one after the other, as clients put records into a body."""

from __future__ import annotations

from typing import Any

from headrace.pipeline.event import UNREADABLE, unpacker


def unpack_flat(data: bytes, *, map_limit: int = -1, array_limit: int = -1) -> list[Any]:
    """Values one after the other, the elements of an array in its place.

    Limits: see `unpacker`. Raises ValueError: malformed, past a limit, or cut short.
    """
    source = unpacker(data, map_limit=map_limit, array_limit=array_limit)
    values: list[Any] = []
    end = 0
    try:
        for value in source:
            # tell() after the loop would count the bytes of a value that is cut short.
            end = source.tell()
            if type(value) is list:
                values += value
            else:
                values.append(value)
    except UNREADABLE as error:
        raise ValueError(str(error) or "nested too deeply") from error
    if end != len(data):
        raise ValueError("cut short")
    return values
