"""Elasticsearch and OpenSearch outputs, against a scripted cluster: documents, partial failures, hosts, templates."""

import asyncio
import base64
import gzip
import json

import pytest
from eco_rig import output
from http_rig import problems_of

from headrace.errors import Unrecoverable
from headrace.plugins.elastic.answers import judge
from headrace.plugins.elastic.cluster import cloud_host
from headrace.testing.contracts import RECORDS, check_output
from headrace.testing.origin import Origin, Reply, ok


class Server:
    """A cluster of one. `fate(action, source)` is what becomes of an item: None, or (status, error)."""

    def __init__(self, version="8.1.0", fate=lambda action, source: None, missing=()):
        self.version = version
        self.fate = fate
        self.bulks = []
        self.puts = {}
        self.gets = []
        self.replies = []
        self.missing = set(missing)

    def __call__(self, request):
        path = request.target
        if request.method == "GET" and path == "/":
            return ok(json.dumps({"version": {"number": self.version}}).encode())
        if request.method == "GET":
            self.gets.append(path)
            return ok(b"{}", status="404 Not Found" if path in self.missing else "200 OK")
        if request.method == "PUT":
            self.puts[path] = json.loads(request.body) if request.body else None
            self.missing.discard(path)
            return ok(b'{"acknowledged":true}')
        if self.replies:
            return self.replies.pop(0)
        body = gzip.decompress(request.body) if request.header("content-encoding") == "gzip" else request.body
        lines = [json.loads(line) for line in body.splitlines()]
        pairs = list(zip(lines[::2], lines[1::2], strict=True))
        self.bulks.append((path, pairs, request))
        items = []
        for action, source in pairs:
            ((operation, _meta),) = action.items()
            fate = self.fate(action, source)
            items.append({operation: {"status": 201} if fate is None else {"status": fate[0], "error": fate[1]}})
        return ok(json.dumps({"errors": any(self.fate(*pair) for pair in pairs), "items": items}).encode())

    @property
    def documents(self):
        return [pair for _path, pairs, _request in self.bulks for pair in pairs]


BUFFER = """
<buffer {keys}>
  flush_mode {mode}
  retry_wait 0.01
  retry_randomize false
  retry_max_times 5
  {extra}
</buffer>
"""


def conf(origin, more="", kind="elasticsearch", keys="tag", mode="interval", extra=""):
    return f"@type {kind}\n@id es\nhost 127.0.0.1\nport {origin.port}\n{more}\n" + BUFFER.format(
        keys=keys, mode=mode, extra=extra
    )


async def sent(more, *records, server=None, tag="app.web", **options):
    server = server or Server()
    async with Origin(server) as origin, output(conf(origin, more, **options)) as running:
        await running.emit(tag, *records)
        await running.idle()
        server.errors = running.errors
        server.figures = running.figures()
        server.stats = running.plugin.stats()
    return server


async def test_an_index_and_nothing_added():
    server = await sent("index_name Log-${tag}", {"a": 1}, {"a": 2})
    assert server.documents == [({"index": {"_index": "log-app.web"}}, {"a": n}) for n in (1, 2)]
    path, _, request = server.bulks[0]
    assert (path, request.header("content-type")) == ("/_bulk", "application/x-ndjson")


@pytest.mark.parametrize(
    ("version", "more", "type_name"),
    [
        ("5.6.0", "type_name t", "t"),
        ("6.8.0", "", "fluentd"),
        ("7.17.0", "", "_doc"),
        ("7.17.0", "suppress_type_name true", None),
        ("8.0.0", "type_name t", None),
        ("9.1.0", "", None),
    ],
)
async def test_types_by_version(version, more, type_name):
    server = await sent(more + "\nrouting_key r", {"r": "x"}, server=Server(version))
    meta = server.documents[0][0]["index"]
    assert meta.get("_type") == type_name
    assert meta["_routing" if version < "7" else "routing"] == "x"


@pytest.mark.parametrize(("version", "type_name"), [("1.3.0", "_doc"), ("2.0.0", None)])
async def test_types_of_opensearch(version, type_name):
    server = await sent("", {"a": 1}, kind="opensearch", server=Server(version))
    assert server.documents[0][0]["index"].get("_type") == type_name


async def test_logstash_format():
    more = "logstash_format true\nlogstash_prefix ${tag}\ninclude_tag_key true\ntag_key t\ntime_precision 3"
    server = await sent(more, {"a": 1}, {"@timestamp": "2020-02-03T23:30:00-02:00"})
    (first, source), (second, kept) = server.documents
    assert first == {"index": {"_index": "app.web-2023.11.14"}}
    assert source["t"] == "app.web"
    assert source["@timestamp"].startswith("2023-11-1")
    assert ".123" in source["@timestamp"]
    assert second == {"index": {"_index": "app.web-2020.02.04"}}
    assert kept["@timestamp"] == "2020-02-03T23:30:00-02:00"


