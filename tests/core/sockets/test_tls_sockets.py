"""TLS 1.2 and 1.3 with the interface of a plain stream."""

import asyncio
import socket
import ssl
import uuid

import pytest

from headrace import errors
from headrace.core import tls as tls_module
from headrace.core.clock import Clock
from headrace.core.stream import Stream
from headrace.core.tls import TlsConfig, TlsStream, tls_version
from headrace.testing.clock import FakeClock, settle
from headrace.testing.streams import Recorder

BOTH = pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])


def pair(pki, *, client=None, server=None, name="localhost", peer=("peer", 443), clock=None, owners=(None, None)):
    loop = asyncio.get_running_loop()
    clock = clock or Clock(loop)
    near, far = socket.socketpair()
    client = client or TlsConfig(ca_path=pki.ca)
    server = server or TlsConfig(role="server", cert=pki.server, verify_mode="none")
    one = TlsStream(near, loop, clock, client, owners[0], peer=peer, server_hostname=name)
    two = TlsStream(far, loop, clock, server, owners[1], peer="server")
    return one, two


async def shaken(pki, **options):
    one, two = pair(pki, **options)
    await asyncio.gather(one.handshake(30), two.handshake(30))
    return one, two


def only(version, pki, **options):
    return TlsConfig(ca_path=pki.ca, min_version=version, max_version=version, **options)


async def read_all(stream):
    got = bytearray()
    while data := await stream.read(timeout=30):
        got += data
    return bytes(got)


@BOTH
async def test_bytes_both_ways_marks_and_the_end(version, pki):
    one, two = await shaken(pki, client=only(version, pki))
    assert one.version == version.replace("_", ".")
    assert one.cipher == two.cipher
    marks = []
    one.write(b"question")
    one.chain.mark(marks.append)
    assert marks == [None]  # small enough: it is in the kernel at once
    assert (one.chain.length, one.chain.peak_segments) == (0, 1)
    assert await two.read(3, 30) == b"que"
    assert await two.read(timeout=30) == b"stion"
    two.write(b"x" * 3_000_000)
    two.chain.mark(lambda error: marks.append(("big", error)))
    assert two.chain.length > 0
    assert len(marks) == 1
    two.close()
    assert await read_all(one) == b"x" * 3_000_000
    assert marks[1:] == [("big", None)]
    assert one.eof
    assert not one.ragged_eof
    one.close()


@BOTH
async def test_half_close(version, pki):
    one, two = await shaken(pki, client=only(version, pki))
    one.write(b"all of it")
    one.shutdown_write()
    assert await read_all(two) == b"all of it"
    assert not two.ragged_eof
    two.write(b"answer")
    two.close()
    assert await read_all(one) == b"answer"
    one.close()


@BOTH
async def test_pushing_to_owners_and_nothing_stays_behind(version, pki):
    owners = Recorder(), Recorder()
    one, two = await shaken(pki, client=only(version, pki), owners=owners)
    one.start_reading()
    two.start_reading()
    one.append(b"a" * 70_000)
    one.append(b"b")
    one.flush()
    while len(owners[1].data) < 70_001:
        await asyncio.sleep(0.001)
    two.write(b"answer")
    two.close()
    while not owners[1].lost or not owners[0].eof:
        await asyncio.sleep(0.001)
    assert owners[0].data == b"answer"
    assert owners[0].lost == []
    one.close()
    await settle()
    assert (owners[0].lost, owners[1].lost) == ([None], [None])


async def test_what_was_decrypted_in_pull_mode_is_pushed_to_a_new_owner(pki):
    one, two = await shaken(pki)
    two.write(b"abcdef")
    assert await one.read(2, 30) == b"ab"
    owner = Recorder()
    one.set_owner(owner)
    one.start_reading()
    while owner.data != b"cdef":
        await asyncio.sleep(0.001)
    one.abort()
    two.abort()


async def test_bytes_written_before_the_handshake_wait_for_it(pki):
    one, two = pair(pki)
    one.write(b"early")
    assert one.chain.length == 5
    await asyncio.gather(one.handshake(30), two.handshake(30))
    assert await two.read(timeout=30) == b"early"
    one.abort()
    two.abort()


@BOTH
async def test_tickets_are_no_data_and_the_end_is_seen_while_idle(version, pki):
    one, two = await shaken(pki, client=only(version, pki))
    assert one.probe() == "idle"  # 1.3: the tickets were there
    two.write(b"unasked")
    assert one.probe() == "data"
    assert one.probe() == "data"
    assert await one.read(timeout=30) == b"unasked"
    assert one.probe() == "idle"
    two.close()
    assert one.probe() == "eof"
    one.close()
    assert one.probe() == "error"


async def test_an_end_without_close_notify_is_marked(pki):
    one, two = await shaken(pki)
    two.write(b"cut")
    two.detach().close()
    assert await read_all(one) == b"cut"
    assert one.ragged_eof
    one.close()


async def test_garbage_from_the_peer_is_an_error_of_the_connection(pki):
    one, two = await shaken(pki)
    raw = two.detach()
    raw.send(b"this is no TLS record at all")
    with pytest.raises(errors.ConnectionFailed) as caught:
        await one.read(timeout=30)
    assert caught.value.kind == "tls"
    raw.close()


@BOTH
async def test_sessions_are_resumed_when_wanted(version, pki):
    config = only(version, pki, reuse_sessions=True)
    here = (str(uuid.uuid4()), 1)
    before = tls_module.stats.session_reused
    seen = []
    for _ in range(3):
        one, two = await shaken(pki, client=config, peer=here)
        two.write(b"x")
        await one.read(timeout=30)
        seen.append(one.session_reused)
        one.close()
        two.close()
        await settle()
    assert seen == [False, True, True]
    # A resumed session is seen, and counted, at both ends.
    assert tls_module.stats.session_reused == before + 4
    one, two = await shaken(pki, client=config, peer=(str(uuid.uuid4()), 1))
    assert not one.session_reused
    one.abort()
    two.abort()


