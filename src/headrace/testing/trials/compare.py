"""What a case expects against what arrived: failures with the lines of both sides."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headrace.conf.params import near_miss
from headrace.pipeline.event import NS
from headrace.testing.trials.cases import Found, Whatever

if TYPE_CHECKING:
    from headrace.errors import Place
    from headrace.testing.trials.cases import Case, Expected
    from headrace.testing.trials.stage import Row, Seen


@dataclass
class Failure:
    """One assertion that does not hold. diff: lines that begin with -, + or a blank: expected, got, both."""

    place: Place
    message: str
    diff: list[str] = field(default_factory=list)


def compare(case: Case, seen: Seen) -> list[Failure]:
    """What does not hold, in the order of the file."""
    failures: list[Failure] = []
    for expected in case.expect:
        found = _CHECKS[expected.kind](expected, seen)
        if found is not None:
            failures.append(found)
    told = any(
        one.kind == "errors"
        or (one.kind == "label" and one.name == "@ERROR")
        or (one.kind == "output" and one.name in seen.error_outputs)
        for one in case.expect
    )
    if seen.errors and not told:
        lines = ["+ " + _error_line(tag, record, error) for tag, record, error in seen.errors]
        message = f"{len(seen.errors)} error events that nobody expects (errors: says which ones are right)"
        failures.append(Failure(case.place, message, lines))
    return failures


def _rows(expected: Expected, seen: Seen) -> Failure | None:
    where = seen.outputs if expected.kind == "output" else seen.labels
    rows = where.get(expected.name)
    what = f"{expected.kind} {expected.name}"
    if rows is None:
        hint = near_miss(expected.name, where)
        known = hint or f"there are: {', '.join(sorted(where))}"
        return Failure(expected.place, f'there is no {expected.kind} "{expected.name}"; {known}')
    if expected.count is not None and len(rows) != expected.count:
        lines = ["+ " + _line(tag, time, record) for tag, time, record in rows[:20]]
        return Failure(expected.place, f"{what} got {len(rows)} events, not {expected.count}", lines)
    if expected.events is None:
        return None
    wanted = [(tag, time, record) for _place, tag, time, record in expected.events]
    got: list[Row | None] = list(rows)
    if not expected.ordered:
        got = _paired(wanted, rows, partial=expected.partial)
    for index in range(max(len(wanted), len(got))):
        row = got[index] if index < len(got) else None
        if index >= len(wanted):
            extra = [one for one in got[index:] if one is not None]
            lines = ["+ " + _line(*one) for one in extra]
            message = f"{what} got {len(rows)} events, {len(wanted)} are expected"
            return Failure(expected.place, message, lines)
        tag, time, record = wanted[index]
        place = expected.events[index][0]
        if row is None:
            message = f"{what}: event {index + 1} of {len(wanted)} did not come"
            rest = [f"+ {_line(*one)}" for one in rows] if not expected.ordered else []
            return Failure(place, message, ["- " + _line(tag, time, record), *rest])
        if not _row_fits(wanted[index], row, partial=expected.partial):
            message = f"{what}: event {index + 1} of {len(wanted)} is another"
            shown = _shown_like(wanted[index], row)
            return Failure(place, message, _diff(_pretty(tag, time, record), _pretty(*shown)))
    return None


def _paired(wanted: list[Any], rows: list[Row], *, partial: bool) -> list[Row | None]:
    """The rows in the order of what is wanted; what fits nothing comes last."""
    left = list(rows)
    found: list[Row | None] = []
    for one in wanted:
        match = next((row for row in left if _row_fits(one, row, partial=partial)), None)
        if match is not None:
            left.remove(match)
        found.append(match)
    return [*found, *left]


def _row_fits(wanted: Any, row: Row, *, partial: bool) -> bool:
    tag, time, record = wanted
    return (
        (tag is None or fits(tag, row[0], partial=False))
        and (time is None or time == row[1])
        and fits(record, row[2], partial=partial)
    )


def fits(wanted: Any, got: Any, *, partial: bool) -> bool:
    """Whether a value is what is wanted: of the same type (1 is not true, and not 1.0), !any and !re apart."""
    if isinstance(wanted, Whatever):
        return True
    if isinstance(wanted, Found):
        return isinstance(got, str) and wanted.pattern.search(got) is not None
    if isinstance(wanted, dict):
        if not isinstance(got, dict) or not (partial or len(wanted) == len(got)):
            return False
        return all(key in got and fits(value, got[key], partial=partial) for key, value in wanted.items())
    if isinstance(wanted, list):
        return (
            isinstance(got, list)
            and len(wanted) == len(got)
            and all(fits(one, other, partial=partial) for one, other in zip(wanted, got, strict=True))
        )
    same = isinstance(got, type(wanted)) and isinstance(wanted, bool) == isinstance(got, bool)
    return same and bool(wanted == got)


def _dropped(expected: Expected, seen: Seen) -> Failure | None:
    dropped = seen.dropped.get(expected.name)
    if dropped is None:
        known = ", ".join(sorted(seen.dropped)) or "none"
        return Failure(expected.place, f'there is no filter "{expected.name}"; there are: {known}')
    if dropped != expected.dropped:
        return Failure(expected.place, f"filter {expected.name} dropped {dropped} events, not {expected.dropped}")
    return None


def _errors(expected: Expected, seen: Seen) -> Failure | None:
    lines = ["+ " + _error_line(tag, record, error) for tag, record, error in seen.errors]
    wanted = expected.errors
    count = expected.count if wanted is None else len(wanted)
    if count is not None and len(seen.errors) != count:
        return Failure(expected.place, f"{len(seen.errors)} error events, not {count}", lines)
    for (place, parts), (tag, record, error) in zip(wanted or (), seen.errors, strict=False):
        for name, got in (("tag", tag), ("record", record)):
            if name in parts and not fits(parts[name], got, partial=expected.partial):
                return Failure(place, f"the {name} of an error event is another", _diff(_json(parts[name]), _json(got)))
        if "error" in parts:
            text = parts["error"]
            good = fits(text, error, partial=False) if not isinstance(text, str) else text in error
            if not good:
                return Failure(place, "the error of an error event is another", [f"- {_plain(text)}", f"+ {error}"])
    return None


def _unmatched(expected: Expected, seen: Seen) -> Failure | None:
    if seen.unmatched != expected.count:
        message = f"{seen.unmatched} events met no <match>, not {expected.count}"
        return Failure(expected.place, message)
    return None


_CHECKS = {"output": _rows, "label": _rows, "filter": _dropped, "errors": _errors, "unmatched": _unmatched}


# How things are shown


def _plain(value: Any) -> Any:
    if isinstance(value, (Whatever, Found)):
        return repr(value)
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value


def _json(value: Any) -> list[str]:
    return json.dumps(_plain(value), indent=2, ensure_ascii=False, default=repr).splitlines()


def _moment(ns: int) -> str:
    seconds, rest = divmod(ns, NS)
    shown = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{shown}.{rest:09d}Z" if rest else f"{shown}Z"


def _line(tag: Any, time: int | None, record: Any) -> str:
    head = [] if tag is None else [str(_plain(tag))]
    if time is not None:
        head.append(_moment(time))
    return " ".join([*head, json.dumps(_plain(record), ensure_ascii=False, default=repr)])


def _error_line(tag: str, record: Any, error: str) -> str:
    return f"{tag} {json.dumps(_plain(record), ensure_ascii=False, default=repr)} {error}"


def _shown_like(wanted: Any, row: Row) -> tuple[Any, int | None, Any]:
    """A row with only what was asked for, where the rest does not matter."""
    tag, time, record = wanted
    return (None if tag is None else row[0], None if time is None else row[1], _like(record, row[2]))


def _like(wanted: Any, got: Any) -> Any:
    """What was got; where anything fits, or what fits, it is shown as it was asked for."""
    if isinstance(wanted, (Whatever, Found)):
        return wanted if fits(wanted, got, partial=False) else got
    if isinstance(wanted, dict) and isinstance(got, dict):
        known = {key: _like(wanted[key], got[key]) for key in wanted if key in got}
        return {**known, **{key: value for key, value in got.items() if key not in wanted}}
    return got


def _pretty(tag: Any, time: int | None, record: Any) -> list[str]:
    head = [] if tag is None else [f"tag: {_plain(tag)}"]
    if time is not None:
        head.append(f"time: {_moment(time)}")
    return [*head, *_json(record)]


def _diff(wanted: list[str], got: list[str]) -> list[str]:
    return [line for line in difflib.ndiff(wanted, got) if not line.startswith("?")]
