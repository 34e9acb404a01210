"""Trees for the tests of the parsers: as JSON for the golden files, and generated with their text."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from headrace.conf.values import USE_DEFAULT

if TYPE_CHECKING:
    from headrace.conf.tree import Directive


def plain(tree: tuple[Directive, ...], *, lines: bool = False) -> list[Any]:
    """The tree as lists and dicts, without file names."""
    return [_node(directive, lines) for directive in tree]


def _node(directive: Directive, lines: bool) -> dict[str, Any]:
    node: dict[str, Any] = {"name": directive.name, "args": list(directive.args)}
    if lines:
        node["line"] = directive.line
    if directive.values and directive.block is None:
        node["value"] = "USE_DEFAULT" if directive.values[0] is USE_DEFAULT else directive.values[0]
    if directive.text is not None:
        node["text"] = directive.text
    if directive.block is not None:
        node["block"] = plain(directive.block, lines=lines)
    return node


# fluent.conf

names = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True).filter(lambda name: name != "include")
texts = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
        st.sampled_from("\"'\\#{}<>[]\n\t \r$@;,"),
        st.just("\udcff"),
    ),
    max_size=12,
)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4, alphabet='ab#{"\\/'), inner, max_size=3)
    ),
    max_leaves=8,
)
collections = json_values.filter(lambda value: isinstance(value, (list, dict)))


@st.composite
def fluent_param(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    name = draw(names)
    if draw(st.booleans()):
        value = draw(collections)
        source = json.dumps(value, indent=draw(st.sampled_from([None, 1])), ensure_ascii=False).replace("#{", "\\#{")
        compact = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return {"name": name, "args": [compact], "value": value}, f"{name} {source}"
    text = draw(texts)
    return {"name": name, "args": [text], "value": text}, f"{name} {draw(fluent_text(text))}"


@st.composite
def fluent_text(draw: st.DrawFn, text: str) -> str:
    """One of the spellings that mean `text`."""
    forms = [_double(text)]
    if not set(text) & set("\r\n"):
        forms.append("'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'")
    if text and text == text.strip(" \t") and text[0] not in "\"'[{" and not re.search(r"[\r\n]|[ \t]#", text):
        forms.append(text)
    return draw(st.sampled_from(forms))


def _double(text: str) -> str:
    table = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(table.get(char, char) for char in text).replace("#{", "\\#{") + '"'


@st.composite
def fluent_section(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> tuple[dict[str, Any], str]:
    name = draw(names)
    argument = draw(st.just("") | st.sampled_from(["**", "a.* b.{c,d}", "@ROOT", "a b"]) | texts)
    children = draw(st.lists(inner, max_size=3))
    tag = f" {_double(argument)}" if argument else ""
    comment = draw(st.sampled_from(["", " # why", "\n# <why>\n"]))
    body = "".join(f"  {text}{draw(st.sampled_from(['', ' # x', '  ']))}\n" for _, text in children)
    node = {"name": name, "args": [argument] if argument else [], "block": [child for child, _ in children]}
    return node, f"<{name}{tag}>{comment}\n{body}</{name}>"


fluent_directives = st.lists(st.recursive(fluent_param(), fluent_section, max_leaves=8), max_size=5)

# nginx.conf

words = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("\"'\\#{}; \n\t\r$"), st.just("\udcff")),
    min_size=1,
    max_size=10,
)
lua_pieces = st.lists(
    st.sampled_from(
        [
            '"}"',
            "'{'",
            "'\\''",
            '"\\\\"',
            "[[ } ]]",
            "[==[ ]] } ]==]",
            "-- } it's\n",
            "--[[ } \n ]]",
            "--[=[ ' } ]=]",
            "{ a = 1 }",
            "x = 1\n",
            "{{}}",
            "a[1]",
            "a[b[1]]",
            "\n",
            "#t - 1 ",
            "'a\\\n}'",
        ]
    ),
    max_size=6,
).map(lambda pieces: " " + " ".join(pieces) + " ")


@st.composite
def nginx_word(draw: st.DrawFn, word: str) -> str:
    """One of the spellings that mean `word`."""
    quote = draw(st.sampled_from("\"'"))
    table = {"\\": "\\\\", "\n": draw(st.sampled_from(["\n", "\\n"])), quote: "\\" + quote}
    forms = [quote + "".join(table.get(char, char) for char in word) + quote]
    if not set(word) & set("\"'\\#{}; \n\t\r$"):
        forms.append(word)
    return draw(st.sampled_from(forms))


@st.composite
def nginx_directive(draw: st.DrawFn, inner: st.SearchStrategy[Any] | None = None) -> tuple[dict[str, Any], str]:
    found = list(draw(st.lists(words, min_size=1, max_size=4)))
    if found[0] == "include" or found[0].endswith("_by_lua_block"):
        found[0] = "x"
    head = draw(st.sampled_from([" ", "\n", " # c;{}\n", "\t"])).join([draw(nginx_word(word)) for word in found])
    node: dict[str, Any] = {"name": found[0], "args": found[1:]}
    if inner is None:
        if draw(st.booleans()):
            return node, head + ";"
        lua = draw(lua_pieces)
        return {"name": "a_by_lua_block", "args": [], "text": lua}, "a_by_lua_block {" + lua + "}"
    children = draw(st.lists(inner, max_size=3))
    node["block"] = [child for child, _ in children]
    return node, head + " {\n" + "\n".join(text for _, text in children) + "\n}"


nginx_directives = st.lists(st.recursive(nginx_directive(), nginx_directive, max_leaves=8), max_size=4)
