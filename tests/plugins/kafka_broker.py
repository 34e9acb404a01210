"""A scripted Kafka broker of one node, for tests: ApiVersions, Metadata and Produce, by aiokafka's own structures."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import io
import struct

from aiokafka.protocol.admin import (
    ApiVersionResponse_v0,
    SaslAuthenticateRequest_v0,
    SaslAuthenticateResponse_v0,
    SaslHandShakeRequest_v1,
    SaslHandShakeResponse_v1,
)
from aiokafka.protocol.metadata import MetadataRequest_v1, MetadataResponse_v1
from aiokafka.protocol.produce import ProduceRequest_v7, ProduceResponse_v7
from aiokafka.record import MemoryRecords

UNKNOWN_TOPIC, NOT_LEADER, TOO_LARGE, INVALID_TOPIC = 3, 6, 10, 17


class Sasl:
    """The server's side of PLAIN (RFC 4616) and SCRAM (RFC 5802) on one connection."""

    def __init__(self, users, mechanism):
        self.users = users
        self.mechanism = mechanism
        self.first = b""
        self.done = False

    def answer(self, data):
        """(error code, bytes)."""
        if self.mechanism == "PLAIN":
            _, user, word = data.split(b"\0")
            self.done = self.users.get(user.decode()) == word.decode()
            return (0 if self.done else 58), b""
        fields = dict(part.split(b"=", 1) for part in data.split(b",") if b"=" in part)
        if not self.first:
            self.first = data.partition(b"n,,")[2]
            self.user = fields[b"n"].decode()
            self.server = b"r=%ssuffix,s=%s,i=4096" % (fields[b"r"], base64.b64encode(b"salt"))
            return 0, self.server
        kind = "sha512" if self.mechanism.endswith("512") else "sha256"

        def mac(key, text):
            return hmac.new(key, text, kind).digest()

        salted = hashlib.pbkdf2_hmac(kind, self.users.get(self.user, "").encode(), b"salt", 4096)
        key = mac(salted, b"Client Key")
        signed = b",".join((self.first, self.server, data.rpartition(b",p=")[0]))
        proof = bytes(a ^ b for a, b in zip(key, mac(hashlib.new(kind, key).digest(), signed), strict=True))
        self.done = base64.b64decode(fields[b"p"]) == proof
        return (0 if self.done else 58), b"v=" + base64.b64encode(mac(mac(salted, b"Server Key"), signed))


class Broker:
    """users: name -> password, who must shake hands; None: nobody must. topics: name -> number of partitions. fate(topic, partition, records): an error code, or None to cut the line.

    messages: what was acknowledged, (topic, partition, record). produced: all requests to produce.
    """

    def __init__(self, topics, fate=lambda topic, partition, records: 0, tls=None, users=None):
        self.tls = tls
        self.users = users
        self.mechanisms = []
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
        sasl = Sasl(self.users or {}, "")
        sasl.done = self.users is None
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while True:
                    (size,) = struct.unpack(">i", await reader.readexactly(4))
                    answer = self._answer(await reader.readexactly(size), sasl)
                    if answer is None:
                        return
                    if answer:
                        writer.write(struct.pack(">i", len(answer)) + answer)
        finally:
            writer.transport.abort()
            self._tasks.discard(asyncio.current_task())

    def _answer(self, data, sasl):
        key, _version, correlation, length = struct.unpack_from(">hhih", data)
        self.clients.add(data[10 : 10 + length].decode())
        body = io.BytesIO(data[10 + length :])
        if key == 18:
            response = ApiVersionResponse_v0(0, [(18, 0, 0), (17, 1, 1), (36, 0, 0), (3, 1, 1), (0, 7, 7)])
        elif key == 17:
            sasl.mechanism = SaslHandShakeRequest_v1.decode(body).mechanism
            self.mechanisms.append(sasl.mechanism)
            response = SaslHandShakeResponse_v1(0, [sasl.mechanism])
        elif key == 36:
            code, told = sasl.answer(SaslAuthenticateRequest_v0.decode(body).sasl_auth_bytes)
            response = SaslAuthenticateResponse_v0(code, "no" if code else None, told)
        elif not sasl.done:
            return None
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
