"""The listener for monitoring, of all workers, through a reload; headrace top and stats --prometheus."""

import json
import signal
import urllib.request

import wire_rig as rig

from headrace.testing.plugin import free_ports
from headrace.testing.process import wait_until

CONF = """
<system>
  workers 2
  <metrics>
    listen METRICS
  </metrics>
</system>
<source>
  @type http
  @id in
  bind 127.0.0.1
  port PORT
</source>
<match t>
  @type null
  @id out
</match>
"""

GATEWAY = r"""
events {}
http {
    server {
        listen 127.0.0.1:PORT;
        location / {
            content_by_lua_block {
                local sock = ngx.socket.tcp()
                assert(sock:connect("127.0.0.1", BACK))
                sock:send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                repeat until sock:receive("*l") == ""
                sock:receive(2)
                ngx.say(sock:getreusedtimes())
                sock:setkeepalive(60000, 4)
            }
        }
    }
    server {
        listen 127.0.0.1:BACK;
        location / { return 200 ok; }
    }
}
"""


def get(port, path, **headers):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=20) as reply:
        return reply.headers["Content-Type"], reply.read().decode()


def total(port, name):
    _type, text = get(port, "/metrics")
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))


def test_one_answer_for_all_workers(prefix, headrace):
    port, metrics = free_ports(2)
    conf = prefix / "fluent.conf"
    conf.write_text(CONF.replace("METRICS", str(metrics)).replace("PORT", str(port)) + rig.NO_LOG_EVENTS)
    process = headrace("headrace", "run", conf)
    process.wait_for("worker is now running", count=2)
    for number in range(40):
        assert rig.post(port, "/t", json.dumps({"n": number}).encode()).status == 200
    sent = 'headrace_sent_events_total{worker="'
    wait_until(lambda: total(metrics, "headrace_worker_up{") == 2)
    kind, text = get(metrics, "/metrics")
    assert kind.startswith("text/plain")
    counted = [float(line.split()[1]) for line in text.splitlines() if line.startswith(sent) and 'id="out"' in line]
    assert sum(counted) == 40
    kind, text = get(metrics, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")
    assert json.loads(get(metrics, "/_headrace/pools")[1]) == []
    assert len(json.loads(get(metrics, "/_headrace/stats")[1])) == 2
    done = headrace.run("headrace", "stats", "--prometheus")
    assert 'headrace_worker_up{worker="1"} 1' in done.stdout
    done = headrace.run("headrace", "top", "--once", env={"TERM": "dumb"})
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "out" in {line.split(" ")[0] for line in done.stdout.splitlines()}
    process.send(signal.SIGHUP)
    wait_until(lambda: 'headrace_worker_generation{worker="0"} 2' in get(metrics, "/metrics")[1])
    assert process.stop() == 0


def test_pools_of_cosockets(prefix, headrace):
    port, back, metrics = free_ports(3)
    conf = prefix / "nginx.conf"
    conf.write_text(GATEWAY.replace("PORT", str(port)).replace("BACK", str(back)))
    process = headrace("headrace", "run", conf, "--workers", "1", "--metrics", str(metrics))
    rig.wait_listens(port, process)
    get(port, "/")
    for _ in range(4):
        get(port, "/")
    (pool,) = json.loads(get(metrics, "/_headrace/pools")[1])
    assert (pool["owner"], pool["key"]) == ("cosocket", f"127.0.0.1:{back}")
    assert (pool["opened"], pool["reused"], pool["idle"], pool["in_use"]) == (1, 4, 1, 0)
    rig.kill(process)


def test_an_address_that_is_none_is_an_error(prefix, headrace):
    conf = prefix / "fluent.conf"
    conf.write_text(CONF.replace("METRICS", "here").replace("PORT", "1"))
    done = headrace.run("headrace", "check", conf)
    assert done.returncode == 1
    assert f'"here" is no [HOST:]PORT in {conf}:5' in done.stderr
    done = headrace.run("headrace", "run", conf, "--metrics", "1:2:3")
    assert done.returncode == 1
