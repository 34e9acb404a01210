"""Python expressions: what they give, and that nothing leads out of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.plugins.expressions.nodes import Refused
from headrace.plugins.expressions.variables import Program

NOW = 1_700_000_000_123_456_789
RECORD = {"s": "Hello", "n": 7, "f": 2.5, "l": [3, 1, 2], "d": {"k": "v", "x": None}, "nil": None}


def value_of(text, record=RECORD):
    program = Program(hostname="host", worker_id=0, now=lambda: NOW, language="python")
    run = program.function([f"new = {program.python(text).code}"])

    def failed(_tag, _time, _record, error):
        raise error

    ((_, found),) = run("a.b.c", [(NOW, record)], failed)
    return found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('record["s"].upper() + "!"', "HELLO!"),
        ('record.get("none", "d")', "d"),
        ('record["d"]["k"]', "v"),
        ("f\"{record['s']:>7}|{record['n']:03d}|{record['f']!r}\"", "  Hello|007|2.5"),
        ('record["n"] * 2 + 1 if record["n"] > 5 else 0', 15),
        ('len(record["l"]) == 3 and "a" in tag', True),
        ("tag_parts[-1] + tag_suffix[1]", "cb.c"),
        ('[x * 2 for x in record["l"] if x > 1]', [6, 4]),
        ('{k: v for k, v in record["d"].items() if v is not None}', {"k": "v"}),
        ('",".join([str(x) for x in sorted(record["l"])])', "1,2,3"),
        ('{"a": 1, **record["d"]}', {"a": 1, "k": "v", "x": None}),
        ("[1, 2][0:1]", [1]),
        ("(1, 2)", [1, 2]),
        ('json_loads(json_dumps(record["d"]))["k"]', "v"),
        ("int(time)", 1_700_000_000),
        ("time_ns", NOW),
        ('strftime(time_ns, "%Y-%m-%dT%H:%M:%S.%L", zone="UTC")', "2023-11-14T22:13:20.123"),
        ('re_sub("l+", "L", record["s"])', "HeLo"),
        ('re_search("(l+)o", record["s"], group=1)', "ll"),
        ("min(3, 1) + max([1, 5]) + sum([1, 2]) + round(2.6) + abs(-1)", 13),
        ("not record['nil'] or 1 < 2 < 3", True),
        ("hostname", "host"),
        ('"a-b".split("-", maxsplit=1)', ["a", "b"]),
        ("2 ** 10 // 3 % 7 ^ 1", 4),
    ],
)
def test_what_they_give(text, found):
    assert value_of(text) == found


ESCAPES = [
    "().__class__.__bases__[0].__subclasses__()",
    "''.__class__",
    "record.__class__",
    "__import__('os').system('ls')",
    "__builtins__",
    "open('/etc/passwd').read()",
    "eval('1')",
    "exec('1')",
    "compile('1', '', 'eval')",
    "getattr(record, 'get')",
    "globals()",
    "vars()",
    "type(record)",
    "type('X', (), {})",
    "'{0.__class__}'.format(record)",
    "'{x}'.format_map(record)",
    "f'{record.__class__}'",
    "f'{record!r:{record}}'",
    "(lambda: 1)()",
    "lambda: 1",
    "[x for x in ().__class__.__mro__]",
    "(x := 5)",
    "print(1)",
    "str.upper('x')",
    "record.get.__self__",
    "record.get",
    "record.clear()",
    "record.pop('s')",
    "record.update({})",
    "[].append(1)",
    "(yield 1)",
    "(await x)",
    "...",
    "b'x'",
    "1j",
    "{1, 2}",
    "[*record]",
    "max(*[1, 2])",
    "dict(**record)",
    "sorted([1], key=len)",
    "[x for y in [1] for x in [2]]",
    "[[x for x in [1]] for y in [2]]",
    "h1",
    "k5",
    "Exception",
    "str.__name__",
    "run",
    "plain",
    "parts_of",
    "v_x",
    "import os",
    "1; 2",
    "1 if",
    "(" * 500,
    "-" * 3000 + "1",
    "1" * 5000,
    "9" * 400,
    "record.__getitem__('s')",
    "().mro()",
    "'x'.encode('utf-8')",
    "\x00",
]


@pytest.mark.parametrize("text", ESCAPES, ids=lambda text: text[:40])
def test_ways_out_are_refused(text):
    with pytest.raises(Refused):
        value_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "'a' * 2000000",
        "('a' * 1000000) * 1000000",
        "9 ** 99999",
        "2 ** 600",
        "1 << 100000",
        "[0] * 9999999",
        "'x'.ljust(99999999)",
        "'1'.zfill(99999999)",
        "f'{1:99999999}'",
        "f'{1:.99999999f}'",
        "('a' * 100000).replace('', 'b' * 100000)",
        "('a' * 100000).join([1 for x in 'a' * 1000])",
        "'%99999999d' % 1",
        "9 ** 100 * 9 ** 100",
        "strftime(0, '%Y' * 1000)",
    ],
)
def test_much_of_little_is_an_error(text):
    with pytest.raises((ValueError, TypeError, OverflowError)):
        value_of(text)


PIECES = st.sampled_from(
    [
        "record",
        "tag",
        "[",
        "]",
        "(",
        ")",
        "{",
        "}",
        ".",
        ",",
        ":",
        "'a'",
        "1",
        "2.5",
        "+",
        "-",
        "*",
        "**",
        "%",
        "/",
        "if",
        "else",
        "for",
        "in",
        "x",
        "not",
        "and",
        "or",
        "is",
        "==",
        "<",
        "get",
        "upper",
        "__class__",
        "f'{",
        "}'",
        "lambda",
        ":",
        "=",
        ":=",
        "len",
        "str",
        "type",
        "open",
        "await",
        "yield",
        "...",
        "import",
        "_",
        "h1",
        "k1",
        "\n",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=14).map(" ".join) | st.text(max_size=20) | st.lists(PIECES, max_size=10).map("".join))
def test_any_text_is_an_expression_or_refused(text):
    program = Program(hostname="host", worker_id=0, now=lambda: NOW, language="python")
    try:
        piece = program.python(text)
    except Refused:
        return
    assert "__" not in piece.code
    run = program.function([f"new = {piece.code}"])
    run("a.b", [(NOW, {"a": 1})], lambda *_: None)
