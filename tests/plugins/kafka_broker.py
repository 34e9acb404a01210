"""A scripted Kafka broker of one node, for tests: ApiVersions, Metadata and Produce, by aiokafka's own structures."""

from __future__ import annotations

import asyncio
import contextlib
import io
import struct

from aiokafka.protocol.admin import ApiVersionResponse_v0
from aiokafka.protocol.metadata import MetadataRequest_v1, MetadataResponse_v1
from aiokafka.protocol.produce import ProduceRequest_v7, ProduceResponse_v7
from aiokafka.record import MemoryRecords

UNKNOWN_TOPIC, NOT_LEADER, TOO_LARGE, INVALID_TOPIC = 3, 6, 10, 17


class Broker:
    """topics: name -> number of partitions. fate(topic, partition, records): an error code, or None to cut the line.

    messages: what was acknowledged, (topic, partition, record). produced: all requests to produce.
    """

    def __init__(self, topics, fate=lambda topic, partition, records: 0, tls=None):
        self.tls = tls
        self.topics = topics
        self.fate = fate
        self.messages = []
        self.produced = []
        self.accepts = 0
        self.clients = set()
        self.port = 0
        self._tasks = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connection(self, reader, writer):
        self.accepts += 1
        self._tasks.add(asyncio.current_task())
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while True:
                    (size,) = struct.unpack(">i", await reader.readexactly(4))
                    answer = self._answer(await reader.readexactly(size))
                    if answer is None:
                        return
                    if answer:
                        writer.write(struct.pack(">i", len(answer)) + answer)
        finally:
            writer.transport.abort()
            self._tasks.discard(asyncio.current_task())

    def _answer(self, data):
        key, _version, correlation, length = struct.unpack_from(">hhih", data)
        self.clients.add(data[10 : 10 + length].decode())
        body = io.BytesIO(data[10 + length :])
        if key == 18:
            response = ApiVersionResponse_v0(0, [(18, 0, 0), (3, 1, 1), (0, 7, 7)])
        elif key == 3:
            asked = MetadataRequest_v1.decode(body).topics
            names = asked or list(self.topics)
            response = MetadataResponse_v1(
                [(0, "127.0.0.1", self.port, None)], 0, [self._topic(name) for name in names]
            )
        else:
            request = ProduceRequest_v7.decode(body)
            response = self._produce(request)
            if response is not None and request.required_acks == 0:
                return b""
        return None if response is None else struct.pack(">i", correlation) + response.encode()

    def _topic(self, name):
        count = self.topics.get(name)
        if count is None:
            return (UNKNOWN_TOPIC, name, False, [])
        return (0, name, False, [(0, number, 0, [0], [0]) for number in range(count)])

    def _produce(self, request):
        answers = []
        for topic, partitions in request.topics:
            told = []
            for partition, data in partitions:
                records = []
                pack = MemoryRecords(data)
                while pack.has_next():
                    records += list(pack.next_batch())
                self.produced.append((topic, partition, records))
                code = self.fate(topic, partition, records)
                if code is None:
                    return None
                if code == 0:
                    self.messages += [(topic, partition, record) for record in records]
                told.append((partition, code, 0, -1, 0))
            answers.append((topic, told))
        return ProduceResponse_v7(answers, 0)
