from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.edge.uri import escape_path, split_target
from headrace.errors import HttpError

GOOD = [
    (b"/", b"/", b""),
    (b"/a/b?x=1&y=2", b"/a/b", b"x=1&y=2"),
    (b"/a?b?c", b"/a", b"b?c"),
    (b"/?", b"/", b""),
    (b"//a///b", b"/a/b", b""),
    (b"/./a/./b/.", b"/a/b/", b""),
    (b"/a/../b", b"/b", b""),
    (b"/a/b/..", b"/a/", b""),
    (b"/a/..", b"/", b""),
    (b"/a/b/../../c", b"/c", b""),
    (b"/.a/..b/...", b"/.a/..b/...", b""),
    (b"/%61%2Fb", b"/a/b", b""),
    (b"/a/%2e%2e/b", b"/b", b""),
    (b"/a%2f..%2fb", b"/b", b""),
    (b"/a%3Fb?c", b"/a?b", b"c"),
    (b"/a%23b%25", b"/a#b%", b""),
    (b"/a+b", b"/a+b", b""),
    (b"/a#b?c", b"/a", b""),
    (b"/a?b#c", b"/a", b"b"),
    (b"/a?%zz", b"/a", b"%zz"),
    (b"http://h/x?y", b"/x", b"y"),
    (b"http://h", b"/", b""),
    (b"/\xc3\xa9", b"/\xc3\xa9", b""),
]


@pytest.mark.parametrize(("target", "path", "args"), GOOD)
def test_targets(target, path, args):
    assert split_target(target) == (path, args)


@pytest.mark.parametrize(
    "target", [b"/..", b"/../a", b"/a/../../b", b"/%2e%2e/x", b"/a%00", b"/%", b"/%4", b"/%zz", b"*", b"a/b", b""]
)
def test_bad_targets_are_400(target):
    with pytest.raises(HttpError) as caught:
        split_target(target)
    assert caught.value.status == 400


def test_slashes_are_kept_when_told():
    assert split_target(b"//a//b", merge_slashes=False) == (b"//a//b", b"")
    assert split_target(b"/a//../b", merge_slashes=False) == (b"/a/b", b"")


@given(st.lists(st.sampled_from([b"a", b".", b"..", b"", b"%2e", b"%2f", b"b.c"]), max_size=8))
def test_no_dot_segment_is_left(parts):
    try:
        path, _ = split_target(b"/" + b"/".join(parts))
    except HttpError:
        return
    assert path.startswith(b"/")
    assert not {b".", b".."} & set(path.split(b"/"))
    assert b"//" not in path


@given(st.binary(max_size=30).filter(lambda b: b"\0" not in b))
def test_escaped_path_comes_back(tail):
    path = b"/x" + tail
    try:
        again, args = split_target(escape_path(path), merge_slashes=False)
    except HttpError:
        assert b".." in path
        return
    if not {b".", b".."} & set(path.split(b"/")):
        assert (again, args) == (path, b"")
