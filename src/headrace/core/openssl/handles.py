"""Objects of OpenSSL that belong to Python objects, and are freed with them."""

from __future__ import annotations

import ctypes
from collections import Counter
from typing import TYPE_CHECKING, Final

from headrace.core.openssl.library import library

if TYPE_CHECKING:
    from collections.abc import Iterable

live: Final[Counter[str]] = Counter()
"""How many objects of each kind there are; for tests that count."""


class Handle:
    """One object. pointer: where it is; it is freed when nobody has this handle any more."""

    __slots__ = ("__weakref__", "_free", "pointer")

    def __init__(self, pointer: int, kind: str) -> None:
        self.pointer = pointer
        self._free = getattr(library(), f"{kind}_free")
        live[kind] += 1

    @property
    def _kind(self) -> str:
        name: str = self._free.__name__
        return name.removesuffix("_free")

    def __del__(self, counts: Counter[str] = live) -> None:  # bound here: at the interpreter's end the name is gone
        free = getattr(self, "_free", None)
        if free is not None and self.pointer:
            counts[self._kind] -= 1
            free(self.pointer)
            self.pointer = 0


def der_of(pointer: int, kind: str) -> bytes:
    """An object in DER, b"" when it has none. kind: as OpenSSL names it, X509 say."""
    lib = library()
    where = ctypes.c_void_p()
    size = getattr(lib, f"i2d_{kind}")(pointer, ctypes.byref(where))
    try:
        return ctypes.string_at(where.value or 0, max(size, 0))
    finally:
        lib.CRYPTO_free(where, b"", 0)


class Memory:
    """A buffer of bytes for OpenSSL to read from; `with` frees it."""

    __slots__ = ("_data", "pointer")

    def __init__(self, data: bytes) -> None:
        self._data = data  # OpenSSL keeps no copy
        self.pointer: int = library().BIO_new_mem_buf(data, len(data))

    def __enter__(self) -> int:
        return self.pointer

    def __exit__(self, *_error: object) -> None:
        library().BIO_free(self.pointer)


class Output:
    """A buffer for OpenSSL to write to; `with` frees it."""

    __slots__ = ("pointer",)

    def __init__(self) -> None:
        lib = library()
        self.pointer: int = lib.BIO_new(lib.BIO_s_mem())

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_error: object) -> None:
        library().BIO_free(self.pointer)

    @property
    def text(self) -> bytes:
        """What was written since the last look."""
        return drained(self.pointer)


def drained(bio: int) -> bytes:
    """Take all bytes out of a memory buffer."""
    lib = library()
    size = lib.BIO_ctrl(bio, 10, 0, None)  # BIO_CTRL_PENDING
    if size <= 0:
        return b""
    room = ctypes.create_string_buffer(size)
    count = lib.BIO_read(bio, room, size)
    return room.raw[: max(count, 0)]


def items(stack: int | None) -> Iterable[int]:
    """The pointers in a STACK_OF(...)."""
    lib = library()
    for index in range(lib.OPENSSL_sk_num(stack) if stack else 0):
        yield lib.OPENSSL_sk_value(stack, index)
