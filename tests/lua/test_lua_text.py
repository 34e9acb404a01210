"""String functions that the Lua side has itself, beside Python's: any bytes give the same."""

from __future__ import annotations

import base64
import binascii
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.lua.runtime import Runtime, Settings

CODE = b"""
local ngx = ngx
return {
    encode = ngx.encode_base64, crc32 = ngx.crc32_long,
    bare = function(text) return ngx.encode_base64(text, true) end,
    decode = ngx.decode_base64,
}
"""


@pytest.fixture(scope="module")
def functions():
    table = Runtime(Settings()).vm.lua.execute(CODE)
    return {name: table[name.encode()] for name in ("encode", "bare", "decode", "crc32")}


def decoded(text: bytes) -> bytes | None:
    bare = text.rstrip(b"=")
    if len(bare) % 4 == 1 or len(text) - len(bare) > 2:
        return None
    try:
        return base64.b64decode(bare + b"=" * (-len(bare) % 4), validate=True)
    except binascii.Error:
        return None


@settings(deadline=None, max_examples=300)
@given(data=st.binary(max_size=200) | st.binary(min_size=6000, max_size=6010))
def test_what_is_encoded(functions, data):
    encoded = base64.b64encode(data)
    assert functions["encode"](data) == encoded
    assert functions["bare"](data) == encoded.rstrip(b"=")
    assert functions["decode"](encoded) == functions["decode"](encoded.rstrip(b"=")) == data
    assert functions["crc32"](data) == zlib.crc32(data)


@settings(deadline=None, max_examples=500)
@given(text=st.text("ABz09+/=-_ \n", max_size=12).map(str.encode) | st.binary(max_size=9))
def test_what_is_decoded(functions, text):
    assert functions["decode"](text) == decoded(text)
