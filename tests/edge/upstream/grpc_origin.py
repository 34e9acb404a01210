"""An HTTP/2 server for tests of grpc_pass, on h2."""

from __future__ import annotations

import asyncio

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded
from h2.exceptions import ProtocolError


class Asked:
    """One request: the connection and stream it came on, its head and its body."""

    def __init__(self, connection: int, stream: int, fields) -> None:
        self.connection, self.stream, self.fields = connection, stream, dict(fields)
        self.body = b""


class GrpcOrigin:
    """`script(origin, h2 connection, asked)` answers a request when its end is here; `early` when its head is."""

    def __init__(self, script, early=None) -> None:
        self.script, self.early = script, early
        self.requests: list[Asked] = []
        self.accepts = 0
        self.tasks: set[asyncio.Task] = set()

    async def __aenter__(self) -> GrpcOrigin:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_exc) -> None:
        self.server.close()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _serve(self, reader, writer) -> None:
        self.tasks.add(asyncio.current_task())
        self.accepts += 1
        number = self.accepts
        conn = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        conn.initiate_connection()
        writer.write(conn.data_to_send())
        asked: dict[int, Asked] = {}
        try:
            while data := await reader.read(65536):
                for event in conn.receive_data(data):
                    if isinstance(event, RequestReceived):
                        asked[event.stream_id] = one = Asked(number, event.stream_id, event.headers)
                        self.requests.append(one)
                        if self.early is not None:
                            self.early(self, conn, one)
                    elif isinstance(event, DataReceived):
                        asked[event.stream_id].body += event.data
                        conn.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    elif isinstance(event, StreamEnded):
                        self.script(self, conn, asked[event.stream_id])
                writer.write(conn.data_to_send())
        except (ConnectionError, ProtocolError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


def hello(_origin, conn, asked) -> None:
    """A message and trailers."""
    conn.send_headers(asked.stream, [(":status", "200"), ("content-type", "application/grpc"), ("x-a", "b")])
    conn.send_data(asked.stream, b"hello " + asked.body[:10])
    conn.send_headers(asked.stream, [("grpc-status", "0"), ("grpc-message", "fine")], end_stream=True)


def status(code: str, *, end: bool = True):
    """An answer without a body."""

    def answer(_origin, conn, asked) -> None:
        conn.send_headers(asked.stream, [(":status", code), ("grpc-status", "12")], end_stream=end)

    return answer


def reset(_origin, conn, asked) -> None:
    """No answer."""
    conn.reset_stream(asked.stream, 2)


def length(declared: int):
    """A body that is not as long as its head says."""

    def answer(_origin, conn, asked) -> None:
        conn.send_headers(asked.stream, [(":status", "200"), ("content-length", str(declared))])
        conn.send_data(asked.stream, b"hello", end_stream=True)

    return answer
