"""The caches kept up to date: a list first, then what changes, as long as the filter runs.

https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from headrace.plugins.filter_kubernetes_metadata.api import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.core.clock import Clock
    from headrace.plugins.filter_kubernetes_metadata.api import Api

    Object = dict[str, Any]

GONE = 410
PAGE = 500
"""Pods of one answer, where those of all nodes are listed."""
NODE = "K8S_NODE_NAME"
"""Environment variable with the name of this node: only its pods are listed and watched."""


class Watch:
    """One kind of objects. put, knows: of the cache. selected: only the objects of this node."""

    def __init__(
        self,
        api: Api,
        kind: str,
        put: Callable[[Object], object],
        knows: Callable[[Object], bool],
        *,
        selected: bool,
        clock: Clock,
        log: logging.Logger,
        interval: float,
        base: float,
        most: int,
    ) -> None:
        self._api = api
        self._kind = kind
        self._put = put
        self._knows = knows
        node = os.environ.get(NODE, "").strip() if selected else ""
        self._node = node or None
        self.everywhere = selected and not node
        """The objects of all nodes are watched, because nobody says which node this is."""
        self._query = {"fieldSelector": f"spec.nodeName={node}"} if node else {}
        self._clock = clock
        self._log = log
        self._interval = interval
        self._base = base
        self._most = most
        self._retries = 0
        self.notices = 0
        self.failures = 0

    async def run(self) -> None:
        """List and watch, until cancelled."""
        while True:
            try:
                await self._round()
            except ApiError as error:
                if error.status == GONE:
                    self._log.info("410 Gone: the watch of %s begins anew", self._kind)
                    wait = 0.0 if not self._retries else self._interval
                    self._retries += 1
                else:
                    self.failures += 1
                    wait = self._interval * self._base ** min(self._retries, self._most)
                    level = logging.INFO if self._retries < self._most else logging.ERROR
                    self._retries += 1
                    self._log.log(level, "the watch of %s ended, again in %g s: %s", self._kind, wait, error.message)
                await self._clock.sleep(wait)

    async def _round(self) -> None:
        """One list, and watches from there on. Raises ApiError."""
        version = await self._list()
        while True:
            began, before = self._clock.now(), self.notices
            async for notice in self._api.watch(self._kind, resourceVersion=version, **self._query):
                version = self._take(notice) or version
            if self.notices == before and self._clock.now() - began < self._interval:
                await self._clock.sleep(self._interval)  # a server that ends it at once is not asked without end

    async def _list(self) -> str:
        """Take the whole list, page by page where it may be long; returns its version. Raises ApiError."""
        # A node's pods come from the server's own cache, which knows no pages.
        query = {"limit": str(PAGE)} if self.everywhere else {"resourceVersion": "0"}
        more = ""
        while True:
            page = {"continue": more} if more else {}
            listed = await self._api.get(self._kind, **query, **self._query, **page)
            for item in listed.get("items") or []:
                self._keep(item)
            meta = listed.get("metadata") or {}
            more = str(meta.get("continue") or "")
            if not more:
                return str(meta.get("resourceVersion") or "0")

    def _take(self, notice: Object) -> str | None:
        """One notice; returns the version that it brings. Raises ApiError."""
        self.notices += 1
        type_, found = notice.get("type"), notice.get("object")
        if not isinstance(found, dict):
            return None
        if type_ == "ERROR":
            code = found.get("code")
            raise ApiError(f"error while watching {self._kind}: {found.get('message')}", code if code == GONE else 0)
        self._retries = 0
        if type_ == "MODIFIED" and (self._knows(found) or self._is_here(found)):
            self._keep(found)
        # What is deleted may still have lines to read, and ages out; what is new may never run here.
        version = (found.get("metadata") or {}).get("resourceVersion")
        return str(version) if version else None

    def _is_here(self, found: Object) -> bool:
        return self._node is not None and (found.get("spec") or {}).get("nodeName") == self._node

    def _keep(self, found: Any) -> None:
        try:
            self._put(found)
        except (ValueError, AttributeError) as error:
            self._log.warning("one of %s is not understood: %s", self._kind, error)
