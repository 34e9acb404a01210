"""Where an output file goes: the template of its path, and what may be put into it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from headrace.errors import Unrecoverable

if TYPE_CHECKING:
    from collections.abc import Callable

INDEX: Final = "_**"
"""Stands in a template for `_0`, `_1`, ...: the first that is free."""
SUFFIXES: Final = {"text": "", "gz": ".gz", "gzip": ".gz", "zstd": ".zstd"}
_TIME_FORMATS: Final = ((60, "%Y%m%d%H%M%S"), (3600, "%Y%m%d%H%M"), (86400, "%Y%m%d%H"))


def template_of(
    path: str, *, timekey: int | None, append: bool, suffix: str, compress: str, slices: str | None = None
) -> str:
    """The template of the files for a `path` (docs.fluentd.org, Output Plugins, file). Raises ValueError.

    The time slice and, unless files are appended to, an index are put where a `*` stands, or at the end.
    slices: the form of the time slice, where it is not that of timekey.
    """
    index = "" if append else INDEX
    end = SUFFIXES[compress]
    if "*" in path:
        if timekey is None:
            raise ValueError('a path with "*" needs the chunk key time')
        return path.replace("*", (slices or _time_format(timekey)) + index) + end
    if timekey is None:
        return path + index + suffix + end
    if slices:
        return f"{path}.{slices}{index}{suffix}{end}"
    format_ = _time_format(timekey)
    parts = [format_[at : at + 2] for at in range(0, len(format_), 2)]
    missing = [part for part in parts if part not in path]
    if len(missing) == len(parts):
        return f"{path}.{format_}{index}{suffix}{end}"
    if missing:
        raise ValueError(f"the path has some placeholders of the time slice, but not {', '.join(missing)}")
    return path + index + suffix + end


def _time_format(timekey: int) -> str:
    return next((format_ for limit, format_ in _TIME_FORMATS if timekey < limit), "%Y%m%d")


def resolve(template: str, extract: Callable[[str], str]) -> list[str]:
    """The template with a chunk's values, cut where the index belongs.

    Tags and fields come from outside: they may name a folder below the one that the template names, and never
    one beside or above it. Raises Unrecoverable.
    """
    parts = [extract(part) for part in template.split(INDEX)]
    whole = INDEX.join(parts)
    steps = whole.split("/")
    if (
        steps.count("..") > template.split("/").count("..")
        or (os.path.isabs(whole) and not os.path.isabs(template))
        or "\0" in whole
    ):
        raise Unrecoverable(f"the values of a chunk lead out of the folder of {template}: {whole!r}", kind="path")
    return parts


def writable(template: str) -> str | None:
    """None when files can be made below the fixed part of a template, else the folder that forbids it."""
    folder = os.path.dirname(template.partition("${")[0].partition("%")[0]) or "."
    while not os.path.exists(folder):
        folder = os.path.dirname(folder) or "."
    return None if os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK) else folder
