"""Lua source without its strings and comments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.conf.lua_block import code_only


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("a = 'ngx.re' .. b", "a =          .. b"),
        ('a = "x\\"y" .. b', "a =        .. b"),
        ("a -- ngx.re\nb", "a          \nb"),
        ("a --[[ ngx\nre ]] b", "a         \n      b"),
        ("a --[==[ ]] ]==] b", "a                b"),
        ("a = [[ngx.re]] b", "a =            b"),
        ("t[i[1]] = {}", "t[i[1]] = {}"),
        ("a = 'no end\nb", "a =        \nb"),
        ("a = [[no end\nb", "a =         \n "),
        ("--", "  "),
    ],
)
def test_strings_and_comments_are_blanked(source, code):
    assert code_only(source) == code


@given(st.text(alphabet="ab\"'\\[]=-\n{} ."))
def test_length_and_lines_stay(source):
    code = code_only(source)
    assert len(code) == len(source)
    assert [at for at, char in enumerate(code) if char == "\n"] == [
        at for at, char in enumerate(source) if char == "\n"
    ]