async def test_time_key():
    more = "logstash_format true\ntime_key when\ntime_key_format %d/%b/%Y %z\ntime_key_exclude_timestamp true"
    server = await sent(more, {"when": "03/Feb/2020 +0000"}, {"when": "never"}, {"when": 1580688000.5})
    indexes = [action["index"]["_index"] for action, _ in server.documents]
    assert indexes == ["logstash-2020.02.03", "logstash-2023.11.14", "logstash-2020.02.03"]
    assert "@timestamp" not in server.documents[0][1]
    assert server.errors.tags == ["Fluent::ElasticsearchOutput::TimeParser.error"]
    assert server.errors.records[0]["value"] == "never"


async def test_keys_of_the_record():
    more = "id_key meta.id\nparent_key p\nrouting_key $.meta.r\npipeline pipe-${tag}\nremove_keys p, x\ntarget_index_key meta.index"
    record = {"meta": {"id": 7, "r": "q", "index": "Other"}, "p": "par", "x": 1, "m": "text"}
    server = await sent(more, record, {"m": "plain"})
    (action, source), (plain, _) = server.documents
    expected = {"_index": "other", "_id": 7, "_parent": "par", "routing": "q", "pipeline": "pipe-app.web"}
    assert action == {"index": expected}
    assert source == {"meta": {"id": 7, "r": "q"}, "m": "text"}
    assert plain == {"index": {"_index": "fluentd", "pipeline": "pipe-app.web"}}


@pytest.mark.parametrize(
    ("more", "body"),
    [
        ("write_operation update", {"doc": {"id": 1, "a": 2}}),
        ("write_operation upsert", {"doc": {"id": 1, "a": 2}, "doc_as_upsert": True}),
        ("write_operation upsert\nremove_keys_on_update a,b", {"doc": {"id": 1}, "upsert": {"id": 1, "a": 2}}),
        ("write_operation update\nsuppress_doc_wrap true", {"id": 1, "a": 2}),
        ("write_operation create", {"id": 1, "a": 2}),
    ],
)
async def test_operations(more, body):
    server = await sent(f"id_key id\n{more}", {"id": 1, "a": 2}, {"a": 3})
    ((action, source),) = server.documents
    assert source == body
    assert action[("create" if "create" in more else "update")]["_id"] == 1
    assert server.stats["left_out_records"] == 1
    assert not server.errors.records


async def test_a_missing_id_may_be_an_error_event():
    server = await sent("id_key id\nwrite_operation create\nemit_error_for_missing_id true", {"a": 3}, {"id": 1})
    assert server.errors.records == [{"a": 3}]
    assert len(server.documents) == 1


async def test_flat_and_chunk_id():
    more = "flatten_hashes true\nflatten_hashes_separator .\n<metadata>\ninclude_chunk_id true\n</metadata>"
    server = await sent(more, {"a": {"b": {"c": 1}, "l": [{"d": 1}]}})
    source = server.documents[0][1]
    assert len(source.pop("chunk_id")) == 32
    assert source == {"a.b.c": 1, "a.l": [{"d": 1}]}


async def test_index_in_the_url_gzip_threshold():
    more = "include_index_in_url true\ntarget_index_key i\ncompression_level best_speed"
    server = await sent(more, {"i": "x", "n": 1}, {"i": "y", "n": 2}, {"i": "x", "n": 3})
    assert [(path, [source["n"] for _, source in pairs]) for path, pairs, _ in server.bulks] == [
        ("/x/_bulk", [1, 3]),
        ("/y/_bulk", [2]),
    ]
    server = await sent("bulk_message_request_threshold 60", *[{"n": n, "x": "y" * 20} for n in range(5)])
    assert [len(pairs) for _, pairs, _ in server.bulks] == [1] * 5


def refusing(bad, status=400, type_="mapper_parsing_exception", times=1000):
    left = [times]

    def fate(action, source):
        if source.get("n") != bad or left[0] <= 0:
            return None
        return status, {"type": type_, "reason": "because"}

    return fate


async def test_a_poison_record_goes_alone_to_the_error_label():
    server = await sent("", {"n": 1}, {"n": 2}, {"n": 3}, server=Server(fate=refusing(2)))
    assert server.errors.records == [{"n": 2}]
    assert server.errors.tags == ["app.web"]
    assert len(server.bulks) == 1
    assert server.figures["delivered"] == 3


