"""Both headline configurations, as people write them, through every command that may run them."""

from __future__ import annotations

import re

import pytest
import trustme
import wire_rig as rig

from headrace.testing.origin import ok
from headrace.testing.plugin import free_ports
from headrace.testing.process import wait_until

PIPELINE = {
    "headrace": lambda launcher, conf: launcher("headrace", "run", conf),
    "headrace-fluentd": lambda launcher, conf: launcher("fluentd", "-c", conf),
}
GATEWAY = {
    "headrace": lambda launcher, conf: launcher("headrace", "run", conf),
    "headrace-nginx": lambda launcher, conf: launcher("nginx", "-p", conf.parent, "-c", conf.name, "-g", "daemon off;"),
}


def sender(prefix, port, *, reuse=True):
    conf = prefix / "sender.conf"
    text = rig.SENDER.replace("9000", str(port))
    conf.write_text(text if reuse else text.replace("reuse_connections true", "reuse_connections false"))
    return conf


@pytest.mark.parametrize("start", PIPELINE.values(), ids=PIPELINE)
def test_the_sender_keeps_its_connections(prefix, headrace, start):
    with rig.origin() as origin:
        process = start(headrace, sender(prefix, origin.port))
        wait_until(lambda: len(origin.requests) >= 1000, "a thousand requests")
        figures = rig.plugin(rig.stats(headrace, process), "output_http")
        assert process.stop() == 0
        connections = figures["connections"]
        # localhost may be ::1 first, where nobody listens: that costs no connection.
        assert 1 <= origin.accepts <= 32
        assert connections["opened"] == origin.accepts
        assert connections["reused"] > 500
        assert connections["discarded_stale"] == connections["resent"] == 0
        assert len(figures["connections_by_lane"]) == 32
        assert all(lane["opened"] <= 1 for lane in figures["connections_by_lane"].values())
        received = rig.records(origin.requests)
        assert len(received) == len(origin.requests)
        assert all(record == {"hello": "world"} for record in received)
        request = origin.requests[0]
        assert (request.method, request.target) == ("POST", "/")
        assert request.header("content-type") == "application/x-ndjson"
        assert request.header("host") == f"localhost:{origin.port}"
        wait_until(lambda: origin.open == 0, "all connections closed")


def test_without_reuse_each_request_has_a_connection(prefix, headrace):
    with rig.origin() as origin:
        process = headrace("headrace", "run", sender(prefix, origin.port, reuse=False))
        wait_until(lambda: len(origin.requests) >= 200, "two hundred requests")
        assert process.stop() == 0
        assert origin.accepts == len(origin.requests)
        assert origin.peak_open <= 32
        assert len({request.connection for request in origin.requests}) == len(origin.requests)


def test_an_origin_that_closes(prefix, headrace):
    """Reuse is what both sides want: an answer that closes costs a connection and no event."""
    with rig.origin([ok(b"taken", close=True)]) as origin:
        process = headrace("headrace", "run", sender(prefix, origin.port))
        wait_until(lambda: len(origin.requests) >= 200, "two hundred requests")
        figures = rig.plugin(rig.stats(headrace, process), "output_http")
        assert process.stop() == 0
        assert origin.accepts == len(origin.requests)
        assert figures["connections"]["reused"] == figures["connections"]["resent"] == 0


@pytest.mark.parametrize("start", PIPELINE.values(), ids=PIPELINE)
def test_sender_and_receiver(prefix, port, headrace, start):
    conf = prefix / "receiver.conf"
    conf.write_text(rig.RECEIVER.replace("9000", str(port)))
    receiver = start(headrace, conf)
    rig.wait_listens(port, receiver)
    sending = start(headrace, sender(prefix, port))
    receiver.wait_for("count:", count=2)
    assert sending.stop() == 0
    figures = rig.stats(headrace, receiver)
    source = rig.plugin(figures, "input_http")
    assert receiver.stop() == 0
    assert source["events"] == source["requests"] > 0
    assert source["accepted"] <= 33  # one of them was the look whether it listens
    assert source["refused"] == {}
    assert figures["pipeline"]["unmatched"] == {"@ROOT": 0}  # the path is empty, so the tag is, and ** matches it
    counted = sum(int(count) for count in re.findall(r"count:(\d+)\tindicator:num\tunit:second", receiver.output))
    # A catch-all takes log events, so the counter counts its own lines too, as in Fluentd.
    own = receiver.output.count("indicator:num")
    assert source["events"] <= counted <= source["events"] + own


