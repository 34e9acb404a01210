"""What a request's head means, worked out once.

Clients on kept connections send the same head again and again, so plans are kept by the head's shape
(short heads only, and a bounded number of them): a request whose head is known costs one lookup.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import HttpError
from headrace.plugins.in_http import answers
from headrace.plugins.in_http.body import FORMATS
from headrace.plugins.in_http.form import Parameters, parse_urlencoded
from headrace.plugins.in_http.times import from_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.core.http1.events import RequestHead
    from headrace.pipeline.event import Record
    from headrace.plugins.in_http.cors import Cors

    Decode = Callable[[bytes], list[Record]]

CHUNK: Final = b"x-headrace-chunk"
"""The field in which a headrace names the chunk that is the body: 16 bytes in hexadecimal."""
_CHUNK_LINE: Final = re.compile(rb"\r\nX-Headrace-Chunk: [0-9a-f]{32}(?=\r\n)")
_CHUNK_NAME: Final = re.compile(rb"[0-9a-f]{32}", re.IGNORECASE)
_DEDUPES: Final = b"Headrace-Dedupe: 1\r\n"

KEPT_HEADS: Final = 512
KEPT_SIZE: Final = 1024
"""Bytes of the longest head whose plan is kept."""

FORM: Final = b"application/x-www-form-urlencoded"
MULTIPART: Final = b"multipart/form-data"

DECODERS: Final[dict[bytes, Decode]] = {
    b"application/json": FORMATS["json"],
    b"application/csp-report": FORMATS["json"],
    b"application/msgpack": FORMATS["msgpack"],
    b"application/x-msgpack": FORMATS["msgpack"],
    b"application/x-ndjson": FORMATS["ndjson"],
}
"""Media type -> decoder. x-msgpack is not in Fluentd's table, but is what its own http output sends."""


@dataclass(slots=True)
class Options:
    """The parameters of the source that a plan depends on.

    answer: status, fields and body of a request that succeeded. parsed: a <parse> section decides the
    format, not the Content-Type. remote_addr: records get the client's address. deduplicates: chunks that have a
    name are kept once.
    """

    tag_prefix: str = ""
    add_http_headers: bool = False
    add_query_params: bool = False
    remote_addr: bool = False
    cors: Cors | None = None
    parsed: bool = False
    deduplicates: bool = False
    answer: tuple[int, bytes, bytes] = (200, answers.TEXT, b"")


@dataclass(slots=True)
class Plan:
    """What to do with a request.

    tag: of its events. decode: the whole body is in this format; None: a form, parameters alone, or
    what <parse> reads. coding: Content-Encoding. time: from the query, in nanoseconds. added: fields for
    each record. forwarded: the first address of X-Forwarded-For. fields: header lines of every answer.
    named: the request names the chunk that is its body. plain: JSON, and nothing of the request but the tag counts.
    kept, closing: the head of the answer when all is well, body: its body; kept_whole, closing_whole: both together.
    final: an answer that needs no body of the request.
    """

    tag: str = ""
    media: bytes = b""
    content_type: bytes = b""
    decode: Decode | None = None
    coding: bytes = b""
    query: Parameters = field(default_factory=dict)
    time: int | None = None
    added: dict[str, Any] = field(default_factory=dict)
    forwarded: str | None = None
    fields: bytes = b""
    kept: bytes = b""
    closing: bytes = b""
    body: bytes = b""
    kept_whole: bytes = b""
    closing_whole: bytes = b""
    named: bool = False
    plain: bool = False
    final: bool = False


