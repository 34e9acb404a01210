"""The kubernetes_metadata filter, against a scripted API server."""

import asyncio
import contextlib
import json

import pytest
from eco_rig import TIME, batch
from http_rig import Taken, context_of, make, problems_of

from headrace.core.clock import Clock
from headrace.plugins.filter_kubernetes_metadata.cache import Cache
from headrace.plugins.filter_kubernetes_metadata.parameters import DEFAULT_PATTERN, TagPattern
from headrace.testing.contracts import check_filter
from headrace.testing.origin import Origin, Reply, ok

DOCKER = "f" * 64
TAG = f"kubernetes.var.log.containers.web-1_prod_nginx-{DOCKER}.log"
POD_TAG = "kubernetes.var.log.pods.prod_web-1_uid-1.nginx.0.log"
POD = {
    "metadata": {
        "name": "web-1",
        "namespace": "prod",
        "uid": "uid-1",
        "labels": {"app": "web"},
        "annotations": {"team/name": "a", "other": "b"},
        "ownerReferences": [{"kind": "ReplicaSet", "name": "web", "uid": "x"}],
        "resourceVersion": "5",
    },
    "spec": {"nodeName": "node-1"},
    "status": {
        "podIP": "10.0.0.1",
        "containerStatuses": [
            {"name": "nginx", "image": "nginx:1", "imageID": "sha256:1", "containerID": f"containerd://{DOCKER}"}
        ],
    },
}
NAMESPACE = {
    "metadata": {
        "name": "prod",
        "uid": "ns-1",
        "labels": {"env": "prod"},
        "creationTimestamp": "2020-01-01T00:00:00Z",
        "resourceVersion": "3",
    }
}
FULL = {
    "container_name": "nginx",
    "namespace_name": "prod",
    "pod_name": "web-1",
    "container_image": "nginx:1",
    "container_image_id": "sha256:1",
    "pod_id": "uid-1",
    "pod_ip": "10.0.0.1",
    "host": "node-1",
    "labels": {"app": "web"},
    "namespace_id": "ns-1",
    "namespace_labels": {"env": "prod"},
}


class Server:
    """An API server. objects: path -> object, or (status, reason)."""

    def __init__(self, **options):
        self.objects = {"namespaces/prod/pods/web-1": POD, "namespaces/prod": NAMESPACE}
        self.lists = {"pods": [], "namespaces": []}
        self.watches = {"pods": [], "namespaces": []}
        self.asked = []
        self.queries = []
        self.delay = 0.0
        vars(self).update(options)

    def __call__(self, request):
        path, _, query = request.target.partition("?")
        path = path.removeprefix("/api/v1/")
        self.queries.append((path, query))
        if path in self.lists:
            if "watch=true" in query:
                notices = self.watches[path]
                if not notices:
                    return Reply(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", hold=True)
                found = notices.pop(0)
                if isinstance(found, Reply):
                    return found
                lines = b"".join(json.dumps(notice).encode() + b"\n" for notice in found)
                head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                half = len(lines) // 2
                pieces = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (lines[:half], lines[half:]) if p)
                return Reply(head + pieces, hold=True)
            body = {"items": self.lists[path], "metadata": {"resourceVersion": "9"}}
            return ok(json.dumps(body).encode())
        self.asked.append(path)
        found = self.objects.get(path, (404, "Not Found"))
        if isinstance(found, Reply):
            return found
        if isinstance(found, tuple):
            return ok(b'{"kind":"Status"}', status=f"{found[0]} {found[1]}")
        reply = ok(json.dumps(found).encode())
        reply.delay = self.delay
        return reply


class Running:
    def __init__(self, plugin, context, taken):
        self.plugin, self.context, self.taken = plugin, context, taken

    async def emit(self, tag, *records, time=TIME):
        outcome = self.context.root.emit(tag, batch(*records, time=time))
        if outcome is not None:
            async with asyncio.timeout(20):
                await outcome
        return outcome is not None

    @property
    def last(self):
        return self.taken.records[-1]

    async def until(self, condition):
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def running(server=None, more="watch false", url="{}/api"):
    async with contextlib.AsyncExitStack() as stack:
        text = more
        if server is not None:
            origin = await stack.enter_async_context(Origin(server))
            text += f"\nkubernetes_url {url.format(origin.url())}"
        context = context_of()
        plugin = make(
            "filter", f"<filter **>\n@type kubernetes_metadata\nsecret_dir /nowhere\n{text}\n</filter>", context
        )
        taken = Taken()
        context.root.add_filter("**", plugin)
        context.root.add_output("**", taken)
        loop = asyncio.get_running_loop()
        context.run_on(loop, Clock(loop), {})
        await plugin.start()
        try:
            yield Running(plugin, context, taken)
        finally:
            await plugin.stop()
            await plugin.close()


