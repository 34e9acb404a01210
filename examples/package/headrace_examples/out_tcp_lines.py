"""Output `tcp_lines`: each record as a line of JSON, over one kept connection per flush thread."""

import asyncio
import json

from headrace.conf.params import integer, string, time
from headrace.errors import Error
from headrace.pipeline.plugin import Output


class TcpLinesOutput(Output):
    """Sends records as lines of JSON."""

    name = "tcp_lines"  # only the contract tests ask for it

    host = string(default="127.0.0.1", doc="Where to connect")
    port = integer(doc="Port to connect to")
    send_timeout = time(default=10.0, doc="Seconds that one chunk may take")

    def validate(self, problems):
        super().validate(problems)
        if not 0 < self.port < 65536:
            problems.error('parameter "port" must be from 1 to 65535', self.place_of("port"))

    async def start(self):
        self._writers = {}

    def format(self, tag, time, record):
        return json.dumps({"tag": tag, **record}, default=repr).encode() + b"\n"

    async def write(self, chunk, lane):
        try:
            async with self.context.clock.timeout(self.send_timeout):
                if lane.state is None:
                    _, lane.state = await asyncio.open_connection(self.host, self.port)
                    self._writers[lane.index] = lane.state
                lane.state.write(chunk.read())
                await lane.state.drain()
        except (OSError, Error) as error:
            self._drop(lane)
            raise Error(f"{self.host}:{self.port}: {error}", kind="tcp_lines", retryable=True) from error

    def _drop(self, lane):
        lane.state = None
        writer = self._writers.pop(lane.index, None)
        if writer is not None:
            writer.close()

    async def close(self):
        for writer in getattr(self, "_writers", {}).values():
            writer.close()

    def stats(self):
        return {"connections": len(self._writers)}
