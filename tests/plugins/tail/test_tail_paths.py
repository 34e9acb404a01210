"""Which files a configuration names: Ruby's glob, dates, exclusions."""

import os
from datetime import UTC

import pytest

from headrace.plugins.in_tail.patterns import expand_braces, is_glob, path_pattern, walk
from headrace.plugins.in_tail.planner import Planner, Settings

DATE = 1_700_000_000  # 2023-11-14 22:13:20 UTC


@pytest.fixture
def tree(tmp_path):
    names = (
        "a.log b.log ab.log .hidden.log a.txt sub/a.log sub/b.log sub/deep/a.log .git/a.log x[1].log x1.log a{b}.log"
    )
    for name in names.split():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n")
    (tmp_path / "folder.log").mkdir()
    return tmp_path


def found(tree, pattern):
    out = []
    for one in expand_braces(f"{tree}/{pattern}"):
        matched = list(walk(one, lambda *_: None))
        compiled = path_pattern(one)
        assert all(compiled.fullmatch(path) for path in matched), "the two ways of matching agree"
        out += matched
    return [os.path.relpath(path, tree) for path in out]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.log", ["a.log", "ab.log", "a{b}.log", "b.log", "folder.log", "x1.log", "x[1].log"]),
        ("?.log", ["a.log", "b.log"]),
        ("[ab].log", ["a.log", "b.log"]),
        ("[^b].log", ["a.log"]),
        ("[!b].log", ["a.log"]),
        ("[a-c]*.txt", ["a.txt"]),
        (".*.log", [".hidden.log"]),
        ("{b,a}.log", ["b.log", "a.log"]),
        ("{a,sub/{a,b}}.log", ["a.log", "sub/a.log", "sub/b.log"]),
        ("**/a.log", ["a.log", "sub/a.log", "sub/deep/a.log"]),
        ("*/a.log", ["sub/a.log"]),
        ("sub/*/*.log", ["sub/deep/a.log"]),
        (r"x\[1\].log", ["x[1].log"]),
        ("x[1].log", ["x1.log"]),
        ("nothing*", []),
        ("none/*.log", []),
    ],
)
def test_glob(tree, pattern, names):
    assert found(tree, pattern) == names


def test_braces_have_a_bound():
    with pytest.raises(ValueError, match="stands for more than"):
        expand_braces("{a,b}" * 20)


@pytest.mark.parametrize(
    ("path", "policies"),
    [
        ("/a/b.log", ""),
        ("/a/*.log", "backward_compatible extended always"),
        ("/a/?.log", "extended always"),
        ("/a/[ab].log", "extended always"),
        ("/a/{a,b}.log", "always"),
    ],
)
def test_what_is_a_pattern(path, policies):
    for policy in ("backward_compatible", "extended", "always"):
        assert is_glob(path, policy) == (policy in policies.split()), policy


def plan(complaints=None, **settings):
    complaints = [] if complaints is None else complaints
    return Planner(Settings(**settings), lambda path, why: complaints.append((path, why)))


def names(planner, tree):
    return [os.path.relpath(target.path, tree) for target in planner.targets(DATE)]


def test_dates_exclusions_and_each_path_once(tree):
    for name in ("20231114.log", "20231114.gz", "20231115.log"):
        (tree / name).write_text("")
    planner = plan(
        paths=[f"{tree}/%Y%m%d.log", f"{tree}/2*", f"{tree}/missing.log", f"{tree}/folder.log"],
        excluded=[f"{tree}/%Y%m%d.gz", f"{tree}/*15*"],
        zone=UTC,
    )
    assert names(planner, tree) == ["20231114.log"]
    planner = plan(paths=[f"{tree}/?.log"], policy="backward_compatible")
    assert names(planner, tree) == []


def test_files_that_are_too_old_are_marked(tree):
    os.utime(tree / "a.log", (DATE - 100, DATE - 100))
    os.utime(tree / "b.log", (DATE - 10, DATE - 10))
    planner = plan(paths=[f"{tree}/?.log"], policy="extended", recent=50.0)
    assert [(os.path.basename(target.path), target.old) for target in planner.targets(DATE)] == [
        ("a.log", True),
        ("b.log", False),
    ]


def test_what_is_no_file_is_told(tree):
    os.mkfifo(tree / "pipe.log")
    complaints = []
    planner = plan(complaints, paths=[f"{tree}/pi*.log"])
    assert names(planner, tree) == []
    assert complaints == [(f"{tree}/pipe.log", "it is no regular file")]


def test_names_that_matter_in_a_folder(tree):
    planner = plan(paths=[f"{tree}/*/b*.log", f"{tree}/one[1].log"])
    list(planner.targets(DATE))
    assert planner.leads_to(f"{tree}/", "new")
    assert not planner.leads_to(f"{tree}/", ".new")
    assert planner.leads_to(f"{tree}/sub/", "b2.log")
    assert not planner.leads_to(f"{tree}/sub/", "c.log")
    planner = plan(paths=[f"{tree}/one[1].log"])
    list(planner.targets(DATE))
    assert planner.leads_to(f"{tree}/", "one[1].log")
    assert not planner.leads_to(f"{tree}/", "one1.log")