@pytest.fixture(autouse=True)
def nowhere(monkeypatch):
    for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "K8S_NODE_NAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("tag", [TAG, POD_TAG])
async def test_all_that_is_known_goes_into_the_record(tag):
    server = Server()
    async with running(server) as filter_:
        assert await filter_.emit(tag, {"log": "a"}, {"log": "b"})
        url = filter_.plugin._url
        assert filter_.taken.records == [
            {"log": log, "docker": {"container_id": DOCKER}, "kubernetes": {**FULL, "master_url": url}}
            for log in ("a", "b")
        ]
        assert server.asked == ["namespaces/prod/pods/web-1", "namespaces/prod"]
        assert server.queries[0][1] == "resourceVersion=0"
        assert not await filter_.emit(tag, {"log": "c"})  # known: nothing waits
        assert len(server.asked) == 2


async def test_without_a_server_only_the_names():
    async with running() as filter_:
        assert not await filter_.emit(TAG, {"log": "a"})
        names = {"container_name": "nginx", "namespace_name": "prod", "pod_name": "web-1"}
        assert filter_.last == {"log": "a", "docker": {"container_id": DOCKER}, "kubernetes": names}
        await filter_.emit("other", {"log": "a"})
        assert filter_.last == {"log": "a"}


async def test_what_is_left_out():
    more = """
        watch false
        skip_labels true
        skip_container_metadata true
        skip_master_url true
        skip_namespace_metadata true
        include_ownerrefs_metadata true
        annotation_match ^team
    """
    server = Server()
    async with running(server, more) as filter_:
        await filter_.emit(POD_TAG, {})
        assert server.asked == ["namespaces/prod/pods/web-1"]
        assert filter_.last == {
            "kubernetes": {
                "container_name": "nginx",
                "namespace_name": "prod",
                "pod_name": "web-1",
                "pod_id": "uid-1",
                "pod_ip": "10.0.0.1",
                "host": "node-1",
                "annotations": {"team/name": "a"},
                "ownerrefs": [{"kind": "ReplicaSet", "name": "web"}],
            }
        }


async def test_fields_of_the_record():
    server = Server()
    own = {"kubernetes": {"namespace_name": "prod", "pod_name": "web-1", "container_name": "nginx"}}
    own["docker"] = {"container_id": "abc"}
    async with running(server) as filter_:
        await filter_.emit("journal", {"log": "a", **own}, {"log": "b"})
        assert filter_.taken.records[0]["kubernetes"]["labels"] == {"app": "web"}
        assert filter_.taken.records[0]["docker"] == {"container_id": DOCKER}
        assert filter_.taken.records[1] == {"log": "b"}
    async with running(server, "watch false\nlookup_from_k8s_field false") as filter_:
        await filter_.emit("journal", {"log": "a", **own})
        assert filter_.last == {"log": "a", **own}


@pytest.mark.parametrize(
    ("allow", "expected"),
    [
        ("true", {"orphaned_namespace": "prod", "namespace_name": ".orphaned", "namespace_id": "orphaned"}),
        ("false", {"namespace_name": "prod"}),
    ],
)
async def test_orphans_are_not_asked_for_with_every_record(allow, expected):
    server = Server(objects={})
    async with running(server, f"watch false\nallow_orphans {allow}") as filter_:
        for _ in range(3):
            await filter_.emit(TAG, {})
        assert expected.items() <= filter_.last["kubernetes"].items()
        assert len(server.asked) == 2
        assert filter_.plugin.stats()["orphaned"] == 1


