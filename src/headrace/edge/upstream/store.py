"""proxy_store: an answer that is whole becomes a file, by rename, so that nobody sees a part of it.

https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_store
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from headrace.edge import log
from headrace.edge.values import evaluate

if TYPE_CHECKING:
    from headrace.edge.upstream.visit import Visit


class Store:
    """One answer on its way to a file. A disk that fails costs the copy, not the answer."""

    def __init__(self, visit: Visit) -> None:
        settings, request = visit.settings, visit.request
        assert settings.store is not None
        self.visit = visit
        self.fd = -1
        self.path = evaluate(settings.store, request) or request.location.path_of(request)
        self.temp = ""
        try:
            os.makedirs(settings.temp_path, mode=0o700, exist_ok=True)
            self.fd, self.temp = tempfile.mkstemp(dir=settings.temp_path)
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        name = self.path.decode("utf-8", "surrogateescape")
        self.visit.log(log.CRIT, f'storing "{name}" failed ({error.errno}: {error.strerror})')
        self.drop()

    def write(self, data: bytes) -> None:
        """Append a piece of the body."""
        if self.fd < 0:
            return
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self.fd, view) :]
        except OSError as error:
            self._failed(error)

    def keep(self) -> None:
        """The answer is whole: give the file its name, access and time (Last-Modified)."""
        if self.fd < 0:
            return
        try:
            os.fchmod(self.fd, self.visit.settings.store_access)
            modified = self.visit.head.header(b"last-modified")
            if modified is not None:
                with contextlib.suppress(ValueError, TypeError):
                    stamp = parsedate_to_datetime(modified.decode("latin-1")).timestamp()
                    os.utime(self.fd, (stamp, stamp))
            folder = os.path.dirname(self.path)
            os.makedirs(folder, mode=0o700, exist_ok=True)
            try:
                os.rename(self.temp, self.path)
            except OSError:
                self._copy()
            self.temp = ""
        except OSError as error:
            self._failed(error)
        self.drop()

    def _copy(self) -> None:
        """The temporary files are on another disk: copy beside the target, then rename."""
        folder = os.path.dirname(self.path)
        fd, name = tempfile.mkstemp(dir=os.fsdecode(folder))
        try:
            offset = 0
            while sent := os.sendfile(fd, self.fd, offset, 1 << 20):
                offset += sent
            os.fchmod(fd, self.visit.settings.store_access)
            os.rename(name, os.fsdecode(self.path))
        except OSError:
            os.unlink(name)
            raise
        finally:
            os.close(fd)
        os.unlink(self.temp)

    def drop(self) -> None:
        """Be done with the temporary file."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        if self.temp:
            with contextlib.suppress(OSError):
                os.unlink(self.temp)
            self.temp = ""
