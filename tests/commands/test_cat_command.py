"""`headrace cat`: what it sends, and what it does when it cannot."""

import io
import json
import socket
import threading

import msgpack
import pytest

from headrace.commands import cat, main
from headrace.pipeline.event import EventTime, pack_value, unpack_events
from headrace.plugins.forward.stream import Decoder


class Receiver:
    """Accepts connections one after the other; keeps what comes. closes: ends the first connection at once."""

    def __init__(self, where=("127.0.0.1", 0), *, closes=False):
        self.sock = socket.create_server(where) if isinstance(where, tuple) else socket.socket(socket.AF_UNIX)
        if not isinstance(where, tuple):
            self.sock.bind(where)
            self.sock.listen()
        self.messages = []
        self.accepted = 0
        self._closes = closes
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    @property
    def port(self):
        return self.sock.getsockname()[1]

    def _run(self):
        while True:
            try:
                peer, _ = self.sock.accept()
            except OSError:
                return
            self.accepted += 1
            with peer:
                if self._closes and self.accepted == 1:
                    continue
                decoder = Decoder()
                while data := peer.recv(65536):
                    self.messages += decoder.feed(data)

    def end(self):
        self.sock.shutdown(socket.SHUT_RDWR)
        self.thread.join(10)
        self.sock.close()

    @property
    def events(self):
        return [(message.tag, *event) for message in self.messages for event in unpack_events(message.entries)]


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.end()


def run(monkeypatch, stdin, *flags):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
    return main.main(["cat", *flags])


def wait(receiver, count):
    for _ in range(1000):
        if len(receiver.messages) >= count:
            return receiver.events
        threading.Event().wait(0.01)
    raise AssertionError(receiver.events)


def test_lines_of_json(monkeypatch, receiver):
    lines = b'{"a": 1}\n{"b": {"c": [123456789012345678901234567890]}}\n{"d": "\xc3\xbc"}'
    assert run(monkeypatch, lines, "-p", str(receiver.port), "a.tag") == 0
    events = wait(receiver, 3)
    assert [event[2] for event in events] == [{"a": 1}, {"b": {"c": [123456789012345678901234567890]}}, {"d": "ü"}]
    assert {event[0] for event in events} == {b"a.tag"}
    assert receiver.messages[0].entries[:3] == b"\x92\xd7\x00"
    assert receiver.accepted == 1


@pytest.mark.parametrize("flags", [["--none"], ["-f", "none"], ["--none", "--message-key", "m"]])
def test_plain_lines(monkeypatch, receiver, flags):
    assert run(monkeypatch, b"one\r\n\xff two\n\n", "-p", str(receiver.port), *flags, "t") == 0
    key = flags[-1] if len(flags) > 2 else "message"
    assert [event[2] for event in wait(receiver, 3)] == [{key: "one"}, {key: "\udcff two"}, {key: ""}]


def test_msgpack_with_pairs_of_secondary_files(monkeypatch, receiver):
    data = pack_value({"a": 1}) + pack_value([EventTime(5), {"b": 2}])
    assert (
        run(monkeypatch, data, "-p", str(receiver.port), "--msgpack", "--event-time", "2023-11-14 22:13:20.5 UTC", "t")
        == 0
    )
    assert wait(receiver, 2) == [
        (b"t", 1_700_000_000_500_000_000, {"a": 1}),
        (b"t", 1_700_000_000_500_000_000, {"b": 2}),
    ]


def test_time_as_integer(monkeypatch, receiver):
    flags = [
        "--time-as-integer",
        "--event-time",
        "2023-11-14 22:13:20.5 UTC",
        "-p",
        str(receiver.port),
        "-h",
        "127.0.0.1",
        "t",
    ]
    assert run(monkeypatch, b'{"a":1}', *flags) == 0
    wait(receiver, 1)
    assert receiver.messages[0].entries == b"\x92\xce" + (1_700_000_000).to_bytes(4, "big") + msgpack.packb({"a": 1})


def test_a_unix_socket(monkeypatch, tmp_path):
    receiver = Receiver(str(tmp_path / "f.sock"))
    assert run(monkeypatch, b'{"a":1}\n', "-u", "-s", str(tmp_path / "f.sock"), "t") == 0
    assert [event[2] for event in wait(receiver, 1)] == [{"a": 1}]
    receiver.end()


@pytest.mark.parametrize(
    ("flags", "data", "text"),
    [
        ([], b'{"a":\n', "line 1 of the input is no JSON"),
        ([], b'{"a":1}\n[1]\n', "line 2 of the input must be a map (got list)"),
        (["--msgpack"], b"\xc1", "no msgpack after 0 values"),
        (["--msgpack"], b"\x81\xa1a\x01\x05", "value 2 of the input must be a map"),
        (["--event-time", "yesterday-ish"], b"{}", "is no time"),
    ],
)
def test_input_that_is_none(monkeypatch, receiver, capsys, flags, data, text):
    assert run(monkeypatch, data, "-p", str(receiver.port), *flags, "t") == 1
    assert text in capsys.readouterr().err


def test_a_receiver_that_is_not_there(monkeypatch, capsys):
    monkeypatch.setattr(cat, "RETRY_WAIT", 0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        assert run(monkeypatch, b'{"a":1}\n{"b":2}\n', "-p", str(port), "--retry-limit", "2", "t") == 1
    told = capsys.readouterr()
    assert told.err.count("connect failed") == 3
    seconds, _, record = told.out.partition(":")
    assert seconds[0] == "!"
    assert json.loads(record) == {"a": 1}


def test_a_connection_that_ends_is_opened_again(monkeypatch):
    receiver = Receiver(closes=True)
    sender = cat.Sender(lambda: socket.create_connection(("127.0.0.1", receiver.port)), "t", 0)
    assert sender._open()
    for _ in range(1000):
        if cat._has_ended(sender._sock):
            break
        threading.Event().wait(0.01)
    assert sender.send(5, {"n": 1}, whole=True)
    sender.close()
    assert [event[2] for event in wait(receiver, 1)] == [{"n": 1}]
    assert receiver.accepted == 2
    receiver.end()


@pytest.mark.parametrize(("said", "text"), [(b"\x93\xa4HELO", "wants a handshake"), (b"", "closed the connection")])
def test_a_source_that_takes_nothing(monkeypatch, capsys, said, text):
    """One with <security> speaks first; one with TLS closes at the first byte that is no TLS."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            peer, _ = listener.accept()
            with peer:
                if said:
                    peer.sendall(said)
                while peer.recv(65536) and said:
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        assert run(monkeypatch, b'{"a": 1}', "-p", str(listener.getsockname()[1]), "t") == 1
        thread.join(10)
    assert text in capsys.readouterr().err


def test_flags_are_those_of_fluent_cat(capsys):
    with pytest.raises(SystemExit) as end:
        main.main(["cat", "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    for flag in ("--port", "--host", "--unix", "--socket", "--format", "--json", "--msgpack", "--none", "--message-key",
                 "--time-as-integer", "--retry-limit", "--event-time"):  # fmt: skip
        assert flag in text