@pytest.mark.parametrize(("created", "pod_id"), [("2020-01-01T00:00:00Z", DOCKER), ("2030-01-01T00:00:00Z", None)])
async def test_a_pod_that_is_gone_and_its_namespace(created, pod_id):
    namespace = {"metadata": {**NAMESPACE["metadata"], "creationTimestamp": created}}
    async with running(Server(objects={"namespaces/prod": namespace})) as filter_:
        await filter_.emit(TAG, {})
        assert filter_.last["kubernetes"].get("pod_id") == pod_id
        assert filter_.last["kubernetes"]["namespace_id"] == "ns-1"
        assert "creation_timestamp" not in filter_.last["kubernetes"]


@pytest.mark.parametrize(
    "reply",
    [
        (500, "Oops"),
        (429, "Too Many"),
        Reply(b"", reset=True),
        ok(b"<html>"),
        ok(b"[]"),
        ok(b"{}"),
        Reply(b"HTTP/1.1 2", close=True),
    ],
)
async def test_a_server_that_fails_holds_nothing_up_and_is_not_asked_at_once_again(reply, caplog):
    server = Server(objects={"namespaces/prod/pods/web-1": reply, "namespaces/prod": reply})
    async with running(server) as filter_:
        await filter_.emit(TAG, {"log": 1})
        count = len(server.asked)
        await filter_.emit(TAG, {"log": 2})
        assert len(server.asked) == count
        assert [record["log"] for record in filter_.taken.records] == [1, 2]
        assert filter_.plugin.stats()["failures"] == 2
    assert "cannot be asked for" in caplog.text


async def test_a_silent_server_is_waited_for_only_so_long():
    async with running(
        Server(objects={"namespaces/prod/pods/web-1": Reply(b"", hold=True)}), "watch false\nread_timeout 1"
    ) as filter_:
        await filter_.emit(TAG, {"log": 1})
        assert filter_.last["kubernetes"]["orphaned_namespace"] == "prod"


async def test_one_question_for_many_batches_and_order_is_kept():
    server = Server(delay=0.05)
    other = TAG.replace("web-1", "web-2")
    async with running(server) as filter_:
        emits = [filter_.emit(TAG, {"n": n}) for n in range(20)] + [filter_.emit(other, {"n": 100})]
        await asyncio.gather(*emits)
        assert server.asked.count("namespaces/prod/pods/web-1") == 1
        mine = [record["n"] for record in filter_.taken.records if record["n"] < 100]
        assert mine == list(range(20))


async def test_a_token_is_read_again_when_it_is_refused(tmp_path):
    file = tmp_path / "token"
    file.write_text("old")
    seen = []
    server = Server()

    def script(request):
        token = request.header("authorization")
        seen.append(token)
        if token == "Bearer old":
            file.write_text("new")
            return ok(status="401 Unauthorized")
        return server(request)

    async with running(script, f"watch false\nbearer_token_file {file}") as filter_:
        await filter_.emit(TAG, {})
        assert filter_.last["kubernetes"]["labels"] == {"app": "web"}
    assert seen == ["Bearer old", "Bearer new", "Bearer new"]


async def test_lists_and_watches_spare_the_questions(monkeypatch):
    monkeypatch.setenv("K8S_NODE_NAME", "node-1")
    changed = json.loads(json.dumps(POD))
    changed["metadata"]["labels"] = {"app": "changed"}
    changed["metadata"]["resourceVersion"] = "12"
    server = Server(
        lists={"pods": [POD], "namespaces": [NAMESPACE]},
        watches={
            "pods": [[{"type": "ADDED", "object": changed}, {"type": "MODIFIED", "object": changed}]],
            "namespaces": [],
        },
    )
    async with running(server, "") as filter_:
        await filter_.until(lambda: filter_.plugin.stats()["watch_notices"] == 2)
        assert not await filter_.emit(TAG, {})
        assert filter_.last["kubernetes"]["labels"] == {"app": "changed"}
        assert server.asked == []
    queries = [query for path, query in server.queries if path == "pods"]
    assert queries[0] == "resourceVersion=0&fieldSelector=spec.nodeName%3Dnode-1"
    assert queries[1] == "watch=true&resourceVersion=9&fieldSelector=spec.nodeName%3Dnode-1"


