"""ngx.emit: records from scripts straight into the pipeline of the same process.

It waits for nothing, so it may be called in every phase that has a loop, in log and in filters too: what the pipeline
wants waited for is waited for behind the port (`headrace.edge.log.sinks`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import orjson

from headrace.edge.log import sinks


class EmitApi:
    """A part of the host; see the module."""

    def functions(self) -> dict[str, Callable[..., Any]]:
        """See the package."""
        return {"emit": self.emit}

    @staticmethod
    def emit(tag: bytes, record: bytes) -> bytes | None:
        """Give a record (a JSON object) to the pipeline, with the time of now; or say why that cannot be."""
        if not sinks:
            return b"no pipeline in this process"
        try:
            value = orjson.loads(record)
        except ValueError:  # bytes that are no UTF-8
            value = json.loads(record.decode("utf-8", "surrogateescape"))
        if not isinstance(value, dict):
            return b"a record has names: an array is none"
        at = time.time_ns()
        for sink in sinks:
            sink(tag.decode("utf-8", "surrogateescape"), at, value)
        return None
