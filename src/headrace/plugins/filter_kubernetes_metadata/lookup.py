"""What is known about pods and namespaces, and the questions that are under way.

A question is asked once, however many batches wait for its answer. What is not found, and what could not be asked, is
an answer too, for `AGAIN` seconds: a server that is away must not be asked for every record.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from headrace.pipeline.throttle import Throttle
from headrace.plugins.filter_kubernetes_metadata.api import ApiError
from headrace.plugins.filter_kubernetes_metadata.cache import Cache
from headrace.plugins.filter_kubernetes_metadata.metadata import CONTAINERS, CREATED
from headrace.plugins.time_parse import any_form

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.plugins.filter_kubernetes_metadata.api import Api
    from headrace.plugins.filter_kubernetes_metadata.metadata import Fields, Wanted

AGAIN: Final = 10.0
"""Seconds after which what was not found is asked for again."""

_time_of = any_form(None)


class Lookup:
    """The caches, and the questions to one API server.

    namespaces: ask for them too. orphan: the fields of a record of a namespace (its name) nobody knows; {} for none.
    """

    def __init__(
        self,
        api: Api,
        wanted: Wanted,
        *,
        size: int,
        ttl: float | None,
        namespaces: bool,
        orphan: Callable[[str], Fields],
        now: Callable[[], float],
        log: logging.Logger,
    ) -> None:
        self._api = api
        self._wanted = wanted
        self._with_namespaces = namespaces
        self._orphan = orphan
        self._log = log
        self._failures = Throttle()
        self._pods: Cache[Fields] = Cache(size, ttl, now)
        self._uids: Cache[str] = Cache(size, ttl, now)
        """Container's id, or whatever a tag has -> uid of its pod."""
        self._namespaces: Cache[Fields] = Cache(size, ttl, now)
        self._missed: Cache[Fields] = Cache(size, AGAIN, now)
        self._asking: dict[tuple[str, str, str], asyncio.Task[Fields]] = {}
        self.counts: Counter[str] = Counter()

    # What a watch, or a list, tells.

    def put_pod(self, found: Fields) -> Fields:
        """Remember a pod. Raises ValueError when it is none."""
        fields = self._wanted.pod(found)
        uid = fields["pod_id"]
        self._pods.put(uid, fields)
        for container in fields.get(CONTAINERS, {}).values():
            if container["container_id"]:
                self._uids.put(container["container_id"], uid)
        return fields

    def knows_pod(self, found: Fields) -> bool:
        """Whether a pod is remembered."""
        meta = found.get("metadata")
        return isinstance(meta, dict) and self._pods.get(str(meta.get("uid"))) is not None

    def put_namespace(self, found: Fields) -> Fields:
        """Remember a namespace. Raises ValueError when it is none."""
        fields = self._wanted.namespace(found)
        self._namespaces.put(str(found["metadata"].get("name")), fields)
        return fields

    def knows_namespace(self, found: Fields) -> bool:
        """Whether a namespace is remembered."""
        meta = found.get("metadata")
        return isinstance(meta, dict) and self._namespaces.get(str(meta.get("name"))) is not None

    # What a batch wants to know.

    def known(self, key: str, namespace: str, pod: str) -> Fields | None:
        """The fields for a container, pod or whatever `key` is the id of; None: they must be asked for."""
        found = self._pods.get(self._uids.get(key) or key)
        if found is not None and not self._with_namespaces:
            return found
        about = self._namespaces.get(namespace) if found is not None else None
        if found is not None and about is not None:
            return _merged(found, about)
        return self._missed.get(f"{namespace}_{pod}")

    async def ask(self, key: str, namespace: str, pod: str, time: int) -> Fields:
        """Ask, and return the fields. time: of the event, in nanoseconds."""
        name = (key, namespace, pod)
        task = self._asking.get(name)
        if task is None:
            task = self._asking[name] = asyncio.get_running_loop().create_task(self._answer(key, namespace, pod, time))
            task.add_done_callback(lambda _task: self._asking.pop(name, None))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():  # the end: the record goes on with what its tag says
                return {}
            raise

    async def _answer(self, key: str, namespace: str, pod: str, time: int) -> Fields:
        found = self._pods.get(self._uids.get(key) or key) or await self._pod(namespace, pod)
        if found is not None:
            self._uids.put(key, found["pod_id"])
            if not self._with_namespaces:
                return found
        elif not self._with_namespaces:
            return self._miss(namespace, pod, {})
        about = self._namespaces.get(namespace) or await self._namespace(namespace)
        if found is not None and about is not None:
            return _merged(found, about)
        if found is None and about is not None:
            self.counts["pods_not_found_in_namespace"] += 1
            # The namespace may be a later one of the same name.
            own = {"pod_id": key} if _began(about) <= time else {}
            return self._miss(namespace, pod, _merged(own, about))
        self.counts["orphaned"] += 1
        return self._miss(namespace, pod, self._orphan(namespace))

    def _miss(self, namespace: str, pod: str, fields: Fields) -> Fields:
        self._missed.put(f"{namespace}_{pod}", fields)
        return fields

    async def _pod(self, namespace: str, pod: str) -> Fields | None:
        self.counts["pods_asked"] += 1
        try:
            return self.put_pod(await self._api.pod(namespace, pod))
        except (ApiError, ValueError) as error:
            self._failed(f"pod {namespace}/{pod}", error)
            return None

    async def _namespace(self, namespace: str) -> Fields | None:
        self.counts["namespaces_asked"] += 1
        try:
            return self.put_namespace(await self._api.namespace(namespace))
        except (ApiError, ValueError) as error:
            self._failed(f"namespace {namespace}", error)
            return None

    def _failed(self, what: str, error: Exception) -> None:
        if isinstance(error, ApiError) and error.status == 404:
            self.counts["not_found"] += 1
            self._log.debug("%s is not found", what)
            return
        self.counts["failures"] += 1
        self._failures.log(self._log, logging.ERROR, "%s cannot be asked for: %s", what, error)

    async def stop(self) -> None:
        """End all questions; who waits for an answer goes on without it."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def stats(self) -> dict[str, Any]:
        """Sizes of the caches, and what became of questions."""
        return {"pod_cache": len(self._pods), "namespace_cache": len(self._namespaces), **self.counts}


def _merged(pod: Fields, namespace: Fields) -> Fields:
    return {**pod, **{name: value for name, value in namespace.items() if name != CREATED}}


def _began(namespace: Fields) -> int:
    try:
        return _time_of(str(namespace.get(CREATED)))
    except ValueError:
        return 0
