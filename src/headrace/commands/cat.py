"""`headrace cat`: records from standard input to a forward source; the flags of fluent-cat.

Each line (or msgpack value) becomes one Forward message at once. A connection that cannot be opened is tried
again every second, --retry-limit times; then what was not sent is printed as `!TIME:RECORD`, as fluent-cat
does, and the exit status is 1. A source that wants TLS, or a handshake, closes the connection or begins to speak:
that is an error too, since it has taken nothing.

In msgpack, a pair of a time and a record (what secondary_file writes) is taken for its record.
https://docs.fluentd.org/deployment/command-line-option#fluent-cat
"""

from __future__ import annotations

import select
import socket
import sys
import time
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from headrace.errors import Error

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from headrace.pipeline.event import Record

FORMATS: Final = ("json", "msgpack", "none")
SOCKET: Final = "/var/run/fluent/fluent.sock"
RETRY_WAIT: Final = 1.0
"""Seconds between two attempts to connect."""
TIMEOUT: Final = 60.0
"""Seconds to connect, and to send one message."""
ANSWER_WAIT: Final = 0.25
"""Seconds at the end in which a source that takes nothing would say so; one that takes events says nothing."""
VALUE_LIMIT: Final = 256 << 20


def add(command: argparse.ArgumentParser) -> None:
    """Declare the flags. -h is the host, so the parser must be made with add_help=False."""
    add = command.add_argument
    add("tag", metavar="TAG", help="of the events")
    add("-p", "--port", type=int, default=24224, help="TCP port (24224)")
    add("-h", "--host", default="127.0.0.1", help="host (127.0.0.1)")
    add("-u", "--unix", action="store_true", help="connect to a unix socket")
    add("-s", "--socket", default=SOCKET, metavar="PATH", help=f"the unix socket ({SOCKET})")
    add("-f", "--format", choices=FORMATS, default="json", help="of the input (json)")
    for name in FORMATS:
        add(f"--{name}", action="store_const", const=name, dest="format", help=f"-f {name}")
    add("--message-key", default="message", metavar="KEY", help="field of the line, with none (message)")
    add("--time-as-integer", action="store_true", help="send seconds, for Fluentd 0.12 and older")
    add("--retry-limit", type=int, default=5, metavar="N", help="attempts to connect after the first (5)")
    add("--event-time", metavar="TIME", help="the time of all events, in any usual form (now)")
    add("--help", action="help", help="show this text")


