"""Many lines at once are the same events as one after the other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.plugin import Parser
from headrace.testing.contracts import TEXTS, make

LINES = [
    b'{"a":1}',
    b'{"time":1700000000.5,"a":"x"}',
    b'{"time":"no time"}',
    b'[{"a":1},{"b":2},3]',
    b"[]",
    b"3",
    b"null",
    b"",
    b"{",
    b'{"n":123456789012345678901234567890}',
    b'{"n":-1234567890123456789}',
    b'{"n":1234567890123456789}',
    b'{"bad":"\xff"}',
    b'{"a":1},{"b":2}',
    *TEXTS,
]
CONFIGURATIONS = [
    "@type json",
    "@type json\nkeep_time_key true\ntypes a:string",
    "@type json\ntime_key none\nnull_empty_string true",
    "@type json\nestimate_current_event false",
    "@type json\ntime_format %Y",
    "@type none",
    "@type none\nestimate_current_event false",
    "@type ltsv",
    "@type multiline\nformat1 /(?<a>\\d)/",
]


@pytest.mark.parametrize("text", CONFIGURATIONS)
@given(lines=st.lists(st.sampled_from(LINES), max_size=12))
def test_the_same_events(text, lines):
    parser = make("parser", text)
    outcomes = []
    for parse_lines in (parser.parse_lines, lambda *rest: Parser.parse_lines(parser, *rest)):
        failures = []

        def failed(line, error, failures=failures):
            failures.append((line, str(error)))
            return (0, {"failed": line}) if len(failures) % 2 else None

        outcomes.append((parse_lines(lines, failed), failures))
    assert outcomes[0] == outcomes[1]
