"""Tag patterns."""

from __future__ import annotations

import pytest

from headrace.pipeline.match import Pattern


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("a.*", ["a.b", "a."], ["a", "a.b.c", "b.a"]),
        ("a.**", ["a", "a.b", "a.b.c"], ["b", "ab", "ab.c"]),
        ("**.a", ["a", "b.a", "c.b.a"], ["ba", "a.b"]),
        ("a.**.b", ["a.b", "a.c.b", "a.c.d.b"], ["a", "ab", "a.cb.d"]),
        ("**", ["", "a", "a.b"], []),
        ("*", ["a", ""], ["a.b"]),
        ("{a,b}", ["a", "b"], ["c", "ab", "a,b"]),
        ("a.{b,c.**}", ["a.b", "a.c", "a.c.d"], ["a", "a.b.d"]),
        ("{a.*,b.*}.c", ["a.x.c", "b.y.c"], ["a.c"]),
        ("a b", ["a", "b"], ["a b"]),
        ("a.* b.**", ["a.x", "b", "b.c.d"], ["c"]),
        ("x.b*", ["x.b", "x.bc"], ["x.c", "x.b.c"]),
        ("/a\\.(b|c)/", ["a.b", "a.c"], ["a.d", "xa.b"]),
        ("a\\*", ["a*"], ["ab"]),
        ("a+b.c$", ["a+b.c$"], ["aab.c"]),
        ("**.", ["a.", "."], ["a"]),
        ("a,b", ["a,b"], ["a"]),
        ("a}b", ["a}b"], ["ab"]),
        ("x\udc93*", ["x\udc93\udca7"], ["x"]),
    ],
)
def test_patterns(pattern, yes, no):
    matches = Pattern(pattern).matches
    assert [tag for tag in yes if not matches(tag)] == []
    assert [tag for tag in no if matches(tag)] == []


@pytest.mark.parametrize("pattern", ["/a", "/(/"])
def test_patterns_that_cannot_be_read(pattern):
    with pytest.raises(ValueError, match="tag pattern"):
        Pattern(pattern)
