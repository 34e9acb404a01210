"""Ruby's patterns: what Ruby itself finds (tests/golden/regexps/cases.rb), what is refused, and any text at all."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.conf.onigmo import compile_ruby, group_names, translate

FOLDER = Path(__file__).parent.parent / "golden" / "regexps"
GOLDEN = json.loads((FOLDER / "ruby.json").read_text("utf-8"))
COMBINING = "e\u0301"
SPELLED = {1: "i", 4: "m"}


def flags(row):
    return SPELLED.get(row["options"], "")


def spans(pattern, names, subject):
    match = pattern.search(subject)
    if match is None:
        return None
    if names:
        return [list(match.span()), *[_span(match, index) for _, index in group_names(pattern)]]
    return [_span(match, index) for index in range(pattern.groups + 1)]


def _span(match, index):
    span = match.span(index)
    return None if span == (-1, -1) else list(span)


def compare(data, row):
    if "error" in row:
        with pytest.raises(ValueError, match=re.escape(row["pattern"][:20])):
            compile_ruby(row["pattern"], flags(row))
        return
    pattern = compile_ruby(row["pattern"], flags(row))
    assert [name for name, _ in group_names(pattern)] == row["names"]
    for subject, found in zip(data["subjects"], row["found"], strict=True):
        if subject == COMBINING and re.search(r"\\[bB]", row["pattern"]):
            continue  # Python's word boundaries do not know marks
        if flags(row) == "i" and not subject.isascii() and re.search(r"upper|lower|Lu", row["pattern"]):
            continue  # Ruby ignores case there for ASCII alone
        wanted = found
        if found and row["pattern"].count("(?<n>") == 2 and len(found) == 3:
            wanted = [found[0], found[1] or found[2]]  # two groups of one name are one
        assert spans(pattern, row["names"], subject) == wanted, (subject, pattern.pattern)


@pytest.mark.parametrize("row", GOLDEN["rows"], ids=lambda row: f"{row['pattern']}/{flags(row)}")
def test_it_finds_what_ruby_finds(row):
    compare(GOLDEN, row)


@pytest.mark.peer
@pytest.mark.skipif(shutil.which("ruby") is None, reason="there is no ruby")
@pytest.mark.parametrize("seed", [7, 8])
def test_random_patterns_find_what_ruby_finds(seed):
    run = subprocess.run(["ruby", FOLDER / "cases.rb", str(seed)], capture_output=True, check=True, timeout=60)
    data = json.loads(run.stdout)
    for row in data["rows"][:1000]:
        if row["options"] & 1 or "i:" in row["pattern"]:
            row["found"] = row["found"][: data["subjects"].index("STRASSE straße ss ß")]
            compare({"subjects": data["subjects"][: len(row["found"])]}, row) if "found" in row else None
        else:
            compare(data, row)


@pytest.mark.parametrize(
    ("pattern", "engine"),
    [
        (r"^(?<a>[^ ]*) (?<b>\S+)$", re),
        (r"(?>a+)b++c", re),
        (r"[a-z&&[^aeiou]]", re),
        (r"(?~abc)", re),
        (r"[[:alpha:]]+", regex),
        (r"\p{Greek}", regex),
        (r"(?<n>a\g<n>?b)", regex),
        (r"(?<n>a)|(?<n>b)", regex),
        (r"a\Kb", regex),
        (r"(?<=a+)b", regex),
    ],
)
def test_the_faster_engine_is_taken_where_it_says_the_same(pattern, engine):
    assert isinstance(compile_ruby(pattern), engine.Pattern)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(?~a+)", "plain text only"),
        ("a{200000}", "too large"),
        (r"\M-a", "not supported"),
        (r"\k<n+1>", "recursion"),
        ("(" * 200, "nested too deeply"),
        ("[" * 50, "nested too deeply"),
        ("a" * 70000, "too long"),
        (r"\p{NoSuchThing}", "NoSuchThing"),
        (r"(?<a>x)\k<b>", "there is no group b"),
    ],
)
def test_what_is_refused(pattern, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        compile_ruby(pattern)


def test_bytes_that_are_not_utf8_are_one_character_each():
    assert compile_ruby("^(?<a>.)x$").search(b"\xffx".decode("utf-8", "surrogateescape"))["a"] == "\udcff"


def test_a_translation_can_be_read():
    assert translate(r"(?<a>[^ ]*) \h{2}") == r"(?P<a>[^ ]*)\ [0-9A-Fa-f]{2}"


@settings(max_examples=300, deadline=None)
@given(
    st.text(st.sampled_from(r"abAZ09 \()[]{}?*+|^$.<>:!=&-,~#'kgpPuxhHRXGKdwsDWSzZ/n" + "\né\udcff"), max_size=25),
    st.sampled_from(["", "i", "m", "x", "imx"]),
)
def test_any_text_is_a_pattern_or_refused(text, options):
    try:
        pattern = compile_ruby(text, options)
    except ValueError:
        return
    pattern.search("ab \\ 09")
    group_names(pattern)
