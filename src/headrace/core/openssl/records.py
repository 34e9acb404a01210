"""The records of a TLS session over memory buffers: plaintext to ciphertext and back, once it is established.

These calls are made for every read and write, so their arguments are made ready once, and the bytes go through one
buffer for each thread.
"""

from __future__ import annotations

import ctypes
import ssl as python_ssl
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from headrace.core.openssl.failure import broken
from headrace.core.openssl.handles import live
from headrace.core.openssl.library import library

if TYPE_CHECKING:
    from headrace.core.openssl.context import Context
    from headrace.core.tls_engine import Engine

_ROOM: Final = 131_072
_LARGE: Final = 8192
_INFO, _RESET = 3, 1  # BIO_ctrl
_READING: Final = 3  # SSL_want
_RECEIVED_SHUTDOWN: Final = 2
_BOTH_WAYS: Final = 3  # SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN
_EOF_RETURN: Final = 130

_room = threading.local()


def _buffer() -> Any:
    """Where OpenSSL puts bytes, one for each thread."""
    found = getattr(_room, "buffer", None)
    if found is None:
        found = _room.buffer = (ctypes.c_char * _ROOM)()
    return found


class _Quick:
    """The calls of every read and write, without conversion of arguments."""

    def __init__(self) -> None:
        lib = library()
        for name in ("SSL_read", "SSL_write", "SSL_want"):
            setattr(self, name, self._fresh(lib.ssl, name))
        for name in ("BIO_read", "BIO_write", "BIO_ctrl_pending", "ERR_clear_error"):
            setattr(self, name, self._fresh(lib.crypto, name))

        self._free, self._set_shutdown = lib.SSL_free, lib.SSL_set_shutdown

    def release(self, pointer: int, ways: int = _BOTH_WAYS) -> None:
        """Free an SSL. Its session is as good as before, however the connection ended."""
        self._set_shutdown(pointer, ways)
        self._free(pointer)

    @staticmethod
    def _fresh(dll: ctypes.PyDLL, name: str) -> Any:
        function = dll[name]
        function.restype = ctypes.c_int
        return function

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


_quick: list[_Quick] = []


