"""The examples that the other wire tests do not run: handlers in Python, both halves together."""

from __future__ import annotations

import os
import pathlib
import urllib.error
import urllib.request

from headrace.testing.process import wait_until

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


def fetch(url, data=None, **headers):
    request = urllib.request.Request(url, data, {name.replace("_", "-"): value for name, value in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=20) as reply:
            return reply.status, reply.read(), reply.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read(), error.headers


def answers(url):
    try:
        return fetch(url)
    except OSError:
        return None


def test_handlers_in_python(prefix, port, headrace):
    conf = prefix / "nginx.conf"
    conf.write_text((EXAMPLES / "python/nginx.conf").read_text().replace("50070", f"127.0.0.1:{port}"))
    headrace("headrace", "run", conf, env={"PYTHONPATH": os.fspath(EXAMPLES / "python")})
    base = f"http://127.0.0.1:{port}"
    wait_until(lambda: answers(base))
    assert fetch(f"{base}/greet")[0] == 403
    status, body, headers = fetch(f"{base}/greet?name=you", X_Token="secret")
    assert (status, body, headers["X-Greeted"]) == (200, b'{"hello": "you"}\n', "you")
    assert fetch(f"{base}/size", b"x" * 5000, X_Token="secret")[:2] == (200, b"5000 bytes\n")
    assert fetch(f"{base}/size", X_Token="secret")[0] == 400


def test_a_request_becomes_an_event(prefix, port, headrace):
    conf = prefix / "nginx.conf"
    conf.write_text((EXAMPLES / "together/nginx.conf").read_text().replace("50080", f"127.0.0.1:{port}"))
    process = headrace(
        "headrace", "run", conf, EXAMPLES / "together/fluent.conf", env={"BUFFER": os.fspath(prefix / "buffer")}
    )
    base = f"http://127.0.0.1:{port}"
    wait_until(lambda: answers(f"{base}/ready"))
    assert fetch(f"{base}/hello")[:2] == (200, b"hello from /hello\n")
    process.wait_for('"uri":"/hello"')
    line = next(line for line in process.output.splitlines() if '"uri":"/hello"' in line)
    assert "gateway.access:" in line
    assert '"status":200' in line
