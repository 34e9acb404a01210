"""The manual page that is generated from declarations."""

from __future__ import annotations

import re

import pytest

from headrace.conf.manual import manual, spelling
from headrace.conf.params import Configurable, array, boolean, enum, raw_section, section, size, string, time


class Buffer(Configurable):
    """Where events wait."""

    chunk_keys = array(default=["tag"], doc="Chunk keys")
    limit = size(default=8 << 20, doc="Bytes a chunk may have.")


class Output(Configurable):
    """Sends events.

    To a server.
    """

    endpoint = string(doc="Where to send", placeholders=True)
    token = string(default="", secret=True, alias="password", doc="Shown | to the server")
    wait = time(default=60.0, doc="Time\n to wait", deprecated="use nothing.")
    mode = enum(["a", "b"], default=None, doc="Mode")
    on = boolean(default=True, doc="On")
    gone = string(obsoleted="it went", doc="Gone")
    buffer = section(Buffer, argument="chunk_keys", doc="The buffer.")
    stores = raw_section(name="store", multi=True, required=True, doc="Where copies go.")


def test_page() -> None:
    assert manual(Output, "Output http") == (
        "# Output http\n\nSends events.\n\nTo a server.\n\n"
        "| parameter | type | default | meaning |\n|---|---|---|---|\n"
        "| `endpoint` | string | required | Where to send. May hold placeholders. |\n"
        '| `token` or `password` | string | `""` | Shown \\| to the server. Secret: never printed. |\n'
        "| `wait` | time | `1m` | Time to wait. Deprecated: use nothing. |\n"
        "| `mode` | enum: a, b |  | Mode. |\n"
        "| `on` | bool | `true` | On. |\n\n"
        "## `<buffer CHUNK_KEYS>`\n\nThe buffer.\n\nWhere events wait.\n\n"
        "| parameter | type | default | meaning |\n|---|---|---|---|\n"
        '| `chunk_keys` | array | `["tag"]` | Chunk keys. |\n'
        "| `limit` | size | `8m` | Bytes a chunk may have. |\n\n"
        "## `<store>` (required, may be repeated)\n\nWhere copies go.\n"
    )


@pytest.mark.parametrize(
    ("value", "type_name", "text"),
    [
        (1536, "size", "1536"),
        (1 << 40, "size", "1t"),
        (0, "size", "0"),
        (0.5, "time", "0.5"),
        (90.0, "time", "90s"),
        (259200.0, "time", "3d"),
        (1.5, "float", "1.5"),
        (re.compile("a"), "regexp", "/a/"),
        ({"a": 1}, "hash", '{"a":1}'),
    ],
)
def test_spelling(value: object, type_name: str, text: str) -> None:
    assert spelling(value, type_name) == text