class Records:
    """An SSL with its buffers. Any method may raise ssl.SSLError (an OpensslError).

    pointer: the SSL. outer: the session that this one is spoken through. buffered: `read` may have something without
    more from the wire. ended: the peer has said close_notify, or the wire has ended; ragged: without close_notify.
    established: the handshake is done. early: it is not, but early data is there to read and answers may be sent.
    """

    __slots__ = (
        "__weakref__", "_bio_in", "_bio_out", "_buffer", "_large", "_q", "_ssl", "buffered", "early", "ended",
        "established", "outer", "pointer", "ragged",
    )  # fmt: skip

    def __init__(self, context: Context, outer: Engine | None = None) -> None:
        lib = library()
        if not _quick:
            _quick.append(_Quick())
        self._q = _quick[0]
        pointer = lib.SSL_new(context.pointer)
        if not pointer:
            raise broken(lib)
        live["SSL"] += 1
        self.pointer: int = pointer
        self.outer = outer
        self.buffered = self.early = self.ended = self.established = self.ragged = self._large = False
        self._ssl = ctypes.c_void_p(pointer)
        self._buffer = _buffer()
        bio_in, bio_out = lib.BIO_new(lib.BIO_s_mem()), lib.BIO_new(lib.BIO_s_mem())
        lib.SSL_set_bio(pointer, bio_in, bio_out)
        self._bio_in, self._bio_out = ctypes.c_void_p(bio_in), ctypes.c_void_p(bio_out)

    def __del__(self, counts: Counter[str] = live) -> None:  # bound here: at the interpreter's end the name is gone
        pointer = getattr(self, "pointer", 0)
        if pointer:
            counts["SSL"] -= 1
            self.pointer = 0
            self._q.release(pointer)

    def read_early(self, limit: int) -> bytes:
        """Read while the handshake is not done; for who knows how to go on with it."""
        raise NotImplementedError

    def write_early(self, plain: bytes) -> None:
        """Write while the handshake is not done."""
        raise NotImplementedError

    def feed(self, wire: bytes) -> None:
        """Take ciphertext from the wire; b"" is its end."""
        outer = self.outer
        if outer is not None:
            outer.feed(wire)
            wire = outer.read(1 << 30)
        if wire:
            self._q.BIO_write(self._bio_in, wire, len(wire))
            self.buffered = True
        if not wire if outer is None else outer.ended:
            self._end_of_wire()

    def _end_of_wire(self) -> None:
        library().BIO_ctrl(self._bio_in, _EOF_RETURN, 0, None)
        self.ragged = True  # unless close_notify is among what is still to be read
        self.buffered = True

    def read(self, limit: int) -> bytes:
        """Up to `limit` bytes of plaintext; b"" when there are none now (see `ended`)."""
        if self.early:
            return self.read_early(limit)
        if self.ended:
            return b""
        quick, ssl, buffer = self._q, self._ssl, self._buffer
        count = quick.SSL_read(ssl, buffer, min(_ROOM, limit))
        if count <= 0:
            self._stopped()
            return b""
        data: bytes = buffer[:count]
        if count < limit and not quick.BIO_ctrl_pending(self._bio_in):
            self.buffered = self.ragged
            return data
        parts = [data]
        left = limit - count
        while left > 0:
            count = quick.SSL_read(ssl, buffer, min(_ROOM, left))
            if count <= 0:
                self._stopped()
                break
            parts.append(buffer[:count])
            left -= count
        else:
            self.buffered = self.ragged or bool(library().SSL_pending(ssl) or quick.BIO_ctrl_pending(self._bio_in))
        return b"".join(parts)

    def _stopped(self) -> None:
        """A read that gave nothing: there is nothing now, it is the end, or an error."""
        self.buffered = False
        # SSL_get_error looks at the error queue of the thread, into which others put things too.
        if self._q.SSL_want(self._ssl) == _READING and not self.ragged:
            return
        lib = library()
        if lib.SSL_get_shutdown(self.pointer) & _RECEIVED_SHUTDOWN:
            self.ended = True
            self.ragged = False
            return
        error = broken(lib)
        if isinstance(error, python_ssl.SSLEOFError):
            self.ended = self.ragged = True
            return
        raise error

    def write(self, plain: bytes) -> None:
        """Encrypt all of it; `outgoing` has the result."""
        if self.early:
            self.write_early(plain)
            return
        size = len(plain)
        if not size:
            return
        self._large = size > _LARGE
        done = self._q.SSL_write(self._ssl, plain, size)
        while done < size:
            if done <= 0:
                raise broken(library())
            plain = plain[done:]
            size -= done
            done = self._q.SSL_write(self._ssl, plain, size)

    def outgoing(self) -> bytes:
        """Ciphertext for the wire, b"" when there is none."""
        if self._large:
            data = self._all_outgoing()
        else:
            count = self._q.BIO_read(self._bio_out, self._buffer, _ROOM)
            data = self._buffer[:count] if count > 0 else b""
            if count == _ROOM:
                data += self._all_outgoing()
        outer = self.outer
        if outer is None:
            return data
        if data:
            outer.write(data)
        return outer.outgoing()

    def _all_outgoing(self) -> bytes:
        """Much ciphertext, without a copy on its way."""
        self._large = False
        lib = library()
        where = ctypes.c_void_p()
        size = lib.BIO_ctrl(self._bio_out, _INFO, 0, ctypes.byref(where))
        data = ctypes.string_at(where.value or 0, size) if size > 0 else b""
        lib.BIO_ctrl(self._bio_out, _RESET, 0, None)
        return data

    def say_goodbye(self) -> None:
        """Put close_notify into `outgoing` (RFC 8446 6.1); reading may go on."""
        if not self.established:
            return
        lib = library()
        lib.ERR_clear_error()
        lib.SSL_shutdown(self.pointer)
        lib.ERR_clear_error()
