"""One process with a gateway and a pipeline: requests become records, and the pipeline delivers them."""

from __future__ import annotations

import signal

import wire_rig as rig

from headrace.testing.plugin import free_ports
from headrace.testing.process import wait_until

NGINX = """\
worker_processes 2;
error_log stderr notice;
events {}
http {
    log_format mine escape=json '{"path":"$uri","status":$status,"agent":"$http_user_agent","lua":"$lua"}';
    server {
        listen 127.0.0.1:PORT;
        access_log pipeline:web.hits mine;
        location / { set $lua none; return 200 "hi"; }
        location /lua {
            set $lua "";
            content_by_lua_block { ngx.var.lua = "seen \\"here\\"" ngx.say("from lua") }
        }
        location /emit {
            access_log off;
            content_by_lua_block { ngx.say(ngx.emit("web.lua", {from = "content", n = 1, list = {1, 2}})) }
            header_filter_by_lua_block { ngx.emit("web.lua", {from = "header_filter"}) }
            body_filter_by_lua_block { if ngx.arg[2] then ngx.emit("web.lua", {from = "body_filter"}) end }
            log_by_lua_block {
                ngx.emit("web.lua", {from = "log", status = ngx.status, bytes = "\\255"})
                ngx.timer.at(0, function() ngx.emit("web.lua", {from = "timer"}) end)
            }
        }
        location /quiet { access_log off; return 200 "quiet"; }
        location /both { access_log pipeline:web.full; access_log files.log; return 404; }
    }
}
"""

FLUENT = """\
<source>
  @type http
  port SOURCE
  bind 127.0.0.1
</source>
<filter web.hits>
  @type grep
  <exclude>
    key path
    pattern ^/boring
  </exclude>
</filter>
<match {web,direct}.**>
  @type http
  endpoint http://127.0.0.1:TARGET/${tag}
  reuse_connections true
  <format>
    @type json
  </format>
  <buffer tag>
    flush_mode immediate
    flush_thread_count 4
    retry_wait 0.1s
    retry_max_interval 0.5s
    retry_forever true
  </buffer>
</match>
"""


def test_requests_become_records_of_the_pipeline(prefix, port, headrace):
    (source,) = free_ports(1)
    with rig.origin() as origin:
        (prefix / "nginx.conf").write_text(NGINX.replace("PORT", str(port)))
        (prefix / "fluent.conf").write_text(FLUENT.replace("SOURCE", str(source)).replace("TARGET", str(origin.port)))
        process = headrace("headrace", "run", prefix / "nginx.conf", prefix / "fluent.conf")
        rig.wait_listens(port, process)
        for number in range(50):
            assert rig.get(port, f"/{number}").body == b"hi"
        assert rig.get(port, "/boring/1").body == b"hi"
        assert rig.get(port, "/quiet").body == b"quiet"
        assert rig.get(port, "/lua").body == b"from lua\n"
        assert rig.get(port, "/both?a=1").status == 404
        assert rig.post(source, "/direct.a", b'{"posted":1}').status == 200

        def of(tag):
            return rig.records([request for request in list(origin.requests) if request.target == f"/{tag}"])

        wait_until(lambda: len(of("web.hits")) == 51 and of("web.full") and of("direct.a"), "the records")
        hits = {record["path"]: record for record in of("web.hits")}
        assert set(hits) == {f"/{number}" for number in range(50)} | {"/lua"}
        assert hits["/7"] == {"path": "/7", "status": 200, "agent": "", "lua": "none"}
        assert hits["/lua"]["lua"] == 'seen "here"'
        (full,) = of("web.full")
        assert (full["uri"], full["args"], full["status"]) == ("/both", "a=1", 404)
        assert of("direct.a") == [{"posted": 1}]
        wait_until(lambda: '"GET /both?a=1 HTTP/1.1" 404' in (prefix / "files.log").read_text(), "the file's line")
        total = rig.stats(headrace, process)
        assert total["bridge"] == {"emitted": 53, "dropped": 0, "waiting": 0}
        assert total["edge"]["requests"] >= 54
        assert process.stop(signal.SIGQUIT) == 0
        assert len(of("web.hits")) == 51


def test_scripts_emit_in_every_phase(prefix, port, headrace):
    """W12: records from log and filter phases, where nothing may wait, go straight into the pipeline."""
    (source,) = free_ports(1)
    with rig.origin() as origin:
        (prefix / "nginx.conf").write_text(NGINX.replace("PORT", str(port)))
        (prefix / "fluent.conf").write_text(FLUENT.replace("SOURCE", str(source)).replace("TARGET", str(origin.port)))
        process = headrace("headrace", "run", prefix / "nginx.conf", prefix / "fluent.conf")
        rig.wait_listens(port, process)
        assert rig.get(port, "/emit").body == b"true\n"
        wait_until(lambda: len(rig.records(origin.requests)) == 5, "five records")
        records = {record.pop("from"): record for record in rig.records(origin.requests)}
        assert records["content"] == {"n": 1, "list": [1, 2]}
        assert records["log"]["status"] == 200
        assert set(records) == {"content", "header_filter", "body_filter", "log", "timer"}
        assert {request.target for request in origin.requests} == {"/web.lua"}
        assert rig.stats(headrace, process)["bridge"]["emitted"] == 5


def test_records_of_the_last_requests_are_delivered_at_the_end(prefix, port, headrace):
    """The gateway stops before the pipeline: what it logged until then is flushed."""
    (source,) = free_ports(1)
    with rig.origin() as origin:
        (prefix / "nginx.conf").write_text(NGINX.replace("PORT", str(port)))
        fluent = FLUENT.replace("flush_mode immediate", "flush_interval 1h")
        (prefix / "fluent.conf").write_text(fluent.replace("SOURCE", str(source)).replace("TARGET", str(origin.port)))
        process = headrace("headrace", "run", prefix / "nginx.conf", prefix / "fluent.conf")
        rig.wait_listens(port, process)
        for number in range(20):
            rig.get(port, f"/{number}")
        wait_until(lambda: rig.stats(headrace, process)["bridge"]["emitted"] == 20, "twenty records")
        assert origin.requests == []
        assert process.stop() == 0
        paths = [record["path"] for record in rig.records(origin.requests)]
        assert sorted(paths) == sorted(f"/{number}" for number in range(20))
