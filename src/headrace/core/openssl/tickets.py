"""Keys of session tickets (RFC 5077): from files, or made here and changed from time to time.

A key is 16 bytes of name and two secrets, for AES-CBC and for HMAC-SHA256. The first key makes tickets; the others
still open theirs, and the client gets a new one. Keys of a shared session cache lie in its memory, so that all workers
and the generation after a reload have the same; they are changed once in the time that a session lives.
"""

from __future__ import annotations

import ctypes
import os
import time
from typing import TYPE_CHECKING, Final

from headrace.core.openssl.library import library
from headrace.core.openssl.sessions import KEYS_AT
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.core.openssl.connection import Connection
    from headrace.core.openssl.sessions import SharedSessions
    from headrace.core.openssl.settings import Settings

_LONG: Final = 80
_SHORT: Final = 48
_IV: Final = 16
_TLS13: Final = 0x0304
_SLOT: Final = 8 + _LONG  # when it was made, the key
_KEPT: Final = 3


class TicketKeys:
    """The keys of files. seal, open: see SSL_CTX_set_tlsext_ticket_key_cb(3)."""

    __slots__ = ("_keys",)

    def __init__(self, keys: list[bytes]) -> None:
        self._keys = keys

    @staticmethod
    def of(settings: Settings, sessions: SharedSessions | None) -> TicketKeys | None:
        """Those that the settings ask for; None: OpenSSL's own, made with the context. Raises ConfError."""
        if settings.ticket_keys:
            return TicketKeys([_read(path) for path in settings.ticket_keys])
        return None if sessions is None else ChangingKeys(sessions, settings.timeout)

    def keys(self) -> list[bytes]:
        """The keys in force, the one for new tickets first."""
        return self._keys

    def seal(self, name: int, iv: int, cipher: int, mac: int) -> int:
        """Make a ticket."""
        key = self.keys()[0]
        vector = os.urandom(_IV)
        ctypes.memmove(name, key, 16)
        ctypes.memmove(iv, vector, _IV)
        return 1 if _begin(key, vector, cipher, mac, encrypt=True) else -1

    def open(self, name: int, iv: int, cipher: int, mac: int, connection: Connection) -> int:
        """Open a ticket: 0: not ours, 1: ours, 2: ours, and the client is to get a new one."""
        wanted = ctypes.string_at(name, 16)
        for index, key in enumerate(self.keys()):
            if key[:16] != wanted:
                continue
            if not _begin(key, ctypes.string_at(iv, _IV), cipher, mac, encrypt=False):
                return -1
            # With TLS 1.3 a client uses a ticket once, so that it needs another one in any case.
            return 2 if index or library().SSL_version(connection.pointer) == _TLS13 else 1
        return 0


class ChangingKeys(TicketKeys):
    """Keys in the memory of a session cache: the one in use, the one before it, and none older."""

    __slots__ = ("_life", "_sessions")

    def __init__(self, sessions: SharedSessions, life: float) -> None:
        super().__init__([])
        self._sessions = sessions
        self._life = max(int(life), 1)

    def keys(self, now: float | None = None) -> list[bytes]:
        """See TicketKeys; a key that has served its time is replaced first."""
        seconds = int(time.time() if now is None else now)
        memory = self._sessions.memory
        with self._sessions.lock:
            made, _ = self._slot(0)
            if not made or seconds >= made + self._life:
                before = [self._slot(index) for index in range(_KEPT - 1)]
                fresh = (seconds, os.urandom(_LONG))
                # A ticket is good for as long as its key made them, and once more.
                good = [one for one in before if one[0] and seconds < one[0] + 2 * self._life]
                for index in range(_KEPT):
                    at = KEYS_AT + index * _SLOT
                    when, value = (fresh, *good)[index] if index <= len(good) else (0, bytes(_LONG))
                    memory[at : at + _SLOT] = when.to_bytes(8, "little") + value
            return [key for when, key in (self._slot(index) for index in range(_KEPT)) if when]

    def _slot(self, index: int) -> tuple[int, bytes]:
        at = KEYS_AT + index * _SLOT
        data = self._sessions.memory[at : at + _SLOT]
        return int.from_bytes(data[:8], "little"), data[8:]


def _begin(key: bytes, iv: bytes, cipher: int, mac: int, *, encrypt: bool) -> bool:
    lib = library()
    if len(key) == _SHORT:
        secret, hmac, kind = key[32:48], key[16:32], lib.EVP_aes_128_cbc()
    else:
        secret, hmac, kind = key[48:80], key[16:48], lib.EVP_aes_256_cbc()
    begin = lib.EVP_EncryptInit_ex if encrypt else lib.EVP_DecryptInit_ex
    if begin(cipher, kind, None, secret, iv) != 1:
        return False
    return bool(lib.HMAC_Init_ex(mac, hmac, len(hmac), lib.EVP_sha256(), None) == 1)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(_LONG + 1)
    except OSError as error:
        raise ConfError(f'open() "{path}" failed ({error.errno}: {error.strerror})') from error
    if len(data) not in (_SHORT, _LONG):
        raise ConfError(f'"{path}" must be 48 or 80 bytes')
    return data
