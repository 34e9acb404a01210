"""HELO, PING, PONG of both sides, and what each refuses."""

from hashlib import sha512

import pytest

from headrace.pipeline.event import pack_value, unpack_value
from headrace.plugins.forward import handshake
from headrace.plugins.forward.handshake import HandshakeError


def wire(message):
    return unpack_value(pack_value(message))


def talk(*, key="k", client_key="k", auth=b"", user="", password=""):
    nonce, salt = handshake.new_salt(), handshake.new_salt()
    greeting = handshake.check_helo(wire(handshake.helo(nonce, auth)))
    assert greeting == (nonce, auth, True)
    said = wire(handshake.ping(greeting, salt, hostname="c", shared_key=client_key, username=user, password=password))
    proof = handshake.check_ping(said)
    assert proof.hostname == b"c"
    return nonce, salt, greeting, proof


def test_both_sides_agree():
    nonce, salt, greeting, proof = talk()
    assert proof.knows_key(nonce, "k")
    assert not proof.knows_key(nonce, "K")
    answer = wire(handshake.pong(proof, nonce, hostname="s", shared_key="k"))
    assert handshake.check_pong(answer, greeting, salt, hostname="c", shared_key="k") == "s"


def test_the_digests_are_those_of_the_specification():
    said = handshake.ping(
        handshake.Helo(b"N", b"A", True), b"S", hostname="h", shared_key="k", username="u", password="p"
    )
    assert said == ["PING", "h", b"S", sha512(b"ShNk").hexdigest(), "u", sha512(b"Aup").hexdigest()]
    proof = handshake.check_ping(said)
    assert proof.knows_password(b"A", "p")
    assert not proof.knows_password(b"A", "q")
    assert handshake.pong(proof, b"N", hostname="s", shared_key="k")[4] == sha512(b"SsNk").hexdigest()


def test_without_auth_no_user_is_named():
    _, _, _, proof = talk(user="u", password="secret")
    assert (proof.username, proof.password_digest) == (b"", b"")


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (handshake.refusal("shared_key mismatch"), "authentication failed: shared_key mismatch"),
        (["PONG", True, "", "c", "x"], "same hostname"),
        (["PONG", True, "", "s", "x"], "shared key mismatch"),
        (["PONG", True, ""], "invalid format for PONG"),
        ([[], True, "", "s", "x"], "invalid format for PONG"),
        (["PONG", True, "", "s", 5], "a text is expected"),
        ({"ack": 1}, "invalid format for PONG"),
    ],
)
def test_what_a_client_refuses(answer, text):
    _, salt, greeting, _ = talk()
    with pytest.raises(HandshakeError, match=text):
        handshake.check_pong(answer, greeting, salt, hostname="c", shared_key="k")


@pytest.mark.parametrize("message", [["HELO"], ["PING", {}], ["HELO", "x"], 5, [{}, {}]])
def test_a_helo_that_is_none(message):
    with pytest.raises(HandshakeError, match="invalid helo"):
        handshake.check_helo(message)


def test_a_helo_in_bin_without_options():
    assert handshake.check_helo([b"HELO", {b"nonce": "n"}]) == (b"n", b"", True)
    assert handshake.check_helo(["HELO", None]) == (b"", b"", True)


@pytest.mark.parametrize(
    "message", [["PING", "h"], ["tag", 1, {}], [[], "h", "s", "d", "", ""], ["PING", "h", "s", 1, "", ""]]
)
def test_a_ping_that_is_none(message):
    with pytest.raises(HandshakeError, match="invalid"):
        handshake.check_ping(message)


def test_missing_users_may_be_nil():
    assert handshake.check_ping(["PING", "h", "s", "d", None, None]).username == b""
