"""Index templates, and what a data stream needs, put in place before the first request that needs them.

Nothing is asked at start, where a cluster that is away would hold everything up: what fails here fails the flush,
and the buffer's retries come back to it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from headrace.errors import Error, Unrecoverable
from headrace.plugins.elastic.cluster import refused

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Hashable, Mapping

    from headrace.plugins.elastic.cluster import Cluster

JSON: Final = "application/json"
DEFAULT_POLICY: Final = {
    "policy": {"phases": {"hot": {"actions": {"rollover": {"max_size": "50gb", "max_age": "30d"}}}}}
}
"""Data streams roll over at 50 GB or 30 days, as the original's do."""


def read(path: str, replaced: Mapping[str, str]) -> bytes:
    """A template's file, with its texts replaced. Raises Unrecoverable when it is no JSON."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        for old, new in replaced.items():
            text = text.replace(old, new.lower())
        json.loads(text)
    except (OSError, ValueError) as error:
        raise Unrecoverable(f"{path}: {error}", kind="template") from error
    return text.encode()


class Templates:
    """The templates of one output. give_up_after: failures after which events are sent without; None: never."""

    def __init__(
        self,
        log: logging.Logger,
        now: Callable[[], float],
        *,
        legacy: bool,
        overwrite: bool,
        give_up_after: int | None,
        forget_after: float | None,
    ) -> None:
        self._log = log
        self._now = now
        self._api = "/_template/" if legacy else "/_index_template/"
        self._overwrite = overwrite
        self._give_up_after = give_up_after
        self._forget_after = forget_after
        self._known: dict[str, float] = {}
        self._failures = 0

    def known(self, name: str) -> bool:
        """Whether a template is known to be there."""
        since = self._known.get(name)
        return since is not None and (self._forget_after is None or self._now() - since < self._forget_after)

    async def install(self, cluster: Cluster, owner: Hashable, name: str, body: Callable[[], bytes]) -> None:
        """Put a template in place, unless it is there. Raises Error."""
        if self.known(name):
            return
        try:
            path = self._api + quote(name, safe="")
            if self._overwrite or not await exists(cluster, owner, path):
                await put(cluster, owner, path, body())
                self._log.info("template %s is installed", name)
        except Error as error:
            self._failures += 1
            if self._give_up_after is None or self._failures <= self._give_up_after or not error.retryable:
                raise
            self._log.warning("template %s is not installed, sending without it: %s", name, error.message)
        self._known[name] = self._now()

    async def once(self, key: str, make: Callable[[], Any]) -> None:
        """Do something else that is needed once. Raises Error."""
        if not self.known(key):
            await make()
            self._known[key] = self._now()


async def exists(cluster: Cluster, owner: Hashable, path: str) -> bool:
    """Whether something is there. Raises Error, retryable, when the answer is neither yes nor no."""
    answer = await cluster.request(owner, "GET", path)
    if answer.status == 404:
        return False
    if not 200 <= answer.status < 300:
        raise refused(answer, path)
    return True


async def put(cluster: Cluster, owner: Hashable, path: str, body: bytes = b"") -> None:
    """Create something. Raises Error; what is there already counts as done."""
    answer = await cluster.request(owner, "PUT", path, JSON if body else "", body)
    if 200 <= answer.status < 300 or b"already_exists_exception" in answer.body:
        return
    raise refused(answer, path)