@pytest.mark.parametrize("start", GATEWAY.values(), ids=GATEWAY)
def test_the_gateway(prefix, port, headrace, start):
    path = prefix / "echo.sock"
    rig.echo(headrace, path)
    conf = prefix / "nginx.conf"
    conf.write_text(rig.GATEWAY.replace("50000", str(port)).replace("/tmp/echo.sock", str(path)))
    process = start(headrace, conf)
    rig.wait_listens(port, process)
    with rig.Client(port, timeout=60) as client:
        answer = client.ask(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answer.status == 200
    assert re.fullmatch(rb"hello\nuds: \d+(\.\d+)?(e-\d+)?\n", answer.body), answer.body
    lua = rig.stats(headrace, process)["lua"]
    assert lua["chain_peak"] == 1
    assert (lua["cosockets_opened"], lua["cosockets_closed"], lua["sockets"]) == (1, 1, 0)
    process.wait_for("uds finish")
    (line,) = [line for line in process.output.splitlines() if "uds finish" in line]
    assert re.fullmatch(
        r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[info\] (\d+)#\1: \*\d+ \[lua\] content_by_lua\(nginx\.conf:8\):14: uds finish, "
        r'client: 127\.0\.0\.1, server: , request: "GET / HTTP/1\.1", host: "localhost"',
        line,
    ), line
    assert process.stop() == 0


def test_the_examples_are_right(prefix, headrace):
    """The files of the folder do the same job, by the environment's port and rate."""
    receiver_port, gateway_port = free_ports(2)
    receiver = headrace("headrace", "run", rig.EXAMPLES / "receiver.conf", env={"PORT": str(receiver_port)})
    rig.wait_listens(receiver_port, receiver)
    sending = headrace(
        "headrace",
        "run",
        rig.EXAMPLES / "sender.conf",
        env={"ENDPOINT": f"http://localhost:{receiver_port}", "RATE": "1000"},
    )
    path = prefix / "echo.sock"
    rig.echo(headrace, path)
    conf = prefix / "nginx.conf"
    text = (rig.EXAMPLES / "gateway" / "nginx.conf").read_text()
    conf.write_text(text.replace("50000", str(gateway_port)).replace("/tmp/headrace-echo.sock", str(path)))
    gateway = headrace("headrace", "run", conf)
    rig.wait_listens(gateway_port, gateway)
    for flush in (0, 1):
        answer = rig.get(gateway_port, f"/?n=2000&flush={flush}")
        assert re.fullmatch(rb"hello\nround trips: 2000\nseconds: [\d.e-]+\n", answer.body)
    receiver.wait_for("count:")
    assert sending.stop() == receiver.stop() == gateway.stop() == 0


def test_sender_and_receiver_over_tls_and_compressed(prefix, port, headrace):
    """The same pair with a certificate of a private CA, several records a request, and gzip on the way."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(prefix / "ca.pem"))
    certificate = authority.issue_cert("localhost")
    certificate.cert_chain_pems[0].write_to_path(str(prefix / "cert.pem"))
    certificate.private_key_pem.write_to_path(str(prefix / "key.pem"))
    transport = f"<transport tls>\n    cert_path {prefix}/cert.pem\n    private_key_path {prefix}/key.pem\n  </transport>\n</source>"
    receiver_conf, sender_conf = prefix / "receiver.conf", sender(prefix, port)
    receiver_conf.write_text(rig.RECEIVER.replace("9000", str(port)).replace("</source>", transport, 1))
    text = (
        sender_conf.read_text()
        .replace("http://", "https://")
        .replace("chunk_limit_records 1\n", "chunk_limit_records 50\n")
    )
    text = text.replace("open_timeout 2", f"open_timeout 2\n  compress gzip\n  tls_ca_cert_path {prefix}/ca.pem")
    sender_conf.write_text(text.replace("flush_interval 10s", "flush_interval 0.2s"))
    receiver = headrace("headrace", "run", receiver_conf)
    rig.wait_listens(port, receiver)
    sending = headrace("headrace", "run", sender_conf)
    receiver.wait_for("count:", count=2)
    figures = rig.plugin(rig.stats(headrace, sending), "output_http")
    sent = rig.plugin(rig.stats(headrace, sending), "input_sample")["emitted"]
    assert sending.stop() == 0
    source = rig.plugin(rig.stats(headrace, receiver), "input_http")
    assert receiver.stop() == 0
    assert source["events"] >= sent > source["requests"] > 0
    assert source["refused"] == {}
    assert 1 <= figures["connections"]["opened"] <= 32
    assert figures["connections"]["reused"] > 0
    counted = sum(int(count) for count in re.findall(r"count:(\d+)\tindicator:num\tunit:second", receiver.output))
    # A catch-all takes log events, so the counter counts its own lines too, as in Fluentd.
    own = receiver.output.count("indicator:num")
    assert source["events"] <= counted <= source["events"] + own
