from __future__ import annotations

import pytest

from headrace.edge.regex import compile_regex
from headrace.errors import ConfError

GOOD = [
    (r"^/a(?<name>b+)$", b"/abb", True),
    (r"(?'q'x)y", b"xy", True),
    (r"(?P<q>x)", b"x", True),
    (r"[[:digit:]]+$", b"a12", True),
    (r"^[[:alpha:]_]+$", b"ab_", True),
    (r"^[^[:space:]]+$", b"a b", False),
    (r"a\z", b"a\n", False),
    (r"a\Z", b"a\n", True),
    (r"a$", b"a\n", True),
    (r"^\h+x", b" \tx", True),
    (r"\Qa.b\E", b"a.b", True),
    (r"\Qa.b\E", b"axb", False),
    (r"a\/b", b"a/b", True),
    (r"[]a]", b"]", True),
    (r"[^]a]", b"]", False),
    (r"a(?=b)", b"ab", True),
    (r"(?<!a)b", b"ab", False),
    (r"(?<=a)b", b"ab", True),
    (r"(?i)ABC", b"abc", True),
    (r"a++b", b"aab", True),
    (r"\.php$", b"x.php", True),
    (r"\-\_\~\#", b"-_~#", True),
    (r"^\p{N}+\pL[\p{Lu}]$", b"12aB", True),
    (r"^\P{N}$", b"1", False),
    ("é", "é".encode(), True),
]


@pytest.mark.parametrize(("pattern", "text", "matches"), GOOD)
def test_pcre_patterns(pattern, text, matches):
    assert bool(compile_regex(pattern, None).search(text)) is matches


def test_caseless():
    assert compile_regex("abc", None, caseless=True).search(b"xABC")


@pytest.mark.parametrize("pattern", ["(", r"\K", r"[[:nope:]]", "*a"])
def test_what_has_no_twin_is_refused(pattern):
    with pytest.raises(ConfError, match="pcre2_compile"):
        compile_regex(pattern, None)
