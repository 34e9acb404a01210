"""The modules that every OpenResty carries: tables of locations, here and in nginx with the same modules."""

from __future__ import annotations

import pytest
from echo_table import LOCATIONS as ECHO_LOCATIONS
from echo_table import TABLE as ECHO
from more_headers_table import TABLE as HEADERS
from set_misc_table import TABLE as SET

from headrace.errors import ConfError

FIELDS = ("X-Some: value",)


def locations(table) -> str:
    return "\n".join(f"location = /case{i} {{ {code} }}" for i, (_, code, _) in enumerate(table))


def wanted(i: int, output: str, text: str) -> bool:
    if output == "HEAD\n":
        return text.startswith(f"POST /case{i}?a=1 HTTP/1.1\r\nHost: localhost\r\n") and text.endswith("6\r\n\r\n\n")
    if output == "MISSING":
        return "404 Not Found" in text and text.endswith("after\n")
    if output == "500":
        return "500 Internal Server Error" in text
    return text == output.replace("URI", f"/case{i}")


def check(table, texts) -> None:
    wrong = [
        f"{name}: {text!r} is not {output!r}"
        for i, ((name, _, output), text) in enumerate(zip(table, texts, strict=True))
        if not wanted(i, output, text)
    ]
    assert not wrong, "\n".join(wrong)


async def test_echo(gateway):
    await gateway.start(ECHO_LOCATIONS + locations(ECHO))
    answers = [await gateway.get(f"/case{i}?a=1", *FIELDS, method="POST", body=b"posted") for i in range(len(ECHO))]
    check(ECHO, [answer.text for answer in answers])


@pytest.mark.peer
def test_echo_in_nginx(nginx):
    get = nginx(ECHO_LOCATIONS + locations(ECHO))
    check(ECHO, [get(f"/case{i}?a=1", *FIELDS, method="POST", body=b"posted").text for i in range(len(ECHO))])


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("echo_end;", "echo_end"),
        ("echo a; echo_exec /b;", "echo_exec"),
        ("echo_status x;", 'invalid value "x"'),
        ("echo_subrequest GET /a -z;", 'Unknown option for echo_subrequest: "-z"'),
        ("echo_sleep;", 'invalid number of arguments in "echo_sleep" directive'),
    ],
)
async def test_echo_refuses(gateway, code, message):
    with pytest.raises(ConfError, match=message):
        await gateway.start(f"location / {{ {code} }}")


async def test_set_misc(gateway):
    await gateway.start(locations(SET))
    check(SET, [(await gateway.get(f"/case{i}")).text for i in range(len(SET))])


@pytest.mark.peer
def test_set_misc_in_nginx(nginx):
    get = nginx(locations(SET))
    check(SET, [get(f"/case{i}").text for i in range(len(SET))])


def header_cases() -> str:
    return "\n".join(f"location = /case{i} {{ {row[1]} }}" for i, row in enumerate(HEADERS))


def check_headers(answers) -> None:
    wrong = []
    for (name, _, must, must_not), answer in zip(HEADERS, answers, strict=True):
        lines = [*answer.head.decode("latin-1").split("\r\n"), *answer.text.splitlines()]
        wrong += [f"{name}: no {text!r} in {lines}" for text in must if not any(text in line for line in lines)]
        wrong += [f"{name}: {text!r} in {lines}" for text in must_not if any(line.startswith(text) for line in lines)]
    assert not wrong, "\n".join(wrong)


async def test_headers_more(gateway):
    await gateway.start(header_cases())
    check_headers([await gateway.get(f"/case{i}?a=1", *FIELDS) for i in range(len(HEADERS))])


@pytest.mark.peer
def test_headers_more_in_nginx(nginx):
    get = nginx(header_cases())
    check_headers([get(f"/case{i}?a=1", *FIELDS) for i in range(len(HEADERS))])
