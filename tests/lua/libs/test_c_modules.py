"""C modules for Lua 5.1, as the distribution ships them."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.peer

CHECKS = {
    "cjson": ('local m = require "cjson" return m.encode{1, m.null}, m.null == ngx.null', "[1,null] true"),
    "lpeg": ('local m = require "lpeg" return (m.C(m.R"az"^1) * "!"):match "abc!"', "abc"),
    "re": ("return require('re').match('key=1', '{[a-z]+} \"=\" {[0-9]+}')", "key 1"),
    "lfs": ('local m = require "lfs" return m.attributes("/etc", "mode")', "directory"),
    "socket": ('local m = require "socket" return type(m.gettime()), m.dns.gethostname() ~= nil', "number true"),
    "mime": ('return (require "mime".b64("hello"))', "aGVsbG8="),
    "zlib": (
        (
            'local z = require "zlib" local text = ("x"):rep(1000) local small = z.deflate()(text, "finish") '
            "return #small < 100, z.inflate()(small) == text"
        ),
        "true true",
    ),
    "posix": ('return require "posix.unistd".getpid() == ngx.worker.pid()', "true"),
    "rex_pcre2": ('return require "rex_pcre2".match("2026-11", "([0-9]+)-([0-9]+)")', "2026 11"),
    "iconv": ('return (require "iconv".new("utf-8", "latin1"):iconv("\\228"))', "\u00e4"),
    "bit32": ('return require "bit32".band(12, 10)', "8"),
    "lxp": (
        'local seen p = require "lxp".new{StartElement = function(_, name) seen = name end} p:parse "<a/>" return seen',
        "a",
    ),
    "openssl": (
        (
            'local d = require "openssl.digest".new("sha1"):final("a") '
            'return (d:gsub(".", function(c) return ("%02x"):format(c:byte()) end))'
        ),
        "86f7e437faa5a7fce15d1ddcb9eaeaea377667b8",
    ),
    "yaml": ('local t = require "lyaml".load("a: [1, x]") return t.a[1], t.a[2]', "1 x"),
    "mpack": ('local m = require "mpack" return m.unpack(m.pack({1, "a"}))[2]', "a"),
    "argparse": ('local p = require "argparse"() p:option "-x" return p:parse({"-x", "7"}).x', "7"),
    "MessagePack": ('local m = require "MessagePack" return m.unpack(m.pack{a = 1}).a', "1"),
    "basexx": ('return require "basexx".to_base32 "hi"', "NBUQ===="),
}

SHOW = """
    local words = {(function() %s end)()}
    for i = 1, #words do
        words[i] = tostring(words[i])
    end
    ngx.print(table.concat(words, " "))
"""


@pytest.mark.parametrize("name", CHECKS)
async def test_a_module_loads_and_works(gateway, name):
    code, expected = CHECKS[name]
    await gateway.content(SHOW % code)
    answer = await gateway.get()
    if "not found:" in gateway.log():
        pytest.skip(f"the module {name} is not installed")
    assert answer.body.decode() == expected, gateway.log()
