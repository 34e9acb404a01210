"""TLS on OpenSSL's own library: hooks that wait, certificates chosen late, sessions, and nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import ssl
from pathlib import Path
from types import SimpleNamespace

import pytest
import trustme

from headrace.core.openssl.certificates import der_certificates, der_key, pem_certificates, pem_key
from headrace.core.openssl.context import Context, Peering
from headrace.core.openssl.failure import NotVerified, OpensslError
from headrace.core.openssl.handles import live
from headrace.core.openssl.hooks import UNRECOGNIZED_NAME, Hooks, Refused
from headrace.core.openssl.sessions import SharedSessions
from headrace.core.openssl.settings import Cache, Settings
from headrace.core.openssl.tickets import ChangingKeys
from headrace.errors import ConfError

VERSIONS = pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pki")
    authority, stranger = trustme.CA(), trustme.CA()
    found = SimpleNamespace(authority=authority, ca=str(folder / "ca.pem"), stranger=str(folder / "stranger.pem"))
    authority.cert_pem.write_to_path(found.ca)
    stranger.cert_pem.write_to_path(found.stranger)
    for name in ("one.example", "two.example"):
        path = folder / f"{name}.pem"
        authority.issue_cert(name).private_key_and_cert_chain_pem.write_to_path(path)
        setattr(found, name.partition(".")[0], (str(path), str(path)))
    return found


async def steps(engine):
    """One call of the handshake and the hooks it waits for; True when it is done."""
    while not engine.handshake():
        waiting, engine.waiting = engine.waiting, None
        if waiting is None:
            return False
        await waiting
    return True


async def shake(client, server):
    """Both sides until they are done. Raises what a side raises, the server's error first."""
    done = [False, False]
    failed = None
    for _ in range(10):
        for index, (one, other) in enumerate(((client, server), (server, client))):
            if not done[index] and not (index == 0 and failed):
                try:
                    done[index] = await steps(one)
                except ssl.SSLError as error:
                    if index == 1:
                        failed = error
                    elif failed is None:
                        raise
            data = one.outgoing()
            if data:
                other.feed(data)
        if failed is not None:
            with pytest.raises(ssl.SSLError):
                await steps(client)
            raise failed
        if all(done):
            if data := client.outgoing():
                server.feed(data)
            server.read(65536)
            return
    raise AssertionError("no end")


def server_of(pki, **settings):
    return Context(Settings(pairs=(settings.pop("pair", pki.one),), **settings))


def client_of(pki, **settings):
    settings.setdefault("verify", "on")
    return Context(Settings(is_server=False, trusted=pki.ca, verify_depth=5, ciphers="DEFAULT", **settings))


def client(pki, name="one.example", *, resume=None, **settings):
    peering = Peering(client_of(pki, **settings), name, name)
    return peering.engine(name=name, resume=resume)


async def met(pki, *, server=None, hooks=None, name="one.example", resume=None, **settings):
    """A client and a server that have shaken hands."""
    two = (server or server_of(pki)).engine(hooks=hooks)
    one = client(pki, name, resume=resume, **settings)
    await shake(one, two)
    return one, two


@VERSIONS
async def test_bytes_in_both_directions_and_the_end(pki, version):
    one, two = await met(pki, protocols=(version,))
    assert (one.version, two.version) == (version, version)
    assert one.cipher == two.cipher
    one.write(b"question")
    two.feed(one.outgoing())
    assert two.read(3) == b"que"
    assert two.buffered
    assert two.read(100) == b"stion"
    assert not two.buffered
    assert two.read(100) == b""
    big = bytes(range(256)) * 3000
    two.write(big)
    wire = two.outgoing()
    one.feed(wire[:100])
    assert one.read(1 << 20) == b""
    one.feed(wire[100:])
    assert one.read(1 << 20) == big
    two.say_goodbye()
    one.feed(two.outgoing())
    assert one.read(100) == b""
    assert (one.ended, one.ragged) == (True, False)
    two.feed(b"")
    assert two.read(100) == b""
    assert (two.ended, two.ragged) == (True, True)


async def test_the_client_hello_is_read_before_anything_is_chosen(pki):
    seen = []

    async def look(connection):
        hello = connection.hello
        await asyncio.sleep(0)
        seen.append((hello.server_name, hello.version_names, hello.extension(0) is not None, hello.extension(9999)))
        assert 0 in hello.extensions
        assert 0x1301 in hello.ciphers
        connection.set_protocols(["TLSv1.2"])

    _, two = await met(pki, hooks=Hooks(client_hello=look))
    assert seen == [("one.example", ("TLSv1.3", "TLSv1.2"), True, None)]
    assert (two.version, two.asked_name) == ("TLSv1.2", "one.example")
    assert two.hello is None


