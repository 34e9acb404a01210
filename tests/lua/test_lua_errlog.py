"""ngx.errlog with lua_capture_error_log."""

from __future__ import annotations

import pytest

from headrace.edge import log
from headrace.edge.log import ErrorLog
from headrace.errors import ConfError
from headrace.lua.api.errlog import ErrlogApi

TAKE = """
    local errlog = require "ngx.errlog"
    local function take(...)
        local logs = errlog.get_logs(...)
        local out = {}
        for i = 1, #logs, 3 do
            out[#out + 1] = logs[i] .. ":" .. logs[i + 2]:match("%[lua%] [^ ]+ (%w+)")
        end
        return table.concat(out, " ")
    end
    errlog.get_logs(0)
"""


async def test_lines_are_taken_once_and_in_order(gateway):
    await gateway.content(
        TAKE
        + """
        ngx.log(ngx.ERR, "one") ngx.log(ngx.INFO, "two") ngx.log(ngx.DEBUG, "unseen") ngx.log(ngx.WARN, "three")
        ngx.say(take(1), "; ", take(), "; ", take(), ";")
        for i = 1, 12 do ngx.log(ngx.ERR, "x") end
        ngx.say(#errlog.get_logs(), " ", #errlog.get_logs(0))
        local mine = {1, 2, 3, 4, 5}
        ngx.log(ngx.ERR, "y")
        ngx.say(errlog.get_logs(1, mine) == mine, " ", #mine, " ", mine[2] - ngx.now() < 1)
        ngx.say(errlog.set_filter_level())
        ngx.say(errlog.set_filter_level(9))
        """,
        http="lua_capture_error_log 32k;",
    )
    assert (await gateway.get()).text == (
        '4:one; 7:two 5:three; ;\n30 6\ntrue 3 true\nnilmissing "level" argument\nnilbad log level: 9\n'
    )
    assert "[lua] content_by_lua(nginx.conf:9):14: two" in gateway.log()


async def test_a_level_holds_for_what_is_kept(gateway):
    await gateway.content(
        TAKE + 'ngx.log(ngx.WARN, "no") ngx.log(ngx.ERR, "yes") ngx.say(take())',
        http="lua_capture_error_log 4k; init_by_lua_block { assert(require('ngx.errlog').set_filter_level(ngx.ERR)) }",
    )
    assert (await gateway.get()).text == "4:yes\n"


async def test_the_oldest_make_room(gateway):
    await gateway.content(
        TAKE
        + 'for i = 1, 100 do ngx.log(ngx.ERR, "line", i) end local t = take(0) ngx.say(t:match("%w+$"), " ", #t < 500)',
        http="lua_capture_error_log 4k;",
    )
    assert (await gateway.get()).text == "line100 true\n"


def test_a_reload_takes_the_place_of_what_was():
    before = ErrlogApi(8192)
    after = ErrlogApi(8192)
    ErrorLog(()).line(4, b"not taken")
    log.captures[0](4, b"a line")
    assert len(log.captures) == 1
    assert (before.errlog_take(), after.errlog_take()[2]) == (None, b"a line")
    before.close()
    assert len(log.captures) == 1
    after.close()
    assert not log.captures


async def test_without_the_directive(gateway):
    await gateway.content(
        """local errlog = require "ngx.errlog"
        ngx.say(select(2, errlog.get_logs())) ngx.say(select(2, errlog.set_filter_level(ngx.ERR)))
        ngx.say(select(2, pcall(errlog.raw_log, 9, "x")))"""
    )
    unset = 'directive "lua_capture_error_log" is not set\n'
    assert (await gateway.get()).text == unset + unset + "bad log level\n"


@pytest.mark.parametrize(
    ("size", "said"),
    [("3k", 'invalid capture error log size "3k", minimum size is 4096'), ('""', 'invalid capture error log size ""')],
)
async def test_sizes(gateway, size, said):
    with pytest.raises(ConfError, match=said):
        await gateway.start(http=f"lua_capture_error_log {size};")
