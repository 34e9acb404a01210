"""The contracts, applied to the built-ins that need no peer, and seen to fail where they must."""

from __future__ import annotations

import pytest

from headrace.pipeline.plugin import Filter, Parser
from headrace.testing.contracts import (
    check_buffer,
    check_filter,
    check_formatter,
    check_output,
    check_parser,
    check_source,
    make,
)

PARSERS = ["json", "msgpack", "none", "ltsv", "csv\nkeys a,b,c", "tsv\nkeys a,b,c"]
FORMATTERS = [
    "json",
    "msgpack",
    "single_value",
    "ltsv",
    "csv\nfields a,b",
    "tsv\nkeys a,b",
    "out_file",
    "stdout",
    "hash",
]


@pytest.mark.parametrize("text", PARSERS)
def test_parsers(text):
    check_parser(make("parser", f"@type {text}"))


@pytest.mark.parametrize("text", FORMATTERS)
def test_formatters(text):
    check_formatter(make("formatter", f"@type {text}"))


@pytest.mark.parametrize("text", ["@type memory", "@type file\npath /buf", "@type file\npath /buf\ncompress gzip",
                                  "@type memory\ncompress zstd"])  # fmt: skip
async def test_buffers(text):
    await check_buffer(text)


@pytest.mark.parametrize(
    "text", ["@type null", "@type stdout", "@type script", "@type flowcounter_simple\nunit second"]
)
async def test_outputs(text):
    await check_output(f"<match **>\n{text}\n</match>")


async def test_sources():
    await check_source("<source>\n@type sample\ntag t\n</source>")


async def test_filters():
    await check_filter("<filter **>\n@type drop_odd\n</filter>")


class BadParser(Parser):
    def parse(self, text):
        yield "now", None


class BadFilter(Filter):
    name = "bad_filter"

    def filter(self, tag, time, record):
        record["x"] = 1
        return record


async def test_they_fail_where_they_must():
    with pytest.raises(AssertionError):
        check_parser(BadParser())
    with pytest.raises(AssertionError, match="was changed"):
        await check_filter("<filter **>\n@type bad_filter\n</filter>", plugins=[BadFilter])
