"""The twin of cjson: line by line the same as lua-cjson of the distribution, where that is installed."""

from __future__ import annotations

import glob

import pytest

from headrace.lua.runtime import Runtime, Settings

INSTALLED = bool(glob.glob("/usr/lib/*/lua/5.1/cjson.so"))
ENCODED = [
    "nil", "true", "1", "-0", "0.1", "1/3", "1e15", "123456789012345", "2^53", "1e300", "'a'", "''",
    r"'\"\\/\b\f\n\r\t\1\31\127\0'", "'\\xc3\\xa4\\xff'", "{}", "{1}", "{1,2,{3,{}}}", "{a=1}", "{[1]=1,[2]=2}",
    "{[1]=1,[4]=4}", "{[1]=1,[20]=20}", "{[0]=1}", "{[1.5]=1}", "{[-1]=1}", "{[1]=1,a=2}", "{[true]=1}", "print",
    "{print}", "0/0", "1/0", "{a={b={c={}}}}", "cjson.null", "{cjson.null}", "cjson.empty_array",
    "setmetatable({}, cjson.empty_array_mt)", "setmetatable({a=1}, cjson.empty_array_mt)",
    "setmetatable({}, cjson.array_mt)", "setmetatable({a=1,2}, cjson.array_mt)", "coroutine.create(print)",
]  # fmt: skip
DECODED = [
    "null", "true", "false", "1", "-1.5e3", "1E+2", "0x10", "nan", "-inf", "Infinity", "01", "1.", '"a"', '""', '"\\n"',
    r'"\u00e4\u20ac\ud83d\ude00\/\""', r'"\ud83d"', r'"\udc00"', r'"\u12"', r'"\x"', '"a', "[]", "[1,2]", "[1,]", "[,1]",
    "[1 2]", "{}", '{"a":1,"b":[true,{"c":null}]}', '{"a"}', '{"a":}', "{1:2}", '{"a":1,}', '{"a":1', "[1", "", " ",
    "tru", "nul", "-", "+1", "abc", "1 2", "[1]]", "{}x", '"a\nb"', "[[[[1]]]]", "\t[ 1 ,\r\n2 ] ", "'a'", "// 1",
    '{"a":1,"a":2}', "1e999", "[nan]", ":", "{,}", "[}", '["a" "b"]', '{"a" 1}', "[-]", "[01]",
]  # fmt: skip
SETTINGS = [
    "c.encode_max_depth(2)", "c.decode_max_depth(2)", "c.encode_sparse_array(true)", "c.encode_sparse_array(false, 0)",
    "c.encode_number_precision(5)", "c.encode_invalid_numbers(true)", "c.encode_invalid_numbers('null')",
    "c.decode_invalid_numbers(false)", "c.encode_keep_buffer(false)",
]  # fmt: skip

RUN = b"""function(c, encoded, decoded, setting)
    cjson = c
    c = c.new()
    local out = {}
    if setting ~= "" then
        setfenv(assert(loadstring(setting)), {c = c})()
    end
    local function show(value, depth)
        if type(value) == "table" then
            local parts, keys = {}, {}
            for key in pairs(value) do keys[#keys + 1] = key end
            table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
            for _, key in ipairs(keys) do parts[#parts + 1] = tostring(key) .. "=" .. show(value[key]) end
            local mark = cjson.array_mt and getmetatable(value) == cjson.array_mt and "A" or ""
            return mark .. "{" .. table.concat(parts, ",") .. "}"
        elseif value == cjson.null then
            return "null"
        elseif type(value) == "number" then
            return (("%.17g"):format(value):gsub("%-nan", "nan"))
        end
        return type(value) .. ":" .. tostring(value)
    end
    for text in encoded:gmatch("(%Z*)%z") do
        local value = assert(loadstring("return " .. text))()
        out[#out + 1] = text .. " -> " .. tostring(select(2, pcall(c.encode, value)))
    end
    for text in decoded:gmatch("(%Z*)%z") do
        local ok, value = pcall(c.decode, text)
        out[#out + 1] = text .. " -> " .. (ok and show(value) or value)
    end
    cjson = nil
    return table.concat(out, "\\0")
end"""


@pytest.fixture(scope="module")
def vm():
    made = Runtime(Settings()).vm
    made.lua.execute(b"json_run = " + RUN)
    return made


def lines(vm, module: str, setting: str = "") -> list[str]:
    encoded = "".join(text + "\0" for text in ENCODED).encode()
    decoded = "".join(text + "\0" for text in DECODED).encode()
    return vm.lua.globals()[b"json_run"](vm.lua.eval(module.encode()), encoded, decoded, setting.encode()).split(b"\0")


def twin(vm) -> str:
    vm.lua.globals()[b"json_twin"] = vm.state[b"json_twin"][b"cjson"]()
    return "json_twin"


@pytest.mark.skipif(not INSTALLED, reason="lua-cjson is not installed")
@pytest.mark.parametrize("setting", ["", *SETTINGS])
def test_as_the_c_module(vm, setting):
    ours, theirs = lines(vm, twin(vm), setting), lines(vm, "require 'cjson'", setting)
    # What OpenResty adds is not in every distribution's.
    pairs = [pair for pair in zip(ours, theirs, strict=True) if b"array" not in pair[0].split(b" -> ")[0]]
    assert [pair for pair in pairs if pair[0] != pair[1]] == []


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("json_twin.encode(json_twin.empty_array)", b"[]"),
        ("json_twin.encode(setmetatable({}, json_twin.empty_array_mt))", b"[]"),
        ("json_twin.encode(setmetatable({a=1}, json_twin.empty_array_mt))", b'{"a":1}'),
        ("json_twin.encode(setmetatable({}, json_twin.array_mt))", b"[]"),
        ("json_twin.encode(setmetatable({a=1,2}, json_twin.array_mt))", b"[2]"),
    ],
)
def test_what_openresty_adds(vm, code, text):
    twin(vm)
    assert vm.lua.eval(code.encode()) == text


def test_settings_that_openresty_adds(vm):
    twin(vm)
    got = vm.lua.eval(b"""(function()
        local c = json_twin.new()
        c.encode_empty_table_as_object(false)
        c.decode_array_with_array_mt(true)
        c.encode_escape_forward_slash(false)
        c.encode_skip_unsupported_value_types(true)
        return c.encode({{}, c.decode("[]"), c.decode("{}"), "/", {a = print, b = 1}, print, {print}})
    end)()""")
    assert got == b'[[],[],[],"/",{"b":1},[]]'


def test_the_safe_form_returns_its_errors(vm):
    vm.lua.globals()[b"json_safe"] = vm.state[b"json_twin"][b"cjson.safe"]()
    assert vm.lua.eval(b"json_safe.decode('[1')") == (
        None,
        b"Expected comma or array end but found T_END at character 3",
    )
    assert vm.lua.eval(b"json_safe.encode(print)") == (None, b"Cannot serialise function: type not supported")
    assert vm.lua.eval(b"json_safe.new().decode('1')") == 1


def test_found_where_no_other_is(vm):
    got = vm.lua.eval(b"""(function()
        local path, cpath = package.path, package.cpath
        package.path, package.cpath = "", ""
        local kept = package.loaded.cjson
        package.loaded.cjson = nil
        local text = require("cjson").encode({1, "a", ngx.null})
        package.path, package.cpath, package.loaded.cjson = path, cpath, kept
        return text
    end)()""")
    assert got == b'[1,"a",null]'
