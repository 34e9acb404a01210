import asyncio

from headrace_examples.buf_spill import SpillBuffer
from headrace_examples.filter_mask import MaskFilter
from headrace_examples.formatter_pairs import PairsFormatter
from headrace_examples.in_load import LoadInput
from headrace_examples.out_tcp_lines import TcpLinesOutput
from headrace_examples.parser_pairs import PairsParser

from headrace.testing import contracts


def test_filter():
    text = "<filter **>\n@type mask\nkeys message,a\n</filter>"
    asyncio.run(contracts.check_filter(text, plugins=[MaskFilter]))


def test_output_whose_server_is_gone():
    asyncio.run(contracts.check_output("<match **>\n@type tcp_lines\nport 1\n</match>", plugins=[TcpLinesOutput]))


def test_source():
    asyncio.run(contracts.check_source("<source>\n@type load\ninterval 1s\n</source>", plugins=[LoadInput]))


def test_parser():
    contracts.check_parser(PairsParser())
    assert list(PairsParser().parse(b"user: ann; took: 3")) == [(None, {"user": "ann", "took": "3"})]
    assert list(PairsParser().parse(b"no pair")) == [(None, None)]


def test_formatter():
    contracts.check_formatter(PairsFormatter())
    assert PairsFormatter().format("a.tag", 0, {"user": "ann", "took": 3}) == b"user: ann; took: 3\n"


def test_buffer():
    asyncio.run(contracts.check_buffer("@type spill\nmemory_limit 3k", plugins=[SpillBuffer]))
