"""What `check` finds in Lua without running it: code that does not compile, and names that are not built."""

from __future__ import annotations

import pytest

from headrace.conf.nginx import load
from headrace.conf.params import Problems
from headrace.lua import names
from headrace.lua.check import check, names_unbuilt


@pytest.fixture
def without(monkeypatch):
    """Some names are not built, whatever is by now."""
    gone = {name for name in names.DOCUMENTED if name.startswith("ngx.re.")}
    gone |= {"ngx.re", "ngx.shared", "ngx.req.socket", "ndk.set_var"}
    monkeypatch.setattr("headrace.lua.check.unbuilt", lambda: gone)


@pytest.mark.usefixtures("without")
@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("ngx.re.match('a', 'b')", [("ngx.re.match", 0)]),
        ("x = 1\nreturn 'a'..ngx.shared.dogs:get(1)", [("ngx.shared", 1)]),
        ("local sub = ngx . re . sub", [("ngx.re.sub", 0)]),
        ("if ngx.re then\nngx.re.match() end ngx.re.match()", [("ngx.re", 0), ("ngx.re.match", 1)]),
        ("ngx.re.opt('jit_stack_size', 1)", [("ngx.re", 0)]),
        ("ndk.set_var.set_escape_uri(x)", [("ndk.set_var", 0)]),
        ("-- ngx.re.match\nlocal a = 'ngx.re.match' local b = [[ngx.shared]]", []),
        ("foo.ngx.re.match() ngxx.re() ngx.nobody_documents_this()", []),
        ("ngx.re = {} ngx.re.match()", []),
        ("function ngx.re.match() end ngx.re.match() ngx.re.find()", [("ngx.re.find", 0)]),
        ("if ngx.shared == nil then end", [("ngx.shared", 0)]),
        ("ngx.say(ngx.var.re, ngx.ctx.shared, ngx.header.re, ngx.arg[1], ngx.status, ngx.HTTP_OK, ngx.null)", []),
        ("ngx.socket.tcp() ngx.req.get_headers() ngx.timer.at(0, f) ngx.worker.id() ngx.config.prefix()", []),
    ],
)
def test_names(code, found):
    assert names_unbuilt(code) == found


def test_what_is_built_is_asked_of_the_prelude():
    assert {"ngx.say", "ngx.var", "ngx.req", "ngx.req.get_headers", "ngx.headers_sent"} <= names.DOCUMENTED
    assert not names.unbuilt() & {"ngx.say", "ngx.var", "ngx.arg", "ngx.ctx", "ngx.is_subrequest", "ngx.req"}
    assert names.unbuilt() < names.DOCUMENTED
    for table in ("ngx.re", "ngx.location"):
        assert (table in names.unbuilt()) == all(
            name in names.unbuilt() for name in names.DOCUMENTED if name.startswith(f"{table}.")
        )


CONF = """\
events {}
http {
    init_by_lua_block
    {
        local x = ngx.shared
    }
    server {
        set_by_lua_block $a { return ngx.re.match("a", "b") }
        set_by_lua $b 'return ngx.re.sub("a", "b", "c")';
        unknown_directive { content_by_lua_block { = } }
        location / {
            content_by_lua_file good.lua;
            log_by_lua_file bad.lua;
            access_by_lua_file bad.lua;
            rewrite_by_lua_file $x.lua;
            header_filter_by_lua_file nothere.lua;
        }
    }
}
"""


@pytest.mark.usefixtures("without")
def test_file_and_line_of_each(tmp_path):
    conf = tmp_path / "nginx.conf"
    conf.write_text(CONF)
    (tmp_path / "good.lua").write_text("#!/usr/bin/env resty\nngx.say(1)\nngx.req.socket()\n")
    (tmp_path / "bad.lua").write_text("ngx.say(1)\nfoo bar\n")
    problems = Problems()
    check(load(str(conf)), prefix=str(tmp_path), conf_dir=str(tmp_path), problems=problems)
    assert problems.errors == []
    late = "is not built yet: nil at run time"
    found = [(str(error.place), error.message) for _, error in problems.findings()]
    where, message = found.pop(0)
    assert where == f"{tmp_path}/bad.lua:2"
    assert message.startswith(f'failed to load external Lua file "{tmp_path}/bad.lua": ')
    assert message.endswith("bad.lua:2: '=' expected near 'bar'")
    assert found == [
        (f"{tmp_path}/good.lua:3", f"ngx.req.socket {late}"),
        (f"{conf}:5", f"ngx.shared {late}"),
        (f"{conf}:8", f"ngx.re.match {late}"),
        (f"{conf}:9", f"ngx.re.sub {late}"),
        (f"{conf}:10", "failed to load inlined Lua code: content_by_lua(nginx.conf:10):1: unexpected symbol near '='"),
    ]