class Planner:
    """Plans of one source."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.kept: dict[bytes, Plan] = {}
        """Plans by the shape of their head (its bytes but for the size of the body)."""
        self._named: dict[bytes, Plan] = {}
        """Those of requests that name their chunk, by the head without the name."""

    def plan(self, head: RequestHead) -> Plan:
        """Find or work out the plan of a head. Raises HttpError 400 for a tag that is not UTF-8."""
        # With all header fields in the records the size of the body is one of them.
        raw = head.raw if self.options.add_http_headers else head.shape
        if (known := self.kept.get(raw)) is not None:
            return known
        found = 0
        named = self.options.deduplicates and _CHUNK_NAME.fullmatch(head.header(CHUNK) or b"") is not None
        if named:
            # Every chunk has another name: heads are kept without it.
            raw, found = _CHUNK_LINE.subn(b"", raw, 1)
            known = self._named.get(raw) if found else None
            if known is not None:
                return known
        plan = self._make(head, named=named)
        if len(raw) <= KEPT_SIZE and (found or not named):
            kept = self._named if named else self.kept
            if len(kept) >= KEPT_HEADS:
                kept.clear()
            kept[raw] = plan
        return plan

    def cors_fields(self, head: RequestHead) -> bytes:
        """The header lines for the answer to a refused request, so that a page may read the reason."""
        cors = self.options.cors
        return b"" if cors is None else cors.fields(head.header(b"origin")) or b""

    def _make(self, head: RequestHead, *, named: bool = False) -> Plan:
        options = self.options
        if head.method == b"OPTIONS":
            return self._preflight(head)
        # Load balancers ask for their health by GET (https://docs.fluentd.org/input/http, since 1.2.6).
        if head.method in {b"GET", b"HEAD"}:
            return _final(200, b"")
        plan = Plan()
        if options.cors is not None:
            fields = options.cors.fields(head.header(b"origin"))
            if fields is None:
                return _final(403, b"")
            plan.fields = fields
        path, _, query = head.target.partition(b"?")
        plan.tag = self._tag(path)
        plan.query = parse_urlencoded(query)
        plan.time = query_time(plan.query)
        self._body(plan, head)
        plan.added = self._added(plan, head)
        forwarded = head.header_all(b"x-forwarded-for")
        if forwarded:
            plan.forwarded = _text(forwarded[0].split(b",")[0].strip())
        plan.named = named
        if named:
            plan.fields += _DEDUPES
        plan.plain = plan.decode is FORMATS["json"] and not (
            plan.coding or plan.time is not None or plan.added or named or options.remote_addr
        )
        status, fields, plan.body = options.answer
        size = None if status == 204 else len(plan.body)
        plan.kept = answers.head(status, fields + plan.fields, size, keep_alive=True)
        plan.closing = answers.head(status, fields + plan.fields, size, keep_alive=False)
        plan.kept_whole = plan.kept + plan.body
        plan.closing_whole = plan.closing + plan.body
        return plan

    def _tag(self, path: bytes) -> str:
        """`/a/b` is the tag `a.b`; a path that is empty or `/` is the empty tag, as in Fluentd."""
        try:
            tag = path[1:].rstrip(b"/").replace(b"/", b".").decode()
        except UnicodeDecodeError as error:
            raise HttpError(400, "the tag is not UTF-8", close=False) from error
        prefix = self.options.tag_prefix
        return f"{prefix}.{tag}" if prefix else tag

    def _body(self, plan: Plan, head: RequestHead) -> None:
        plan.coding = head.header(b"content-encoding") or b""
        if self.options.parsed:
            return
        plan.content_type = head.header(b"content-type") or b""
        plan.media = plan.content_type.partition(b";")[0].strip().lower()
        plan.decode = DECODERS.get(plan.media)

    def _added(self, plan: Plan, head: RequestHead) -> dict[str, Any]:
        added: dict[str, Any] = {}
        if self.options.add_http_headers:
            for name, value in head.headers():
                if name.lower() == CHUNK:
                    continue
                key = "HTTP_" + _upper(name)
                text = _text(value)
                before = added.get(key)
                # A field that comes twice is an array, as Fluentd's parser makes it.
                added[key] = text if before is None else [*(before if type(before) is list else [before]), text]
        if self.options.add_query_params:
            for name, value in plan.query.items():
                added["QUERY_" + _upper(name)] = _text(value)
        return added

    def _preflight(self, head: RequestHead) -> Plan:
        cors = self.options.cors
        if cors is None:
            return _final(403, b"")
        fields = cors.preflight(
            head.header(b"origin"),
            head.header(b"access-control-request-method"),
            head.header(b"access-control-request-headers"),
        )
        return _final(403, b"") if fields is None else _final(200, fields)


def query_time(parameters: Parameters) -> int | None:
    """The `time` parameter in nanoseconds; None without one, or when it is no time."""
    text = parameters.get(b"time")
    return None if text is None else from_text(text.decode("latin-1"))


def _final(status: int, fields: bytes) -> Plan:
    return Plan(
        final=True,
        kept=answers.head(status, fields + answers.TEXT, 0, keep_alive=True),
        closing=answers.head(status, fields + answers.TEXT, 0, keep_alive=False),
    )


def _upper(name: bytes) -> str:
    return _text(name).replace("-", "_").upper()


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")
