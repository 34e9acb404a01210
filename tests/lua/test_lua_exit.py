"""ngx.exit and what follows it: error pages, redirects to names, statuses. One table, here and in nginx."""

from __future__ import annotations

import pytest

TABLE = [
    # name, the location that is asked, the answer's status and text
    ("to a handler", "error_page 404 = /say; content_by_lua_block { ngx.exit(404) }", 404, "said 404\n"),
    ("to echo", "error_page 404 = /echo; content_by_lua_block { ngx.exit(404) }", 200, "echoed\n"),
    ("to a file", "error_page 404 = /file.txt; content_by_lua_block { ngx.exit(404) }", 200, "a file\n"),
    ("to return", "error_page 404 = /return; content_by_lua_block { ngx.exit(404) }", 202, "returned"),
    ("to another status", "error_page 404 =203 /say; content_by_lua_block { ngx.exit(404) }", 203, "said 203\n"),
    ("without =", "error_page 404 /say; content_by_lua_block { ngx.exit(404) }", 404, "said 404\n"),
    ("from access", "error_page 403 = /say; access_by_lua_block { ngx.exit(403) } echo x;", 403, "said 403\n"),
    ("from rewrite", "error_page 410 = /say; rewrite_by_lua_block { ngx.exit(410) } echo x;", 410, "said 410\n"),
    ("from return", "error_page 404 = /say; return 404;", 200, "said 0\n"),
    ("a name with arguments", "content_by_lua_block { ngx.exec('@named?a=b', 'c=d') }", 200, "named -q=1\n"),
]
SERVER = """
location = /say { content_by_lua_block { ngx.say("said ", ngx.status) } }
location = /echo { echo echoed; }
location = /file.txt { }
location = /return { return 202 returned; }
location @named { echo "named -$args"; }
"""


def server() -> str:
    return SERVER + "\n".join(f"location = /case{i} {{ {code} }}" for i, (_, code, *_) in enumerate(TABLE))


def check(answers) -> None:
    found = [(name, answer.status, answer.text) for (name, *_), answer in zip(TABLE, answers, strict=True)]
    assert found == [(name, status, text) for name, _, status, text in TABLE]


async def test_exit(gateway):
    (gateway.folder / "html").mkdir()
    (gateway.folder / "html" / "file.txt").write_text("a file\n")
    await gateway.start(server())
    check([await gateway.get(f"/case{i}?q=1") for i in range(len(TABLE))])


@pytest.mark.peer
def test_exit_in_nginx(nginx, tmp_path):
    (tmp_path / "nginx" / "html").mkdir(parents=True)
    (tmp_path / "nginx" / "html" / "file.txt").write_text("a file\n")
    get = nginx(server())
    check([get(f"/case{i}?q=1") for i in range(len(TABLE))])
