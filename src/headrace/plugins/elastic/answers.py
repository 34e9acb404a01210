"""What an answer of the bulk API means for each item that was sent.

Delivered: 200, 201, and 409 for a create (the document is there: an earlier try was heard). Rejected, to @ERROR
alone: 400, an error of an unrecoverable record type, and an answer that says nothing. To be tried again: everything
else, such as 429. An error of `unrecoverable_error_types` gives the chunk up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from headrace.errors import Error, Side, Unrecoverable

if TYPE_CHECKING:
    from collections.abc import Collection

DELIVERED: Final = frozenset({200, 201})
RECORD_ERRORS: Final = frozenset({"json_parse_exception"})


class RejectedError(Error):
    """One document that the server does not take."""

    kind = "rejected"
    side = Side.SERVER


class Verdict:
    """The items of one answer, by their number in the request.

    again: to be tried again, with the reason of the first in `why`. rejected: (number, error).
    """

    def __init__(self) -> None:
        self.again: list[int] = []
        self.rejected: list[tuple[int, RejectedError]] = []
        self.why = ""


def judge(
    body: bytes,
    count: int,
    *,
    abort_on: Collection[str],
    record_errors: Collection[str] = RECORD_ERRORS,
) -> Verdict:
    """Read the answer to a request with `count` items.

    Raises Unrecoverable for an answer that does not fit the request, and for an error of `abort_on`.
    """
    verdict = Verdict()
    try:
        answer = orjson.loads(body)
    except ValueError as error:
        raise Unrecoverable(f"the answer is no JSON: {body[:200]!r}", kind="answer") from error
    if not isinstance(answer, dict):
        raise Unrecoverable("the answer is no JSON object", kind="answer")
    if answer.get("errors") is False:
        return verdict
    items = answer.get("items")
    if not isinstance(items, list):
        raise Unrecoverable(f"The response format was unrecognized: {body[:200]!r}", kind="answer")
    if len(items) != count:
        raise Unrecoverable(
            f"The number of records submitted {count} do not match the number returned {len(items)}", kind="answer"
        )
    for number, item in enumerate(items):
        _one(verdict, number, item, abort_on, record_errors)
    return verdict


def _one(verdict: Verdict, number: int, item: Any, abort_on: Collection[str], record_errors: Collection[str]) -> None:
    operation, result = next(iter(item.items()), ("", None)) if isinstance(item, dict) else ("", None)
    status = result.get("status") if isinstance(result, dict) else None
    if not isinstance(result, dict) or not isinstance(status, int):
        verdict.rejected.append((number, RejectedError("the answer says nothing about this record")))
        return
    if status in DELIVERED or (operation == "create" and status == 409):
        return
    error = result.get("error")
    type_, why = "", str(error)
    if isinstance(error, dict):
        type_, why = str(error.get("type", "")), str(error.get("reason", ""))
    if status == 400:
        told = f" [error type]: {type_} [reason]: '{why}'" if error is not None else ""
        verdict.rejected.append((number, RejectedError(f"400 - Rejected{told}")))
    elif not type_:
        told = why if isinstance(error, str) else "No error type provided in the response"
        verdict.rejected.append((number, RejectedError(f"{status} - {told}")))
    elif type_ in abort_on:
        raise Unrecoverable(f"Rejected due to {type_}: {why}", kind="aborted")
    elif type_ in record_errors:
        verdict.rejected.append((number, RejectedError(f"{status} - {type_}: {why}")))
    else:
        verdict.again.append(number)
        verdict.why = verdict.why or f"{status} {type_}: {why}"
