# ruff: noqa: D102 - parameters of the source `forward`, and attributes of Plugin
"""What a forward server asks the source that it serves for: `forward`, or `unix`, which has fewer parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import logging

    from headrace.pipeline.context import Context
    from headrace.pipeline.plugin import ListenSpec
    from headrace.pipeline.router import Router
    from headrace.plugins.in_forward.security import Security
    from headrace.plugins.transport import Transport


class Served(Protocol):
    """A source, as its server sees it."""

    @property
    def router(self) -> Router: ...
    @property
    def context(self) -> Context: ...
    @property
    def log(self) -> logging.Logger: ...
    @property
    def plugin_id(self) -> str: ...
    @property
    def listen(self) -> ListenSpec: ...
    @property
    def transport(self) -> Transport: ...
    @property
    def security(self) -> Security: ...
    @property
    def deny_keepalive(self) -> bool: ...
    @property
    def keeps_alive(self) -> bool: ...
    @property
    def resolve_hostname(self) -> bool | None: ...
    @property
    def source_hostname_key(self) -> str | None: ...
    @property
    def source_address_key(self) -> str | None: ...
    @property
    def chunk_size_limit(self) -> int | None: ...
    @property
    def chunk_size_warn_limit(self) -> int | None: ...
    @property
    def unfinished_size_limit(self) -> int: ...
