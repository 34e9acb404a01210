"""Properties of both parsers: what is written is read; anything else is a ConfError."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from trees import (
    fluent_directives,
    nginx_directives,
    plain,
)

from headrace.conf import fluent, nginx
from headrace.conf.problems import Problems
from headrace.errors import ConfError

QUICK = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)

wild = st.text(st.sampled_from("\"'\\#{}<>[]()\n\r\t ;$@/-=.,:?|&!+*ab1") | st.characters(), max_size=60)
fragments = st.lists(
    st.sampled_from(
        [
            '"',
            "'",
            "\\",
            "#{",
            "}",
            "<a",
            "</a>",
            ">",
            "\n",
            " ",
            "[",
            "]",
            "{",
            ",",
            '"a":1',
            "ENV['A']",
            "ENV.fetch(",
            ")",
            "||",
            "use_nil",
            "use_default",
            "hostname",
            "worker_id",
            ".to_i",
            "+",
            "1",
            "?",
            ":",
            "@include ",
            "k v",
            "x_by_lua_block {",
            "[==[",
            "]==]",
            "--",
            "--[[",
            ";",
            "$",
            "${",
            "include ",
            "\ud800\udc00",
            "\udcff",
            "\0",
            "*",
        ]
    ),
    max_size=25,
).map("".join)
any_text = wild | fragments | st.binary(max_size=60).map(lambda data: data.decode("utf-8", "surrogateescape"))


@QUICK
@given(fluent_directives)
def test_fluent_reads_what_is_written(generated) -> None:
    text = "\n".join(text for _, text in generated) + "\n"
    assert plain(fluent.parse(text, "f.conf", env={}, hostname="h")) == [node for node, _ in generated]


@QUICK
@given(fluent_directives)
def test_fluent_does_not_care_for_line_ends_and_indents(generated) -> None:
    for _, text in generated:
        if "\n" not in text:
            once = plain(fluent.parse(text, "f.conf"))
            assert plain(fluent.parse(f"\n# x\n \t {text} \t # y\r\n", "f.conf")) == once


@QUICK
@given(nginx_directives)
def test_nginx_reads_what_is_written(generated) -> None:
    text = "\n".join(text for _, text in generated)
    assert plain(nginx.parse(text, "n.conf")) == [node for node, _ in generated]


@settings(QUICK, max_examples=600)
@example("a \"#{ENV.fetch('A') { " * 60)
@example('a "#{' + "(" * 3000 + '}"')
@example('a "#{' + '"#{' * 3000)
@example('a "#{' + "!" * 3000 + '1}"')
@example("a " + "[" * 3000)
@example("<a>\n" * 3000)
@example("a [1e999, -1E+9999, " + "9" * 6000 + "]")
@example('a "#{' + "9" * 6000 + '}"')
@example("a \"#{'" + "9" * 6000 + "'.to_i * 1.5e3}\"")
@example('a ["\\ud800"]')
@example("@include " + "{a,b}" * 40)
@example("@include [\n@include /tmp/[!]*\n@include a\0b")
@example('"#{use_nil}" x')
@example('<a "#{use_default}">\n</a>')
@given(any_text)
def test_fluent_raises_only_conf_errors(text: str) -> None:
    with contextlib.suppress(ConfError):
        fluent.parse(text, "/nonexistent/f.conf", env={}, hostname="h")


@settings(QUICK, max_examples=600)
@example("a {" * 3000)
@example("a_by_lua_block {" + "{" * 3000)
@example("include [;include /tmp/[!]*;include a\0b;")
@example('"" {} "";')
@given(any_text)
def test_nginx_raises_only_conf_errors(text: str) -> None:
    with contextlib.suppress(ConfError):
        nginx.parse(text, "/nonexistent/n.conf")


@QUICK
@given(any_text)
def test_the_command_line_raises_only_conf_errors_without_a_place(text: str) -> None:
    try:
        nginx.parse(text, nginx.COMMAND_LINE, folder="/nonexistent")
    except ConfError as error:
        assert str(error).count("command line") <= 1  # noqa: PT017 - any message will do


@settings(QUICK, max_examples=40)
@given(nginx_directives, st.data())
def test_nginx_cut_into_included_files_is_the_same_tree(tmp_path_factory, generated, data) -> None:
    folder: Path = tmp_path_factory.mktemp("cut")
    main = []
    for index, (_, text) in enumerate(generated):
        if data.draw(st.booleans()):
            (folder / f"{index}.conf").write_text(text, "utf-8", "surrogateescape", newline="")
            main.append(f"include {index}.conf;")
        else:
            main.append(text)
    (folder / "main.conf").write_text("\n".join(main), "utf-8", "surrogateescape", newline="")
    assert plain(nginx.load("main.conf", prefix=str(folder))) == [node for node, _ in generated]


@settings(QUICK, max_examples=40)
@given(fluent_directives, st.data())
def test_fluent_cut_into_included_files_is_the_same_tree(tmp_path_factory, generated, data) -> None:
    folder: Path = tmp_path_factory.mktemp("cut")
    main = []
    for index, (_, text) in enumerate(generated):
        if data.draw(st.booleans()):
            (folder / f"{index}.conf").write_text(text, "utf-8", "surrogateescape", newline="")
            main.append(f"@include {index}.conf")
        else:
            main.append(text)
    (folder / "main.conf").write_text("\n".join(main), "utf-8", "surrogateescape", newline="")
    assert plain(fluent.load(str(folder / "main.conf"))) == [node for node, _ in generated]


@pytest.mark.parametrize("base", [4080, 8176])
def test_a_lua_block_may_close_at_any_byte(base: int) -> None:
    """Case O25: readers with a buffer of 4096 bytes lost a bracket that lay across its end."""
    for closing in ("[==[ ]] } ]==]", "[[ } ]]", '"}"', "'}'", "--[[ } ]] ", "-- }\n", "{ }"):
        for size in range(base, base + 33):
            head = "http {\ncontent_by_lua_block {"
            lua = f"\n-- {'x' * (size - len(head) - len(closing) - 4)}\n{closing}"
            tree = nginx.parse(f"{head}{lua}}} }}\n", "n.conf")
            assert tree[0].block is not None
            assert tree[0].block[0].text == lua


@pytest.mark.parametrize("base", [4080, 8176])
def test_the_wrong_brace_is_reported_with_its_line(base: int) -> None:
    for size in range(base, base + 33):
        text = f"http {{\n#{'x' * size}\ncontent_by_lua_block {{ x = '}}' }} }}\n}}\n"
        with pytest.raises(ConfError, match=r'unexpected "}" in n\.conf:4'):
            nginx.parse(text, "n.conf")


def test_problems_are_not_needed_but_used() -> None:
    problems = Problems(unknown_is_error=False)
    fluent.parse("include x\n@include /nonexistent/*.conf\na # b\n<x>\n@y 1\n</x>\n", "/f.conf", problems=problems)
    assert not problems.errors
    assert [str(warning).split(" in /f.conf")[0] for warning in problems.warnings] == [
        "'include' is deprecated",
        "@include x: no such file",
        "@include /nonexistent/*.conf: no such file",
        '"# b" is the value of a, not a comment',
        "'@' is the system reserved prefix: @y",
    ]
