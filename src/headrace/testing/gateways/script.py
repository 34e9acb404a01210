"""Tests in Lua for a gateway: NAME.test.lua beside NAME.conf. Each test has a stage of its own."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from headrace.errors import ConfError, Place
from headrace.lua.vm import plain_vm
from headrace.testing.gateways.peers import Message, Reply, http, talking
from headrace.testing.gateways.stage import Stage
from headrace.testing.trials.cases import Case
from headrace.testing.trials.compare import Failure
from headrace.testing.trials.run import Result

ENDING: Final = ".test.lua"
_WHERE: Final = re.compile(r"(.*?):(\d+): (.*)", re.DOTALL)
_NOTES: Final = re.compile(r" \[(error|crit|alert|emerg)\] ")


def files_beside(conf: str) -> list[str]:
    """The test files of a configuration: NAME.test.lua and NAME.*.test.lua beside it."""
    path = Path(conf)
    found = [*path.parent.glob(f"{path.stem}{ENDING}"), *path.parent.glob(f"{path.stem}.*{ENDING}")]
    return sorted(map(str, found))


def run_all(conf: str, files: Sequence[str], *, chosen: str = "") -> Iterator[Result]:
    """Run the tests of all files whose name holds `chosen`. Raises ConfError, OSError."""
    for path in files:
        yield from _File(conf, path).run(chosen)


class _File:
    """One file, in a VM of its own. Strings cross as bytes."""

    def __init__(self, conf: str, path: str) -> None:
        self._conf = conf
        self._path = path
        self._stage: Stage
        self._wrong: list[str] = []
        with open(path, "rb"):
            pass  # an error that says which file it is, before Lua says it
        names = ("request", "upstream", "http_upstream", "elapse", "passed", "log", "access_log", "connects")
        self._failure, load = plain_vm(os.path.dirname(path) or ".")
        host = {name: getattr(self, f"_{name}") for name in names}
        try:
            code = Path(__file__).with_name("script.lua").read_bytes()
            self._count, self._about, self._run = load(code, host, os.fsencode(path))
        except self._failure as error:
            message, place = self._placed(_text(error.args[0]))
            raise ConfError(message, place) from error

    def run(self, chosen: str) -> Iterator[Result]:
        """The tests whose name holds `chosen`."""
        for number in range(1, int(self._count) + 1):
            name, line = self._about(number)
            case = Case(_text(name), Place(self._path, int(line)))
            if chosen in case.name:
                yield self._one(case, number)

    def _one(self, case: Case, number: int) -> Result:
        self._wrong = []
        with Stage(self._conf) as stage:
            self._stage = stage
            failed = self._run(number)
            log = stage.log
        said = [*self._wrong, *([_text(failed[0])] if failed else [])]
        if not said:
            return Result(case, [])
        message, place = self._placed(said[0])
        return Result(
            case, [Failure(place or case.place, message)], [row for row in log.splitlines() if _NOTES.search(row)]
        )

    def _placed(self, message: str) -> tuple[str, Place | None]:
        match = _WHERE.match(message)
        if match is None:
            return message, None
        file = self._path if match[1].endswith(os.path.basename(self._path)) else match[1]
        return match[3], Place(file, int(match[2]))

    # called from Lua

    def _request(self, method: bytes, uri: bytes, headers: bytes, body: bytes, client: bytes, listen: bytes) -> Any:
        pairs = [(name, value) for name, _, value in (row.partition(": ") for row in _text(headers).split("\n") if row)]
        where = _text(listen) or None
        made = self._stage.request(_text(method), _text(uri), pairs, body, client=_text(client), listen=where)
        return int(made.start[1]), _lines(made), made.body

    def _upstream(self, address: bytes, answer: Any) -> None:
        def say(data: bytes) -> Any:
            return self._calling(answer, data)

        self._stage.upstream(_text(address), talking(say))

    def _http_upstream(self, address: bytes, answer: Any) -> None:
        def reply(request: Message) -> Reply:
            method, uri = (part.encode("latin-1") for part in request.start[:2])
            made = self._calling(answer, method, uri, _lines(request), request.body)
            if made is None:
                return Reply(500, {}, b"", close=True)
            status, headers, body = made
            rows = [row.partition(": ") for row in _text(headers).split("\n") if row]
            return Reply(int(status), {name: value for name, _, value in rows}, body)

        self._stage.upstream(_text(address), http(reply))

    def _calling(self, answer: Any, *values: bytes) -> Any:
        """What an upstream of the test says; an error in it fails the test, and it says nothing."""
        try:
            return answer(*values)
        except self._failure as error:
            self._wrong.append(_text(error.args[0]))
            return None

    def _elapse(self, seconds: float) -> None:
        self._stage.elapse(float(seconds))

    def _passed(self) -> float:
        return self._stage.passed

    def _log(self) -> bytes:
        return self._stage.log.encode("utf-8", "surrogateescape")

    def _access_log(self) -> bytes:
        return self._stage.access_log.encode("utf-8", "surrogateescape")

    def _connects(self) -> bytes:
        return "\n".join(self._stage.connects).encode()


def _text(value: Any) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def _lines(message: Message) -> bytes:
    return "\n".join(f"{name}: {value}" for name, value in message.headers).encode("latin-1")