async def test_only_what_failed_is_sent_again():
    answers = {"n": 0}

    def fate(action, source):
        if source["n"] == 2 and len(server.bulks) < 3:
            return 429, {"type": "es_busy", "reason": "later"}
        return None

    server = Server(fate=fate)
    await sent("", {"n": 1}, {"n": 2}, {"n": 3}, server=server)
    del answers
    assert [[source["n"] for _, source in pairs] for _, pairs, _ in server.bulks] == [[1, 2, 3], [2], [2]]
    assert server.figures["delivered"] == 3
    assert server.figures["retry_count"] == 2
    assert not server.errors.records


async def test_requests_that_were_taken_are_not_sent_again():
    server = Server()
    server.replies = []
    async with Origin(server) as origin, output(conf(origin, "bulk_message_request_threshold 10")) as running:
        await running.emit("t", {"n": 1}, {"n": 2}, {"n": 3})
        original = server.__call__
        calls = []

        def second_fails(request):
            if request.method == "POST":
                calls.append(request)
                if len(calls) == 2:
                    return ok(b"busy", status="503 Service Unavailable")
            return original(request)

        origin.script = second_fails
        await running.idle()
    assert sorted(source["n"] for _, source in server.documents) == [1, 2, 3]


async def test_retry_tag_emits_again():
    server = Server(fate=refusing(2, 429, "busy"))
    async with Origin(server) as origin, output(conf(origin, "retry_tag retry.es")) as running:
        await running.emit("t", {"n": 1}, {"n": 2})
        server_fate, again = server.fate, []

        def once(action, source):
            if source["n"] == 2 and not again:
                return server_fate(action, source)
            return None

        server.fate = once
        running.flush()
        await running.until(lambda: server.bulks)
        again.append(1)
        await running.until(lambda: running.figures()["received"] == 3)
        await running.idle()
    assert [source["n"] for _, source in server.documents] == [1, 2, 2]


@pytest.mark.parametrize("kind", ["elasticsearch", "opensearch"])
async def test_a_chunk_is_given_up_for_unrecoverable_types(kind):
    server = Server(fate=refusing(1, 507, "out_of_memory_error"))
    server = await sent("", {"n": 1}, {"n": 2}, server=server, kind=kind)
    assert server.figures["dropped"]["backed_up"] == 2


async def test_opensearch_rejects_by_type():
    server = Server(fate=refusing(1, 500, "strange"))
    more = "unrecoverable_record_types strange\nemit_error_label_event false"
    server = await sent(more, {"n": 1}, {"n": 2}, server=server, kind="opensearch")
    assert not server.errors.records
    assert server.stats["rejected_records"] == 1
    assert server.figures["delivered"] == 2


@pytest.mark.parametrize(
    "reply",
    [
        ok(b"no", status="500 Internal Server Error"),
        ok(b"no", status="429 Too Many Requests"),
        ok(b"no", status="401 Unauthorized"),
        Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", close=True),
        Reply(b"", reset=True),
    ],
)
async def test_failures_of_the_whole_request_are_tried_again(reply):
    server = Server()
    server.replies = [reply]
    server = await sent("", {"n": 1}, server=server)
    assert server.documents == [({"index": {"_index": "fluentd"}}, {"n": 1})]


async def test_a_server_that_is_away_at_first_and_keeps_its_version():
    async with Origin() as origin:
        port = origin.port
    server = Server("7.1.0")
    async with output(
        f"@type elasticsearch\nhosts 127.0.0.1:{port}\n"
        + BUFFER.format(keys="tag", mode="interval", extra="retry_forever true")
    ) as running:
        await running.emit("t", {"n": 1})
        running.flush()
        await running.until(lambda: running.figures()["retry_count"])
        async with Origin(server, port=port):
            await running.idle()
            await running.emit("t", {"n": 2})
            await running.idle()
    assert [action["index"]["_type"] for action, _ in server.documents] == ["_doc", "_doc"]


