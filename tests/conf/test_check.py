"""What nginx says about a directive that stands wrong."""

from __future__ import annotations

import pytest

from headrace.conf import nginx
from headrace.conf.check import UNBOUNDED, Spec, Unbuilt, check_nginx
from headrace.conf.problems import Problems
from headrace.errors import ConfError


def spec(name: str, contexts: str, low: int, high: int | None = None, **options: object) -> Spec:
    return Spec(name, frozenset(contexts.split(",")), low, low if high is None else high, **options)  # type: ignore[arg-type]


SPECS: dict[str, Spec | tuple[Spec, ...]] = {
    "events": spec("events", "main", 0, kind="block"),
    "http": spec("http", "main", 0, kind="block"),
    "server": (spec("server", "http", 0, kind="block"), spec("server", "upstream", 1, UNBOUNDED)),
    "upstream": spec("upstream", "http", 1, kind="block"),
    "location": spec("location", "server,location", 1, 2, kind="block"),
    "if": spec("if", "server,location", 1, UNBOUNDED, kind="block"),
    "listen": spec("listen", "server", 1, UNBOUNDED),
    "return": spec("return", "server,location,if", 1, 2),
    "root": spec("root", "http,server,location,if in location", 1),
    "sendfile": spec("sendfile", "http,server", 1, flag=True),
    "types": spec("types", "http", 0, kind="block", data=True),
    "content_by_lua_block": spec("content_by_lua_block", "location", 0, kind="lua"),
    "pid": spec("pid", "main", 1),
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "http { types { a/b c d; } upstream u { server x:1 weight=2; } server { listen 80; if ($a) { return 200; } } }",
            [],
        ),
        ("http { server { location / { if ($a) { root /x; } content_by_lua_block { x } } sendfile ON; } }", []),
        ("foo bar;", ['unknown directive "foo" in n.conf:1']),
        ("http {\nsever { }\n}", ['unknown directive "sever" in n.conf:2 (did you mean "server"?)']),
        ("http { lissen 80; }", ['unknown directive "lissen" in n.conf:1 (did you mean "listen"?)']),
        ("listen 80;", ['"listen" directive is not allowed here in n.conf:1 (it belongs in server)']),
        (
            "http { server { if ($a) { root /x; } } }",
            ['"root" directive is not allowed here in n.conf:1 (it belongs in http, if in location, location, server)'],
        ),
        ("http { server 1; }", ['directive "server" has no opening "{" in n.conf:1']),
        ("http { server { listen { } } }", ['directive "listen" is not terminated by ";" in n.conf:1']),
        (
            "http { server x { } }",
            ['invalid number of arguments in "server" directive in n.conf:1 (it takes 0, not 1)'],
        ),
        (
            "http { server { listen; } }",
            ['invalid number of arguments in "listen" directive in n.conf:1 (it takes at least 1, not 0)'],
        ),
        (
            "http { server { return 1 2 3; } }",
            ['invalid number of arguments in "return" directive in n.conf:1 (it takes 1 to 2, not 3)'],
        ),
        (
            "http { sendfile maybe; }",
            ['invalid value "maybe" in "sendfile" directive, it must be "on" or "off" in n.conf:1'],
        ),
        (
            "http { server { location / { content_by_lua_block x; } } }",
            ['directive "content_by_lua_block" has no opening "{" in n.conf:1'],
        ),
        (
            "http { server { location / { content_by_lua_block x { } } } }",
            ['invalid number of arguments in "content_by_lua_block" directive in n.conf:1 (it takes 0, not 1)'],
        ),
        (
            "a;\nb;\nevents { c; }",
            [f'unknown directive "{name}" in n.conf:{line}' for name, line in (("a", 1), ("b", 2), ("c", 3))],
        ),
    ],
)
def test_messages(text: str, expected: list[str]) -> None:
    problems = Problems()
    check_nginx(nginx.parse(text, "n.conf"), SPECS, problems)
    assert [str(error) for error in problems.errors] == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("daemon", 'unexpected end of parameter, expecting ";" in command line'),
        ("foo x;", 'unknown directive "foo" in command line'),
        ("events { }", "block directives are not supported in -g option in command line"),
        (";", 'unexpected ";" in command line'),
    ],
)
def test_command_line(text: str, message: str) -> None:
    problems = Problems()
    with pytest.raises(ConfError) as caught:  # noqa: PT012 - which of the two refuses does not matter
        check_nginx(nginx.parse(text, nginx.COMMAND_LINE), SPECS, problems)
        problems.raise_first()
    assert str(caught.value) == message


def test_what_exists_elsewhere_is_no_typing_error():
    problems = Problems()
    unbuilt = Unbuilt({"listener_pass", "mapp"}, "it exists")
    tree = nginx.parse("listener_pass x; listener_pas x; mapp { a b; } zzz;", "n.conf")
    failed = check_nginx(tree, SPECS, problems, unbuilt=unbuilt)
    assert [error.hint for error in problems.errors] == [
        "it exists",
        'did you mean "listener_pass"? it exists',
        "it exists",
        "",
    ]
    assert [(directive.name, context) for directive, context in failed] == [
        ("listener_pass", "main"),
        ("listener_pas", "main"),
        ("mapp", "main"),
        ("zzz", "main"),
    ]
