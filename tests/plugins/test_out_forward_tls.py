"""The forward output over TLS: whom it trusts, what it shows of itself, and what it says when it does not trust."""

import ssl
from dataclasses import replace

import node_rig as rig
import pytest
import trustme
from http_rig import problems_of
from node_rig import Node

from headrace.core.tls_config import TlsConfig, forget_contexts
from headrace.pipeline.event import Batch

CA = trustme.CA()
OTHER = trustme.CA()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    CA.cert_pem.write_to_path(folder / "ca.pem")
    OTHER.cert_pem.write_to_path(folder / "other.pem")
    client = CA.issue_cert("edge.example")
    client.private_key_pem.write_to_path(folder / "client.key")
    client.cert_chain_pems[0].write_to_path(folder / "client.pem")
    return folder


def context(*names, ca=CA, client=False):
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(*names).configure_cert(made)
    if client:
        CA.configure_trust(made)
        made.verify_mode = ssl.CERT_REQUIRED
    return made


async def delivered(node, text, name=""):
    """Whether one chunk arrives; and the log."""
    host = f"<server>\nhost {node.host}\nport {node.port}\n{name}\n</server>\n"
    parameters = f"heartbeat_type none\nkeepalive true\nrequire_ack_response true\ntransport tls\n{text}\n{host}"
    async with rig.output(parameters) as (running, emit):
        await emit("t", Batch.one(1, {"n": 1}))
        await running.until(lambda: running.failures() or not running.runner.stats()["buffered"])
        return node.numbers == [1], running.log.getvalue()


async def test_a_node_with_the_name_that_is_dialled(files):
    async with Node(tls=context("localhost"), host="localhost") as node:
        assert (await delivered(node, f"tls_cert_path {files}/ca.pem"))[0]


async def test_several_cas(files):
    async with Node(tls=context("localhost"), host="localhost") as node:
        assert (await delivered(node, f"tls_ca_cert_path {files}/other.pem,{files}/ca.pem"))[0]


async def test_a_node_whose_ca_is_not_known(files):
    async with Node(tls=context("localhost"), host="localhost") as node:
        done, log = await delivered(node, f"tls_cert_path {files}/other.pem\ntls_allow_self_signed_cert true")
        assert not done
        assert "set the CA certificate path" in log


async def test_a_node_with_another_name(files):
    async with Node(tls=context("elsewhere.example"), host="localhost") as node:
        assert not (await delivered(node, f"tls_cert_path {files}/ca.pem"))[0]
        assert (await delivered(node, f"tls_cert_path {files}/ca.pem\ntls_verify_hostname false"))[0]


async def test_the_name_of_the_section_where_host_is_an_address(files):
    async with Node(tls=context("node.example")) as node:
        assert (await delivered(node, f"tls_cert_path {files}/ca.pem", "name node.example"))[0]
    async with Node(tls=context("node.example")) as node:
        assert not (await delivered(node, f"tls_cert_path {files}/ca.pem", "name other.example"))[0]
    async with Node(tls=context("node.example")) as node:  # as in Fluentd: no name, nothing to compare
        assert (await delivered(node, f"tls_cert_path {files}/ca.pem"))[0]


async def test_insecure_mode_trusts_everybody():
    async with Node(tls=context("elsewhere.example", ca=OTHER)) as node:
        assert (await delivered(node, "tls_insecure_mode true"))[0]


async def test_a_client_certificate(files):
    async with Node(tls=context("localhost", client=True), host="localhost") as node:
        text = f"tls_cert_path {files}/ca.pem\n"
        assert not (await delivered(node, text))[0]
        mine = f"tls_client_cert_path {files}/client.pem\ntls_client_private_key_path {files}/client.key"
        assert (await delivered(node, text + mine))[0]
        assert ("DNS", "edge.example") in node.peer_certs[-1]["subjectAltName"]


async def test_the_version_and_a_range(files):
    server = context("localhost")
    server.minimum_version = ssl.TLSVersion.TLSv1_3
    async with Node(tls=server, host="localhost") as node:
        text = f"tls_cert_path {files}/ca.pem\n"
        assert not (await delivered(node, text))[0], "the default is TLS 1.2, as in Fluentd"
        assert (await delivered(node, text + "tls_min_version TLSv1_2\ntls_max_version TLSv1_3"))[0]


async def test_certificates_that_cannot_be_read_any_more_keep_the_chunk(files, tmp_path):
    """A context that is made anew, after a reload of certificates, may fail: that is no reason to give chunks up."""
    path = tmp_path / "ca.pem"
    path.write_bytes((files / "ca.pem").read_bytes())
    async with Node(tls=context("localhost"), host="localhost") as node:
        text = f"heartbeat_type none\ntransport tls\ntls_cert_path {path}\n<server>\nhost localhost\nport {node.port}\n</server>\n"
        async with rig.output(text) as (running, emit):
            path.unlink()
            forget_contexts()
            await emit("t", Batch.one(1, {"n": 1}))
            await running.failed(1)
            assert running.runner.stats()["buffered"] == 1
            path.write_bytes((files / "ca.pem").read_bytes())
            await running.idle()
            await running.until(lambda: node.numbers == [1])


def test_nodes_share_a_context_and_differ_in_names(files):
    config = TlsConfig(ca_path=str(files / "ca.pem"))
    one, other = (replace(config, server_hostname=name) for name in ("a.example", "b.example"))
    assert one.context() is other.context() is config.context()
    assert replace(one, verify_hostname=False).context() is not one.context()


async def test_a_node_without_tls():
    async with Node() as node:
        done, log = await delivered(node, "tls_insecure_mode true\nconnect_timeout 0.3")
        assert not done
        assert "TLS" in log


def test_what_check_warns_of(files):
    text = "<match **>\n@type forward\ntransport tls\n{}\n<server>\nhost {}\n</server>\n</match>"
    for parameters, host, told in (
        ("tls_insecure_mode true", "a", "nobody knows whom"),
        ("tls_allow_self_signed_cert true", "a", "makes no certificate trusted"),
        ("", "10.0.0.1", "is not checked for its name"),
    ):
        errors, warnings = problems_of("output", text.format(parameters, host))
        assert errors == []
        assert any(told in warning for warning in warnings), warnings
    errors, _ = problems_of("output", text.format(f"tls_client_cert_path {files}/client.pem", "a"))
    assert errors
