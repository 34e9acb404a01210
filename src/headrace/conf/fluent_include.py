"""Which files an `@include` of fluent.conf names (docs.fluentd.org, Config File Syntax, "@include")."""

from __future__ import annotations

import glob
import os
import re
from urllib.parse import unquote

from headrace.errors import ConfError, Place

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_BRACES_MAX = 1000


def included_paths(uri: str, folder: str, place: Place) -> list[str]:
    """Return the paths that `uri` names, sorted; a pattern or path without a file names none.

    uri: a path or pattern (`*`, `?`, `[...]`, `{a,b}`, `**/`), relative to `folder`, or a file: URI.
    Raises ConfError for http, https and other schemes.
    """
    path = uri
    if match := _SCHEME.match(uri):
        if match[0].lower() != "file:":
            raise ConfError(
                f"@include {uri}: only files can be included",
                place,
                hint="download it when you deploy, and include the file",
            )
        path = re.sub(r"^//[^/]*", "", uri[match.end() :])
    path = os.path.normpath(os.path.join(folder, unquote(path, errors="surrogateescape")))
    if "\0" in path:
        raise ConfError("@include: a path cannot hold a NUL character", place)
    patterns = _braces(path, place)
    return sorted({found for pattern in patterns for found in _glob(pattern, place)})


def _glob(pattern: str, place: Place) -> list[str]:
    try:
        return glob.glob(pattern, recursive=True)
    except (re.error, ValueError, RecursionError) as error:
        raise ConfError(f"@include: bad pattern {pattern}: {error}", place) from None


def _braces(pattern: str, place: Place) -> list[str]:
    """Expand `{a,b}` as Ruby's Dir.glob does."""
    done: list[str] = []
    todo = [pattern]
    while todo:
        if len(todo) + len(done) > _BRACES_MAX:
            raise ConfError("@include: the braces name too many files", place)
        text = todo.pop()
        pair = _inner_braces(text)
        if pair is None:
            done.append(text)
            continue
        begin, end = pair
        todo.extend(text[:begin] + part + text[end + 1 :] for part in text[begin + 1 : end].split(","))
    return done


def _inner_braces(text: str) -> tuple[int, int] | None:
    end = text.find("}")
    while end >= 0:
        begin = text.rfind("{", 0, end)
        if begin >= 0:
            return begin, end
        end = text.find("}", end + 1)
    return None
