"""Nodes of the Ruby subset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class Refused(Exception):
    """No part of the subset. at: the character in the text."""

    def __init__(self, message: str, at: int = -1, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.at = at
        self.hint = hint


@dataclass(slots=True)
class Node:
    """kind: what it is; parts: by kind (see ruby_emit); at: the character at which it begins."""

    kind: str
    parts: tuple[Any, ...]
    at: int


@dataclass(slots=True)
class Block:
    """The block of a call. method: of `&:name`."""

    names: list[str]
    body: Node | None
    method: str = ""
    at: int = 0
