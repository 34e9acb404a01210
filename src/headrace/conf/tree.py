"""One tree for both configuration languages.

A directive is a name with arguments and perhaps a block. In nginx.conf `listen 80;` is
Directive("listen", ("80",)), a block holds its children, and a Lua block is kept verbatim in `text`.
In fluent.conf `flush_interval 10s` is Directive("flush_interval", ("10s",)) and `<match a.**>` is
Directive("match", ("a.**",), block=(...)). Nodes are immutable: a plan may share them freely.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from headrace.errors import Place


@dataclass(frozen=True, slots=True)
class Directive:
    """One directive or section of a configuration.

    args: the arguments after quoting and escapes are resolved (str with surrogateescape for bytes
    that are not UTF-8). block: the children, or None where the directive has no block. text: the
    verbatim body of a `*_by_lua_block`. values: for fluent.conf, the parsed literal of each argument
    (str, int, float, bool, None for use_nil, list, dict, or conf.params.USE_DEFAULT). text_line: where text begins.
    """

    name: str
    args: tuple[str, ...]
    file: str
    line: int
    block: tuple[Directive, ...] | None = None
    text: str | None = None
    values: tuple[object, ...] = ()
    text_line: int = field(default=0, compare=False)

    @property
    def place(self) -> Place:
        """Where the directive begins."""
        return Place(self.file, self.line)

    def children(self, name: str) -> Iterator[Directive]:
        """The directives of the block that have this name."""
        return (child for child in self.block or () if child.name == name)
