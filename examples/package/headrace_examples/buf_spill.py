"""Buffer `spill`: chunks in memory up to a limit, the complete ones beyond it in files. Gone with the process."""

import os
import tempfile

from headrace.conf.params import size
from headrace.pipeline.memory import MemoryStore
from headrace.pipeline.settings import BufferSection


class SpillStore(MemoryStore):
    """Memory, and a folder for what is too much for it."""

    def __init__(self, files, limit):
        super().__init__()
        self._files = files
        self._limit = limit
        self._held = 0
        self._folder = tempfile.mkdtemp(prefix="spill-")
        files.makedirs(self._folder, 0o700)

    def seal(self, chunk):
        super().seal(chunk)  # chunk.parts is one piece now, chunk.size its length
        if self._held + chunk.size <= self._limit:
            self._held += chunk.size
            return
        path = os.path.join(self._folder, chunk.hex_id)
        descriptor = self._files.create(path, 0o600)
        try:
            data = memoryview(chunk.parts[0])
            while data:
                data = data[self._files.append(descriptor, data) :]
        except OSError:  # a full disk: it stays where it is
            self._files.unlink(path)
            self._held += chunk.size
            return
        finally:
            self._files.close(descriptor)
        chunk.parts, chunk.place = None, path

    def read(self, chunk):
        if chunk.parts is not None:
            return super().read(chunk)
        descriptor = self._files.open_read(chunk.place)
        try:
            return self._files.read_at(descriptor, chunk.size, 0)
        finally:
            self._files.close(descriptor)

    def purge(self, chunk):
        if isinstance(chunk.place, str):
            self._files.unlink(chunk.place)
        elif chunk.encoder is None:
            self._held = max(self._held - chunk.size, 0)
        super().purge(chunk)

    def close(self):
        for name in self._files.listdir(self._folder):
            self._files.unlink(os.path.join(self._folder, name))
        os.rmdir(self._folder)


class SpillBuffer(BufferSection):
    """Chunks in memory, and beside it."""

    name = "spill"

    total_limit_size = size(default=4 << 30, doc="Bytes of all chunks: staged, queued and in flight")
    memory_limit = size(default=64 << 20, doc="Bytes of complete chunks that stay in memory")

    def open_store(self, context):
        return SpillStore(context.files, self.memory_limit)