async def failing(pki, **options):
    one, two = pair(pki, **options)
    results = await asyncio.gather(one.handshake(30), two.handshake(30), return_exceptions=True)
    assert one.closed or two.closed
    for stream in (one, two):
        stream.abort()
    return results


async def test_an_unknown_ca_names_the_setting_that_mends_it(pki):
    ours, theirs = await failing(pki, client=TlsConfig(ca_path=pki.stranger))
    assert ours.kind == "certificate"
    assert ours.retryable
    assert "localhost at peer:443 failed: unable to get local issuer certificate" in str(ours)
    assert "set the CA certificate path" in str(ours)
    assert "does not trust our certificate's CA" in str(theirs)


async def test_a_wrong_name_is_refused_unless_names_are_not_verified(pki):
    ours, _ = await failing(pki, name="elsewhere.example")
    assert "dial the name that is in the certificate" in str(ours)
    for config in (
        TlsConfig(ca_path=pki.ca, verify_hostname=False),
        TlsConfig(verify_mode="none"),
        TlsConfig(ca_path=pki.ca, server_hostname="localhost"),
    ):
        one, two = await shaken(pki, client=config, name="elsewhere.example")
        one.abort()
        two.abort()


async def test_no_version_in_common_says_so(pki):
    server = TlsConfig(role="server", cert=pki.server, verify_mode="none", min_version="TLSv1_3")
    ours, theirs = await failing(pki, client=only("TLSv1_2", pki), server=server)
    assert "version" in str(ours)
    assert "no TLS version in common" in str(theirs)


async def test_client_certificates(pki):
    server = TlsConfig(role="server", cert=pki.server, ca_path=pki.ca)
    one, two = await shaken(pki, client=TlsConfig(ca_path=pki.ca, cert=pki.client), server=server)
    assert b"client@example.org" in two.peer_der()
    one.abort()
    two.abort()
    _, theirs = await failing(pki, server=server)
    assert "this side wants a client certificate" in str(theirs)


async def test_a_peer_that_speaks_something_else(pki):
    loop = asyncio.get_running_loop()
    near, far = socket.socketpair()
    one = TlsStream(near, loop, Clock(loop), TlsConfig(), peer=("p", 1), server_hostname="x")
    far.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(errors.ConnectionFailed, match="does not speak TLS"):
        await one.handshake(30)
    assert one.closed
    near, again = socket.socketpair()
    one = TlsStream(near, loop, Clock(loop), TlsConfig(), peer=("p", 1), server_hostname="x")
    again.close()
    with pytest.raises(errors.ConnectionFailed):
        await one.handshake(30)
    far.close()


async def test_a_silent_peer_ends_the_handshake_at_its_deadline(pki):
    clock = FakeClock()
    one, two = pair(pki, clock=clock)
    task = asyncio.ensure_future(one.handshake(5.0))
    await clock.elapse(6.0)
    with pytest.raises(errors.Timeout, match="TLS handshake with localhost at peer:443 timed out"):
        await task
    assert one.closed
    two.abort()


async def test_a_cancelled_handshake_can_be_aborted(pki):
    one, two = pair(pki)
    task = asyncio.ensure_future(one.handshake(30))
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    one.abort()
    two.abort()
    await settle()


async def test_a_plain_stream_is_upgraded_by_detaching_it(pki):
    loop = asyncio.get_running_loop()
    clock = Clock(loop)
    near, far = socket.socketpair()
    plain = [Stream(sock, loop, clock) for sock in (near, far)]
    plain[0].write(b"STARTTLS")
    assert await plain[1].read(timeout=30) == b"STARTTLS"
    one = TlsStream(plain[0].detach(), loop, clock, TlsConfig(ca_path=pki.ca), server_hostname="localhost")
    two = TlsStream(plain[1].detach(), loop, clock, TlsConfig(role="server", cert=pki.server, verify_mode="none"))
    await asyncio.gather(one.handshake(30), two.handshake(30))
    one.write(b"secret")
    assert await two.read(timeout=30) == b"secret"
    one.abort()
    two.abort()


@pytest.mark.parametrize("name", ["TLSv1_2", "TLS1_2", "TLSv1.2", ":TLSv1_2", "tlsv1_2"])
def test_names_of_versions(name):
    assert tls_version(name) is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"min_version": "TLSv9"}, 'unknown TLS version "TLSv9"'),
        ({"role": "server"}, "needs a certificate"),
        ({"role": "peer"}, 'unknown TLS role "peer"'),
        ({"verify_mode": "maybe"}, 'unknown verify mode "maybe"'),
        ({"ca_path": "/nowhere/ca.pem"}, 'cannot load CA file "/nowhere/ca.pem": No such file'),
        ({"cert": "/nowhere/c.pem", "key": "/nowhere/k.pem"}, 'with key "/nowhere/k.pem"'),
        ({"ciphers": "NONSENSE"}, 'cannot load cipher list "NONSENSE": no cipher can be selected'),
    ],
)
def test_settings_that_cannot_work(settings, text):
    with pytest.raises(errors.ConfError) as caught:
        TlsConfig(**settings).context()
    assert text in str(caught.value)


def test_one_context_for_equal_settings_and_no_secret_in_the_text(pki):
    assert TlsConfig(ca_path=pki.ca).context() is TlsConfig(ca_path=pki.ca).context()
    assert "hush" not in repr(TlsConfig(passphrase="hush"))
