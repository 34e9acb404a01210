"""Tests over real sockets run on both loops; certificates come from a CA of their own."""

import asyncio
from types import SimpleNamespace

import pytest
import trustme
import uvloop


def pytest_asyncio_loop_factories(config, item):
    """The loops to run on."""
    return {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session")
def pki(tmp_path_factory):
    """Paths of a CA, a server's and a client's certificate, and of a stranger's CA."""
    folder = tmp_path_factory.mktemp("pki")
    ca, stranger = trustme.CA(), trustme.CA()
    paths = SimpleNamespace(**{name: str(folder / f"{name}.pem") for name in ("ca", "server", "client", "stranger")})
    ca.cert_pem.write_to_path(paths.ca)
    stranger.cert_pem.write_to_path(paths.stranger)
    ca.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.write_to_path(paths.server)
    ca.issue_cert("client@example.org").private_key_and_cert_chain_pem.write_to_path(paths.client)
    return paths