def run(flags: argparse.Namespace) -> int:
    """Send what comes from standard input; the exit status."""
    from headrace.plugins.time_parse import any_form  # noqa: PLC0415 - other commands start at once

    moment: int | None = None
    if flags.event_time is not None:
        try:
            moment = any_form(None)(flags.event_time)
        except ValueError as error:
            raise Error(f'--event-time "{flags.event_time}" is no time: {error}') from error
    sender = Sender(_connector(flags), flags.tag, flags.retry_limit)
    try:
        whole = flags.time_as_integer
        for record in _records(flags, sys.stdin.buffer):
            at = time.time_ns() if moment is None else moment
            if not sender.send(at // 1_000_000_000 if whole else at, record, whole=whole):
                return 1
        sender.check()
    finally:
        sender.close()
    return 0


def _connector(flags: argparse.Namespace) -> Callable[[], socket.socket]:
    def tcp() -> socket.socket:
        return socket.create_connection((flags.host, flags.port), timeout=TIMEOUT)

    def unix() -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(TIMEOUT)
        try:
            sock.connect(flags.socket)
        except OSError:
            sock.close()
            raise
        return sock

    return unix if flags.unix else tcp


def _records(flags: argparse.Namespace, source: BinaryIO) -> Iterator[Record]:
    """The records of the input. Raises Error for what is none."""
    if flags.format == "msgpack":
        yield from _msgpack(source)
        return
    from headrace.plugins.jsoncodec import decode  # noqa: PLC0415 - as above

    for number, line in enumerate(source, 1):
        if flags.format == "none":
            yield {flags.message_key: _chomped(line).decode("utf-8", "surrogateescape")}
            continue
        try:
            record = decode(line)
        except ValueError as error:
            raise Error(f"line {number} of the input is no JSON: {error}") from error
        yield _checked(record, f"line {number} of the input")


def _chomped(line: bytes) -> bytes:
    if line.endswith(b"\r\n"):
        return line[:-2]
    return line.removesuffix(b"\n")


def _msgpack(source: BinaryIO) -> Iterator[Record]:
    from headrace.pipeline.event import EventTime, unpacker  # noqa: PLC0415 - as above

    values = unpacker(b"", VALUE_LIMIT)
    read = getattr(source, "read1", source.read)
    number = 0
    try:
        while data := read(65536):
            values.feed(data)
            for value in values:
                number += 1
                pair = type(value) is list and len(value) == 2 and isinstance(value[0], EventTime)
                yield _checked(value[1] if pair else value, f"value {number} of the input")
    except (ValueError, TypeError) as error:
        raise Error(f"the input is no msgpack after {number} values: {error}") from error


def _checked(record: Any, what: str) -> Record:
    if type(record) is not dict:
        raise Error(f"{what} must be a map (got {type(record).__name__})")
    return record


class Sender:
    """One connection, opened again when it is lost."""

    def __init__(self, connect: Callable[[], socket.socket], tag: str, retry_limit: int) -> None:
        self._connect = connect
        self._tag = tag
        self._retry_limit = retry_limit
        self._sock: socket.socket | None = None

    def send(self, moment: int, record: Record, *, whole: bool) -> bool:
        """Send one event. moment: nanoseconds, or seconds when `whole`. False, and a line, when it cannot be sent."""
        from headrace.pipeline.event import EventTime  # noqa: PLC0415 - as above
        from headrace.plugins.forward.messages import encode_forward  # noqa: PLC0415 - as above

        data = encode_forward(self._tag, [(moment if whole else EventTime(moment), record)])
        while True:
            if self._sock is None and not self._open():
                self._give_up(moment if whole else moment // 1_000_000_000, record)
                return False
            assert self._sock is not None
            try:
                if _has_ended(self._sock):
                    raise ConnectionResetError("the server has closed the connection")
                self._sock.sendall(data)
            except OSError as error:
                sys.stderr.write(f"write failed: {error}\n")
                self.close()
            else:
                return True

    def _open(self) -> bool:
        for attempt in range(self._retry_limit + 1):
            if attempt:
                time.sleep(RETRY_WAIT)
            try:
                self._sock = self._connect()
            except OSError as error:
                sys.stderr.write(f"connect failed: {error}\n")
            else:
                return True
        return False

    def check(self) -> None:
        """Raise Error when the source has closed, or speaks: it did not take what was sent."""
        if self._sock is None or not select.select([self._sock], [], [], ANSWER_WAIT)[0]:
            return
        try:
            said = self._sock.recv(4096)
        except OSError:
            said = b""
        if said:
            raise Error("nothing is taken: the source wants a handshake (<security>), and cat makes none")
        raise Error("the source has closed the connection: events are lost (does it want TLS? cat speaks plainly)")

    @staticmethod
    def _give_up(seconds: int, record: Record) -> None:
        from headrace.plugins.jsoncodec import encode  # noqa: PLC0415 - as above

        sys.stdout.write(f"!{seconds}:{encode(record).decode()}\n")
        sys.stderr.write("exceed retry limit\n")

    def close(self) -> None:
        """Close the connection in order: what was sent arrives."""
        sock, self._sock = self._sock, None
        if sock is not None:
            sock.close()


def _has_ended(sock: socket.socket) -> bool:
    """Whether the server has closed: a write would seem to succeed."""
    return bool(select.select([sock], [], [], 0)[0]) and not sock.recv(1, socket.MSG_PEEK)