async def test_hosts_in_turn_and_past_a_dead_one():
    servers = [Server(), Server()]
    async with Origin(servers[0]) as one, Origin(servers[1]) as two, Origin() as gone:
        await gone.stop()
        hosts = f"http://u:p%40@127.0.0.1:{one.port}/es/,127.0.0.1:{gone.port},http://127.0.0.1:{two.port}"
        text = f"@type elasticsearch\nhosts {hosts}\nuser all\npassword word\nverify_es_version_at_startup false\n"
        text += "default_elasticsearch_version 8\npath base\n" + BUFFER.format(
            keys="tag", mode="immediate", extra="chunk_limit_records 1"
        )
        async with output(text) as running:
            for number in range(6):
                await running.emit("t", {"n": number})
                await running.idle()
            assert running.figures()["retry_count"] == 0
        assert [len(server.bulks) for server in servers] == [3, 3] or all(server.bulks for server in servers)
        assert sum(len(server.bulks) for server in servers) == 6
        first, last = one.requests[0], two.requests[0]
        assert (first.target, last.target) == ("/es/_bulk", "/base/_bulk")
        assert base64.b64decode(first.header("authorization").split()[1]) == b"u:p@"
        assert base64.b64decode(last.header("authorization").split()[1]) == b"all:word"
        assert one.accepts == two.accepts == 1


async def test_api_key_headers_and_secrets():
    more = 'api_key id:word\ncustom_headers {"X-Tenant":"a"}\nwith_transporter_log true'
    server = Server()
    async with Origin(server) as origin, output(conf(origin, more)) as running:
        await running.emit("t", {"n": 1})
        await running.idle()
        assert "POST http://127.0.0.1" in running.log.getvalue()
        assert "word" not in running.log.getvalue()
    request = server.bulks[0][2]
    assert request.header("authorization") == "ApiKey " + base64.b64encode(b"id:word").decode()
    assert request.header("x-tenant") == "a"


async def test_templates_are_put_in_place_once(tmp_path):
    file = tmp_path / "t.json"
    file.write_text('{"index_patterns": ["<<name>>-*"]}')
    more = f'template_name temp\ntemplate_file {file}\ncustomize_template {{"<<name>>":"${{tag}}"}}\nuse_legacy_template false'
    server = Server(missing=["/_index_template/temp"])
    async with Origin(server) as origin, output(conf(origin, more)) as running:
        for number in range(3):
            await running.emit("App", {"n": number})
            await running.idle()
    assert server.puts == {"/_index_template/temp": {"index_patterns": ["app-*"]}}
    assert server.gets == ["/_index_template/temp"]
    server = await sent(f'templates {{"a":"{file}"}}\ntemplate_overwrite true', {"n": 1})
    assert list(server.puts) == ["/_template/a"]
    assert server.gets == []


async def test_a_template_that_cannot_be_put_holds_events_back_or_not(tmp_path):
    file = tmp_path / "t.json"
    file.write_text("{}")

    class Grumpy(Server):
        def __call__(self, request):
            if request.method != "POST" and request.target != "/":
                return ok(b"no", status="503 Service Unavailable")
            return super().__call__(request)

    more = f"template_name temp\ntemplate_file {file}\nmax_retry_putting_template 1\n"
    server = await sent(more, {"n": 1}, server=Grumpy())
    assert server.figures["dropped"]["backed_up"] == 1
    server = await sent(more + "fail_on_putting_template_retry_exceed false", {"n": 1}, server=Grumpy())
    assert len(server.documents) == 1


async def test_a_data_stream_is_made_with_what_it_needs():
    stream, policy, template = (
        "/_data_stream/logs-app.web",
        "/_ilm/policy/logs-app.web_policy",
        "/_index_template/logs-app.web_template",
    )
    server = Server(missing=[stream, policy, template])
    await sent("data_stream_name logs-${tag}", {"n": 1}, kind="elasticsearch_data_stream", server=server)
    assert list(server.puts) == [policy, template, stream]
    assert server.puts[template]["template"] == {"settings": {"index.lifecycle.name": "logs-app.web_policy"}}
    path, ((action, source),), _ = server.bulks[0]
    assert (path, action) == ("/logs-app.web/_bulk", {"create": {}})
    assert source["n"] == 1
    assert "@timestamp" in source
    server = Server("2.1.0", missing=[stream, template], fate=refusing(2))
    await sent("data_stream_name logs-${tag}", {"n": 1}, {"n": 2}, kind="opensearch_data_stream", server=server)
    assert list(server.puts) == [template, stream]
    assert server.errors.records == [{"n": 2}]


def test_answers():
    def items(*results):
        return json.dumps({"errors": True, "items": list(results)}).encode()

    verdict = judge(
        items(
            {"create": {"status": 409}},
            {"index": {"status": 409, "error": {"type": "c"}}},
            {},
            {"index": {"status": 403, "error": "blocked"}},
        ),
        4,
        abort_on=[],
    )
    assert verdict.again == [1]
    assert [number for number, _ in verdict.rejected] == [2, 3]
    assert judge(b'{"errors":false,"items":[]}', 4, abort_on=[]).again == []
    for body in (b"<html>", b"[]", b'{"errors":true}', items({}, {})):
        with pytest.raises(Unrecoverable):
            judge(body, 1, abort_on=[])


