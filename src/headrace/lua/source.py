"""Where the code of a handler comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.edge.values import Value, evaluate

if TYPE_CHECKING:
    from headrace.edge.request import Request
    from headrace.lua.runtime import Chunk, Runtime


class Source:
    """Where a handler's code comes from: compiled with the configuration (fixed), or found by the request."""

    def __init__(
        self,
        runtime: Runtime,
        conf: Any,
        *,
        fixed: Chunk | None = None,
        path: Value | None = None,
        prefix: str = "",
        check_abort: bool = False,
        need_body: bool = False,
        cached: bool = True,
    ) -> None:
        self.runtime = runtime
        self.conf = conf
        self.path = path
        self.prefix = prefix
        self.check_abort = check_abort
        self.need_body = need_body
        self.cached = cached
        self.fixed = fixed
        self._loaded: dict[str, Chunk] = {}

    def chunk(self, request: Request) -> Chunk:
        """The code for this request; a file is compiled once unless lua_code_cache is off."""
        if self.fixed is not None:
            return self.fixed
        assert self.path is not None
        name = evaluate(self.path, request).decode("utf-8", "surrogateescape")
        if not name.startswith("/"):
            name = f"{self.prefix.rstrip('/')}/{name}"
        chunk = self._loaded.get(name)
        if chunk is None or chunk.failure is not None:
            chunk = self._loaded[name] = self.runtime.load_file(name, self.conf)
        elif not self.cached:
            chunk = self._loaded[name] = self.runtime.reload_file(chunk, self.conf)
        return chunk