async def test_the_pods_of_all_nodes_come_in_pages(caplog):
    other = json.loads(json.dumps(POD))
    other["metadata"]["uid"] = "uid-2"
    other["status"]["containerStatuses"][0]["containerID"] = "containerd://other"
    pages = {"": ([other], "next/1"), "next%2F1": ([POD], "")}
    server = Server(lists={"pods": [], "namespaces": [NAMESPACE]})
    asked = []

    def script(request):
        if request.target.startswith("/api/v1/pods?limit"):
            token = request.target.partition("continue=")[2]
            asked.append(token)
            items, more = pages[token]
            return ok(json.dumps({"items": items, "metadata": {"continue": more, "resourceVersion": "9"}}).encode())
        return server(request)

    async with running(script, "") as filter_:
        await filter_.until(lambda: filter_.plugin.stats()["pod_cache"] == 2)
        await filter_.until(lambda: filter_.plugin.stats()["namespace_cache"] == 1)
        assert not await filter_.emit(TAG, {})
    assert asked == ["", "next%2F1"]
    assert "K8S_NODE_NAME is not set" in caplog.text


async def test_a_watch_begins_anew_after_gone_and_after_a_cut():
    gone = [{"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}]
    later = [{"type": "MODIFIED", "object": POD}]
    server = Server(
        lists={"pods": [POD], "namespaces": []},
        watches={"pods": [gone, Reply(b"", reset=True), later], "namespaces": []},
    )
    async with running(server, "") as filter_:
        await filter_.until(lambda: filter_.plugin.stats()["watch_notices"] == 2)
        assert filter_.plugin.stats()["watch_failures"] == 1
    lists = [query for path, query in server.queries if path == "pods" and "watch" not in query]
    assert len(lists) == 3


async def test_the_end_sets_free_what_waits():
    server = Server(objects={"namespaces/prod/pods/web-1": Reply(b"", hold=True)})
    async with running(server) as filter_:
        outcome = filter_.context.root.emit(TAG, batch({"log": 1}))
        await filter_.until(lambda: server.asked)
        await filter_.plugin.stop()
        await outcome
        assert filter_.last["log"] == 1


def test_tags():
    pattern = TagPattern(DEFAULT_PATTERN)
    found = pattern.match("var.log.pods.ns_my.pod-1_0a-b.side.car.0.log")
    assert (found["namespace"], found["pod_name"], found["pod_uuid"], found["container_name"]) == (
        "ns",
        "my.pod-1",
        "0a-b",
        "side.car",
    )
    assert pattern.match("var.log.messages") is None
    with pytest.raises(ValueError, match="container_name"):
        TagPattern("(?<namespace>a)(?<pod_name>b)")


def test_the_cache():
    now = [0.0]
    cache = Cache(2, 10, lambda: now[0])
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert (cache.get("b"), cache.get("a"), len(cache)) == (None, 1, 2)
    now[0] = 10
    assert cache.get("a") is None


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("kubernetes_url ftp://x", "not an http or https URL"),
        ("tag_to_kubernetes_name_regexp (a", "tag_to_kubernetes_name_regexp"),
        ("tag_to_kubernetes_name_regexp a", "has no group (?<namespace>"),
        ("annotation_match (a", "annotation_match"),
        ("cache_size 0", "at least 1"),
        ("kubernetes_url https://x\nca_file /nowhere", "does not exist"),
        ("kubernetes_url http://x\nbearer_token_file /nowhere", "does not exist"),
        ("kubernetes_url https://x\nclient_cert /nowhere", "set together"),
        ("test_api_adapter A", "is removed"),
    ],
)
def test_check(more, told):
    errors, _ = problems_of("filter", f"<filter **>\n@type kubernetes_metadata\n{more}\n</filter>")
    assert any(told in error for error in errors), errors


def test_the_server_of_a_pod(monkeypatch, tmp_path):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "token").write_text("t")
    plugin = make("filter", f"<filter **>\n@type kubernetes_metadata\nsecret_dir {tmp_path}\n</filter>")
    assert plugin._url == "https://[fd00::1]:443/api"
    assert plugin.bearer_token_file == str(tmp_path / "token")


def test_contract():
    asyncio.run(check_filter("<filter **>\n@type kubernetes_metadata\n</filter>"))


def test_what_is_given_and_empty_is_not_given():
    text = "<filter **>\n@type kubernetes_metadata\nkubernetes_url \nca_file \nbearer_token_file \n</filter>"
    assert problems_of("filter", text.replace(" \n", ' ""\n'))[0] == []