@VERSIONS
@pytest.mark.parametrize("early", [False, True])
async def test_a_certificate_is_fetched_while_the_handshake_waits(pki, version, early):
    data = Path(pki.two[0]).read_bytes()

    async def choose(connection):
        await asyncio.sleep(0)
        connection.clear_certificates()
        chain = pem_certificates(data)
        connection.use_certificates(der_certificates(b"".join(one.der() for one in chain)))
        connection.use_key(pem_key(data))

    server = server_of(pki, early_data=early)
    hooks = Hooks(certificate=choose, client_hello=lambda connection: connection.set_protocols([version]))
    one, two = await met(pki, server=server, hooks=hooks, name="two.example")
    assert two.version == version
    assert one.matches("two.example")


@VERSIONS
async def test_the_server_is_chosen_by_name(pki, version):
    other = server_of(pki, pair=pki.two)
    seen = []

    def choose(connection, name):
        seen.append((connection.data, name))
        return other if name == "two.example" else None

    two = server_of(pki).engine(hooks=Hooks(server_name=choose))
    two.data = "port"
    one = client(pki, "two.example", protocols=(version,))
    await shake(one, two)
    assert two.context is other
    assert seen == [("port", "two.example")]


@pytest.mark.parametrize("hook", ["client_hello", "certificate", "server_name"])
async def test_a_hook_that_fails_ends_the_handshake_with_an_alert(pki, hook):
    def refuse(*_args):
        raise Refused("not you", UNRECOGNIZED_NAME)

    with pytest.raises(OpensslError) as caught:
        await met(pki, hooks=Hooks(**{hook: refuse}))
    assert str(caught.value.__cause__) == "not you"


async def test_verification_by_the_client(pki):
    with pytest.raises(NotVerified) as caught:
        await met(pki, name="elsewhere.example")
    assert 'does not match "elsewhere.example"' in caught.value.verify_message
    one = Peering(Context(Settings(is_server=False, trusted=pki.stranger, verify="on")), "one.example").engine()
    with pytest.raises(NotVerified) as caught:
        await shake(one, server_of(pki).engine())
    assert caught.value.verify_code == 21


async def test_a_client_is_asked_for_a_certificate_by_a_hook(pki):
    def ask(connection):
        connection.verify_client(pem_certificates(Path(pki.ca).read_bytes()), 3)

    _, two = await met(pki, hooks=Hooks(certificate=ask), pairs=(pki.two,))
    assert two.verify_code == 0
    assert two.peer.der() == pem_certificates(Path(pki.two[0]).read_bytes())[0].der()
    _, two = await met(pki, hooks=Hooks(certificate=ask))
    assert two.peer is None


def hooks_with(kept):
    async def get(_connection, identity):
        await asyncio.sleep(0)
        return kept.get(identity)

    return Hooks(session_get=get, session_new=lambda _connection, identity, der: kept.__setitem__(identity, der))


@VERSIONS
async def test_sessions_live_where_the_hooks_keep_them(pki, version):
    kept = {}
    server = server_of(pki, cache=Cache("none"), tickets=False)
    one, two = await met(pki, server=server, hooks=hooks_with(kept), protocols=(version,))
    assert kept
    assert not two.session_reused
    two.write(b"x")
    one.feed(two.outgoing())
    one.read(10)
    session = one.current_session
    one, two = await met(pki, server=server_of(pki, tickets=False), hooks=hooks_with(kept), resume=session,
                         protocols=(version,))  # fmt: skip
    assert (one.session_reused, two.session_reused) == (True, True)
    one, two = await met(pki, server=server_of(pki, tickets=False), hooks=hooks_with({}), resume=session,
                         protocols=(version,))  # fmt: skip
    assert (one.session_reused, two.session_reused) == (False, False)


async def resumed(pki, first, second, version):
    """Whether a session of one context goes on with another."""
    one, two = await met(pki, server=first, protocols=(version,))
    two.write(b"x")
    one.feed(two.outgoing())
    one.read(10)
    session = one.current_session
    if session is None:
        return False
    one, two = await met(pki, server=second, resume=session, protocols=(version,))
    return two.session_reused


@VERSIONS
async def test_sessions_are_shared_and_survive_the_context(pki, version):
    cache = Cache("on", zone=f"test {version}", size=1 << 20)
    contexts = [server_of(pki, cache=cache, tickets=False) for _ in range(2)]
    assert await resumed(pki, contexts[0], contexts[1], version)
    lone = [server_of(pki, cache=Cache("on", builtin=0), tickets=False) for _ in range(2)]
    assert await resumed(pki, lone[0], lone[0], version)
    assert not await resumed(pki, lone[0], lone[1], version)