def test_cloud_id():
    text = "deploy:" + base64.b64encode(b"eu.aws.io$abc$def").decode()
    assert cloud_host(text) == "https://abc.eu.aws.io:443"
    errors, _ = problems_of("output", f"<match **>\n@type elasticsearch\ncloud_id {text}\ncloud_auth u:p\n</match>")
    assert errors == []
    with pytest.raises(ValueError, match="no cloud id"):
        cloud_host("x:y")


async def test_amazon_opensearch_is_signed():
    server = Server("2.1.0")
    async with Origin(server) as origin:
        text = f"@type opensearch\n<endpoint>\nurl {origin.url()}\nregion eu-west-1\naccess_key_id AK\nsecret_access_key SK\n</endpoint>"
        async with output(text) as running:
            await running.emit("t", {"n": 1})
            await running.idle()
    request = server.bulks[0][2]
    assert request.header("authorization").startswith("AWS4-HMAC-SHA256 Credential=AK/")
    assert "/eu-west-1/es/aws4_request" in request.header("authorization")


@pytest.mark.parametrize(
    ("kind", "more", "told"),
    [
        ("elasticsearch", "enable_ilm true", 'parameter "enable_ilm" is not supported'),
        ("elasticsearch", "rollover_index true", "not supported"),
        ("elasticsearch", "target_index_affinity true", "not supported"),
        ("elasticsearch", "user a", "`password` must be present"),
        ("elasticsearch", "hosts ftp://x", "no http or https URL"),
        ("elasticsearch", "hosts http://a:99999", "no URL"),
        ("elasticsearch", "write_operation update", "needs id_key"),
        ("elasticsearch", "template_name a", "set together"),
        ("elasticsearch", "template_name a\ntemplate_file /nowhere", "does not exist"),
        ("elasticsearch", "scheme https\nca_file /nowhere", "does not exist"),
        ("elasticsearch", "id_key $.a[", "not an index"),
        ("elasticsearch", "index_name ${host}", '"host" is not a chunk key'),
        ("elasticsearch", 'custom_headers {"Content-Length":"1"}', "cannot be set"),
        ("elasticsearch", "selector_class_name Some", "class of Ruby"),
        ("elasticsearch", "time_precision 10", "from 0 to 9"),
        (
            "elasticsearch",
            "include_tag_key true\n<buffer>\n@type memory\n</buffer>\n<buffer time>\ntimekey 1\n</buffer>",
            "",
        ),
        ("elasticsearch_data_stream", "data_stream_name Up", "lowercase"),
        ("elasticsearch_data_stream", "data_stream_name _a", "must not start"),
        ("elasticsearch_data_stream", "data_stream_name a\nlogstash_format true", "names an index"),
        ("elasticsearch_data_stream", "data_stream_name a\ndata_stream_ilm_policy nothing", "no JSON"),
        ("opensearch", "<endpoint>\nurl http://x\n</endpoint>", '"region" is required'),
        ("opensearch", "api_key x", 'unknown parameter "api_key"'),
    ],
)
def test_check(kind, more, told):
    errors, _ = problems_of("output", f"<match **>\n@type {kind}\n{more}\n</match>")
    assert any(told in error for error in errors), errors
    assert all("test.conf:" in error for error in errors)


def test_what_has_no_effect_is_told():
    more = "reload_connections true\nreload_on_failure true\nhttp_backend typhoeus\nmax_retry_get_es_version 3"
    errors, warnings = problems_of("output", f"<match **>\n@type elasticsearch\n{more}\n</match>")
    assert errors == []
    assert len(warnings) == 4


def test_contracts():
    asyncio.run(check_output("<match **>\n@type elasticsearch\nport 1\n</match>"))
    asyncio.run(check_output("<match **>\n@type opensearch_data_stream\ndata_stream_name a\nport 1\n</match>"))


async def test_every_record_gets_through_or_is_told_of():
    server = await sent("logstash_format true", *RECORDS, server=Server())
    assert len(server.documents) + len(server.errors.records) == len(RECORDS)


def test_what_is_given_and_empty_is_not_given():
    text = "<match **>\n@type elasticsearch\nuser \npassword \nhosts \npath \nca_file \ntemplate_name \nid_key \napi_key \n</match>"
    assert problems_of("output", text.replace(" \n", ' ""\n'))[0] == []
