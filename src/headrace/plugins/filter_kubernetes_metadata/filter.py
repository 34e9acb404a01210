"""The filter `kubernetes_metadata`: the way of a batch."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from headrace.pipeline.event import Batch
from headrace.plugins.filter_kubernetes_metadata.api import Api
from headrace.plugins.filter_kubernetes_metadata.lookup import Lookup
from headrace.plugins.filter_kubernetes_metadata.metadata import CONTAINERS, Wanted
from headrace.plugins.filter_kubernetes_metadata.parameters import KubernetesParameters
from headrace.plugins.filter_kubernetes_metadata.watch import NODE, Watch

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.pipeline.context import Context
    from headrace.pipeline.event import Record
    from headrace.plugins.filter_kubernetes_metadata.metadata import Fields

KEPT: Final = 4096
"""Tags whose names are remembered."""


class Names(NamedTuple):
    """Who wrote a record. key: the id of the container or pod. docker_id: of the container, where it is known."""

    namespace: str
    pod: str
    container: str
    key: str
    docker_id: str | None


class KubernetesMetadataFilter(KubernetesParameters):
    """Adds what Kubernetes knows."""

    waits: ClassVar[bool] = True

    def provision(self, context: Context) -> None:
        """Prepare."""
        self._of_tags: dict[str, Names | None] = {}
        self._lookup: Lookup | None = None
        self._api: Api | None = None
        self._watches: list[Watch] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._told = 0.0

    async def start(self) -> None:
        """Watch from now on, where there is an API server."""
        if self._endpoint is None:
            return
        context, clock = self.context, self.context.clock
        self._told = clock.now()
        api = self._api = Api(
            context,
            self._endpoint,
            self.api_version,
            tls=self._tls,
            token_file=self.bearer_token_file,
            open_timeout=self.open_timeout,
            read_timeout=self.read_timeout,
        )
        wanted = Wanted(
            pod_labels=not (self.skip_labels or self.skip_pod_labels),
            namespace_labels=not (self.skip_labels or self.skip_namespace_labels),
            annotations=self._annotations,
            containers=not self.skip_container_metadata,
            owners=self.include_ownerrefs_metadata,
            url=None if self.skip_master_url else self._url,
        )
        lookup = self._lookup = Lookup(
            api,
            wanted,
            size=self.cache_size,
            ttl=None if self.cache_ttl < 0 else self.cache_ttl,
            namespaces=not self.skip_namespace_metadata,
            orphan=self._orphan,
            now=clock.now,
            log=self.log,
        )
        if not self.watch:
            return
        common: dict[str, Any] = {
            "clock": clock,
            "log": self.log,
            "interval": self.watch_retry_interval,
            "base": self.watch_retry_exponential_backoff_base,
            "most": self.watch_retry_max_times,
        }
        pods = Watch(api, "pods", lookup.put_pod, lookup.knows_pod, selected=True, **common)
        self._watches = [pods]
        if not self.skip_namespace_metadata:
            put, knows = lookup.put_namespace, lookup.knows_namespace
            self._watches.append(Watch(api, "namespaces", put, knows, selected=False, **common))
        if pods.everywhere:
            self.log.warning("%s is not set: the pods of all nodes are listed and watched", NODE)
        self._tasks = [context.loop.create_task(watch.run()) for watch in self._watches]

    def _orphan(self, namespace: str) -> Fields:
        if not self.allow_orphans:
            return {}
        return {
            "orphaned_namespace": namespace,
            "namespace_name": self.orphaned_namespace_name,
            "namespace_id": self.orphaned_namespace_id,
        }

    def filter_batch(self, tag: str, batch: Batch) -> Batch:
        """What goes on, without asking anybody."""
        names = self._names(tag, batch)
        return batch if names is None else self._merge(batch, names, {})

    def filter_later(self, tag: str, batch: Batch) -> Batch | Awaitable[Batch]:
        """What goes on: now, when all is known, else when it has been asked for."""
        names = self._names(tag, batch)
        if names is None:
            return batch
        lookup = self._lookup
        if lookup is None:
            return self._merge(batch, names, {})
        if self.stats_interval > 0 and self.context.clock.now() - self._told >= self.stats_interval:
            self._told = self.context.clock.now()
            self.log.info("stats - %s", ", ".join(f"{name}: {value}" for name, value in lookup.stats().items()))
        known: dict[Names, Fields] = {}
        missing: dict[Names, int] = {}
        for one, (time, _record) in zip(names, batch.events(), strict=True):
            if one is None or one in known or one in missing:
                continue
            found = lookup.known(one.key, one.namespace, one.pod)
            if found is None:
                missing[one] = time
            else:
                known[one] = found
        return self._ask(batch, names, known, missing) if missing else self._merge(batch, names, known)

    async def _ask(
        self, batch: Batch, names: list[Names | None], known: dict[Names, Fields], missing: dict[Names, int]
    ) -> Batch:
        assert self._lookup is not None
        ask = self._lookup.ask
        answers = await asyncio.gather(*[ask(one.key, one.namespace, one.pod, time) for one, time in missing.items()])
        known.update(zip(missing, answers, strict=True))
        return self._merge(batch, names, known)

    def _names(self, tag: str, batch: Batch) -> list[Names | None] | None:
        """Who wrote each record; None when nothing tells it for any."""
        by_tag = self._of_tags[tag] if tag in self._of_tags else self._of_tag(tag)
        if not self.lookup_from_k8s_field:
            return None if by_tag is None else [by_tag] * len(batch.events())
        found = [_of_record(record) or by_tag for _time, record in batch.events()]
        return None if by_tag is None and not any(found) else found

    def _of_tag(self, tag: str) -> Names | None:
        groups = self._pattern.match(tag)
        made: Names | None = None
        if groups is not None:
            docker_id = groups.get("docker_id")
            key = groups.get("pod_uuid") or docker_id or f"{groups.get('namespace')}_{groups.get('pod_name')}"
            made = Names(
                groups.get("namespace") or "",
                groups.get("pod_name") or "",
                groups.get("container_name") or "",
                key,
                docker_id,
            )
        if len(self._of_tags) >= KEPT:
            self._of_tags.clear()
        self._of_tags[tag] = made
        return made

    def _merge(self, batch: Batch, names: list[Names | None], known: dict[Names, Fields]) -> Batch:
        added = {one: self._added(one, known.get(one, {})) for one in set(names) if one is not None}
        return Batch.of(
            [
                (time, record if one is None else {**record, **added[one]})
                for one, (time, record) in zip(names, batch.events(), strict=True)
            ]
        )

    def _added(self, names: Names, pod: Fields) -> Record:
        """What goes into a record; records of one pod share it."""
        kubernetes: Fields = {
            "container_name": names.container,
            "namespace_name": names.namespace,
            "pod_name": names.pod,
        }
        docker_id = names.docker_id
        container = pod.get(CONTAINERS, {}).get(names.container)
        if container is not None and not self.skip_container_metadata:
            kubernetes["container_image"] = container["container_image"]
            if container["container_image_id"]:
                kubernetes["container_image_id"] = container["container_image_id"]
            docker_id = container["container_id"] or docker_id
        kubernetes.update({name: value for name, value in pod.items() if name != CONTAINERS})
        made: Record = {"kubernetes": kubernetes}
        if docker_id:
            made["docker"] = {"container_id": docker_id}
        return made

    async def stop(self) -> None:
        """End watches and questions; what waits goes on without answers."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._lookup is not None:
            await self._lookup.stop()
        if self._api is not None:
            self._api.close()

    def stats(self) -> dict[str, Any]:
        """The caches, the questions, the watches, the connections."""
        if self._lookup is None or self._api is None:
            return {}
        return {
            **self._lookup.stats(),
            "watch_notices": sum(watch.notices for watch in self._watches),
            "watch_failures": sum(watch.failures for watch in self._watches),
            "connections": self._api.stats(),
        }


def _of_record(record: Record) -> Names | None:
    """Who wrote a record, by its own fields."""
    kubernetes, docker = record.get("kubernetes"), record.get("docker")
    if not isinstance(kubernetes, dict) or not isinstance(docker, dict):
        return None
    found = [kubernetes.get(name) for name in ("namespace_name", "pod_name", "container_name")]
    found.append(docker.get("container_id"))
    if not all(isinstance(value, str) and value for value in found):
        return None
    namespace, pod, container, id_ = map(str, found)
    return Names(namespace, pod, container, id_, id_)
