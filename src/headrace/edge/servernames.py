"""Which virtual server a host name belongs to.

Exact names first, then the longest wildcard at the head (`*.example.com`), then the longest at the tail
(`mail.*`), then regular expressions in their order, then the default server.
https://nginx.org/en/docs/http/server_names.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import re

S = TypeVar("S")


@dataclass(frozen=True)
class ServerName:
    """One name of a server. kind: "exact", "head" (*.x), "dot" (.x: x and *.x), "tail" (x.*), "regex" or "none"."""

    kind: str
    text: str
    pattern: re.Pattern[bytes] | None = None

    @property
    def shown(self) -> bytes:
        """The name as `$server_name` gives it."""
        text = {"head": f"*.{self.text}", "tail": f"{self.text}.*"}.get(self.kind, self.text)
        return text.encode("utf-8", "surrogateescape")


class NameTable(Generic[S]):
    """The names of the servers on one address."""

    def __init__(self, default: S) -> None:
        self.default = default
        self._exact: dict[bytes, S] = {}
        self._heads: dict[bytes, S] = {}
        self._tails: dict[bytes, S] = {}
        self._regexes: list[tuple[re.Pattern[bytes], S]] = []

    def add(self, name: ServerName, server: S) -> bool:
        """Add a name; False when another server has it already (the first one keeps it)."""
        if name.kind == "regex":
            assert name.pattern is not None
            self._regexes.append((name.pattern, server))
            return True
        if name.kind == "none":
            return True
        key = name.text.encode("utf-8", "surrogateescape")
        tables = {
            "exact": (self._exact,),
            "head": (self._heads,),
            "dot": (self._exact, self._heads),
            "tail": (self._tails,),
        }[name.kind]
        fresh = all(key not in table for table in tables)
        for table in tables:
            table.setdefault(key, server)
        return fresh

    @property
    def only_default(self) -> bool:
        """True when every name leads to the default server."""
        tables = (self._exact, self._heads, self._tails)
        return not self._regexes and all(s is self.default for table in tables for s in table.values())

    def find(self, host: bytes) -> tuple[S, re.Match[bytes] | None]:
        """The server of a host (lower case, no port), and the match when a regular expression decided."""
        return self.search(host) or (self.default, None)

    def search(self, host: bytes) -> tuple[S, re.Match[bytes] | None] | None:
        """As find; None when no name fits."""
        found = self._exact.get(host)
        if found is not None:
            return found, None
        if self._heads:
            dot = host.find(b".")
            while dot >= 0:
                found = self._heads.get(host[dot + 1 :])
                if found is not None:
                    return found, None
                dot = host.find(b".", dot + 1)
        if self._tails:
            dot = host.rfind(b".")
            while dot >= 0:
                found = self._tails.get(host[:dot])
                if found is not None:
                    return found, None
                dot = host.rfind(b".", 0, dot)
        for pattern, server in self._regexes:
            match = pattern.search(host)
            if match is not None:
                return server, match
        return None
