"""Access, addresses, referers, ids of users: one table for the gateway and for nginx."""

from __future__ import annotations

import pytest
from access_table import HTTP, SERVER, TABLE, USERS, basic

from headrace.edge.passwords import apr1, crypt, matches
from headrace.errors import ConfError


def server(folder) -> str:
    (folder / "users").write_text(USERS)
    (folder / "users").chmod(0o644)
    fill = lambda code, i: code.replace("{users}", str(folder / "users")).replace("{i}", str(i))  # noqa: E731
    return SERVER + "\n".join(f"location = /case{i} {{ {fill(row[1], i)} }}" for i, row in enumerate(TABLE))


def check(answers) -> None:
    wrong = []
    for (name, _, _, status, text), answer in zip(TABLE, answers, strict=True):
        head = answer.head.decode("latin-1")
        if str(answer.status) != status or (text not in head and text not in answer.text):
            wrong.append(f"{name}: {answer.status} {head!r} {answer.text!r}")
    assert not wrong, "\n".join(wrong)


async def test_access(gateway, tmp_path):
    await gateway.start(server(tmp_path), http=HTTP)
    check([await gateway.get(f"/case{i}", *row[2]) for i, row in enumerate(TABLE)])


@pytest.mark.peer
def test_access_in_nginx(nginx, tmp_path):
    tmp_path.chmod(0o755)
    get = nginx(server(tmp_path), http=HTTP)
    check([get(f"/case{i}", *row[2]) for i, row in enumerate(TABLE)])


async def test_passwords_are_read_again(gateway, tmp_path):
    (tmp_path / "users").write_text("a:{PLAIN}one\n")
    await gateway.start(f"auth_basic x; auth_basic_user_file {tmp_path}/users; location / {{ echo passed; }}")
    assert (await gateway.get("/", basic("a", "one"))).status == 200
    (tmp_path / "users").write_text("a:{PLAIN}two\nb:{PLAIN}\n")
    assert (await gateway.get("/", basic("a", "one"))).status == 401
    assert (await gateway.get("/", basic("a", "two"))).status == 200
    assert 'user "a": password mismatch' in gateway.log()


def test_slow_hashes_are_remembered_by_hash_and_password():
    hashed = crypt(b"secret", b"$5$rounds=1000$salt$")
    for _ in range(2):
        assert matches(b"secret", hashed)
        assert not matches(b"Secret", hashed)
    with pytest.raises(ValueError, match="crypt"):
        matches(b"secret", b"$nothing$")


def test_apr1_of_long_and_empty_passwords():
    assert apr1(b"", b"$apr1$abc$") != apr1(b"x" * 40, b"$apr1$abc$")


async def test_the_log_sees_the_client(gateway):
    await gateway.start("set_real_ip_from unix:; location / { deny all; }")
    assert (await gateway.get("/", "X-Real-IP: 192.0.2.33")).status == 403
    assert "client: 192.0.2.33, server:" in gateway.log()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("satisfy some;", 'invalid value "some"'),
        ("set_real_ip_from no/where;", "host not found"),
        ("location / { limit_except FETCH { deny all; } }", 'invalid method "FETCH"'),
        ("userid maybe;", 'invalid value "maybe"'),
        ("userid_mark ab;", "value must be"),
        ("userid_flags secret;", 'invalid parameter "secret"'),
        ("valid_referers http://a;", "invalid server name"),
        ("auth_request_set x y;", 'invalid variable name "x"'),
    ],
)
async def test_refuses(gateway, code, message):
    with pytest.raises(ConfError, match=message):
        await gateway.start(code)