@VERSIONS
async def test_keys_of_tickets(pki, version, tmp_path):
    files = []
    for index, size in enumerate((80, 48, 80)):
        path = tmp_path / f"{index}.key"
        path.write_bytes(bytes((index,)) * size)
        files.append(str(path))
    first, second, third = (server_of(pki, ticket_keys=keys) for keys in (files[:1], (files[1], files[0]), files[2:]))
    assert await resumed(pki, first, first, version)
    assert await resumed(pki, first, second, version)
    assert await resumed(pki, second, second, version)
    assert not await resumed(pki, first, third, version)
    (tmp_path / "bad").write_bytes(b"x" * 47)
    with pytest.raises(ConfError, match="must be 48 or 80 bytes"):
        server_of(pki, ticket_keys=(str(tmp_path / "bad"),))


def test_keys_in_shared_memory_change_and_are_the_same_for_all():
    sessions = SharedSessions("keys test", 1 << 20)
    keys = ChangingKeys(sessions, 300)
    first = keys.keys(1000.0)
    assert len(first) == 1
    assert ChangingKeys(SharedSessions("keys test", 1 << 20), 300).keys(1299.0) == first
    second = keys.keys(1300.0)
    assert second[1:] == first
    assert keys.keys(1600.0)[1:] == second[:1]


def test_the_oldest_sessions_make_room():
    sessions = SharedSessions("room test", 64 << 10)
    for number in range(200):
        sessions.store(b"id %d" % number, b"%d" % number * 100, 60, now=1000.0 + number)
    kept = [number for number in range(200) if sessions.get(b"id %d" % number, now=1000.0)]
    assert kept == list(range(kept[0], 200))
    assert 20 < len(kept) < 200
    assert sessions.get(b"id 199", now=1000.0) == b"199" * 100
    assert sessions.get(b"id 199", now=1000.0 + 199 + 60) is None
    sessions.remove(b"id 198")
    assert sessions.get(b"id 198", now=1000.0) is None
    sessions.store(b"large", b"x" * 5000, 60)
    assert sessions.get(b"large") is None


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"ciphers": "NONSENSE"}, 'SSL_CTX_set_cipher_list("NONSENSE") failed (SSL: error:0A0000B9:SSL routines::no'),
        ({"curves": "nonsense"}, 'SSL_CTX_set1_curves_list("nonsense") failed'),
        ({"pair": ("/nowhere.pem", "/nowhere.pem")}, 'cannot load certificate "/nowhere.pem": BIO_new_file() failed'),
        ({"pair": ("data:x", "data:x")}, 'cannot load certificate "data:x": PEM_read_bio_X509_AUX() failed'),
        ({"commands": (("Nonsense", "x"),)}, 'SSL_CONF_cmd("Nonsense", "x") failed'),
        ({"dhparam": "/nowhere.pem"}, 'BIO_new_file("/nowhere.pem") failed (No such file or directory)'),
        ({"crl": "/nowhere.pem"}, 'X509_LOOKUP_load_file("/nowhere.pem") failed'),
        ({"verify": "on", "client_ca": "/nowhere.pem"}, 'SSL_CTX_load_verify_locations("/nowhere.pem") failed'),
    ],
)
def test_settings_that_cannot_work(pki, settings, text):
    with pytest.raises(ConfError) as caught:
        server_of(pki, **settings)
    assert text in str(caught.value)


def test_keys_and_certificates_of_other_forms(pki):
    data = Path(pki.one[0]).read_bytes()
    chain = pem_certificates(data)
    assert chain[0].subject().startswith(b"OU=Testing cert")
    assert chain[0].subject(legacy=True).startswith(b"/O=trustme")
    assert chain[0].days_left(0) > 10_000
    assert chain[0].ends().endswith(b" GMT")
    for wrong in (b"", b"nonsense"):
        with pytest.raises(ConfError):
            der_key(wrong)
        with pytest.raises(ConfError):
            der_certificates(wrong)
        with pytest.raises(ConfError):
            pem_key(wrong)


async def test_nothing_stays_behind(pki):
    gc.collect()
    before = dict(live)
    kept = {}
    for _ in range(30):
        one, two = await met(pki, server=server_of(pki, tickets=False), hooks=hooks_with(kept))
        two.peer, one.peer, one.peer_chain, one.verified_chain, two.session_id, two.current_session  # noqa: B018
        with pytest.raises(ssl.SSLError):
            await met(pki, name="elsewhere.example")
    del one, two
    gc.collect()
    assert {kind: live[kind] - before.get(kind, 0) for kind in live if live[kind] != before.get(kind, 0)} == {}
