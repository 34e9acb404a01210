"""Password files of auth_basic, and the schemes of their hashes.

Schemes: {PLAIN}, {SHA}, {SSHA} (RFC 2307 5.3), Apache's MD5 ($apr1$), and everything that the system's crypt(3) knows.
https://nginx.org/en/docs/http/ngx_http_auth_basic_module.html#auth_basic_user_file
"""

from __future__ import annotations

import base64
import ctypes
import hashlib
import hmac
import os
from collections import OrderedDict
from typing import Final

_ITOA64: Final = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_LIBRARIES: Final = ("libcrypt.so.1", "libcrypt.so.2", None)
REMEMBERED: Final = 1024
"""Outcomes of slow hashes that are kept, by a keyed digest: a client sends its password with every request."""

_key: Final = os.urandom(32)
_outcomes: Final[OrderedDict[bytes, bool]] = OrderedDict()


class PasswordFile:
    """The users of one file, read again when it has changed. get() raises OSError."""

    def __init__(self, path: bytes) -> None:
        self.path = path
        self._stamp: tuple[int, int, int] | None = None
        self._users: dict[bytes, bytes] = {}

    def get(self, user: bytes) -> bytes | None:
        """The hash of a user's password, None for an unknown one."""
        info = os.stat(self.path)
        stamp = (info.st_mtime_ns, info.st_size, info.st_ino)
        if stamp != self._stamp:
            with open(self.path, "rb") as file:
                self._users = _parse(file.read())
            self._stamp = stamp
        return self._users.get(user)


def _parse(text: bytes) -> dict[bytes, bytes]:
    """`user:hash` or `user:hash:comment` by line; of two lines for one user the first counts."""
    users: dict[bytes, bytes] = {}
    for line in text.split(b"\n"):
        user, colon, rest = line.removesuffix(b"\r").partition(b":")
        if colon and not line.startswith(b"#"):
            users.setdefault(user, rest.partition(b":")[0])
    return users


def matches(password: bytes, hashed: bytes) -> bool:
    """Whether a password has this hash. Raises ValueError when the scheme is unknown to the system."""
    if hashed.startswith(b"{PLAIN}"):
        return hmac.compare_digest(hashed[7:], password)
    if hashed.startswith(b"{SHA}"):
        return hmac.compare_digest(hashed[5:], base64.b64encode(hashlib.sha1(password).digest()))  # noqa: S324
    if hashed.startswith(b"{SSHA}"):
        return _salted(password, hashed[6:])
    key = hmac.digest(_key, b"%d:%b%b" % (len(hashed), hashed, password), "sha256")
    known = _outcomes.get(key)
    if known is None:
        made = apr1(password, hashed) if hashed.startswith(b"$apr1$") else crypt(password, hashed)
        known = hmac.compare_digest(made, hashed)
        _outcomes[key] = known
        if len(_outcomes) > REMEMBERED:
            _outcomes.popitem(last=False)
    else:
        _outcomes.move_to_end(key)
    return known


def _salted(password: bytes, encoded: bytes) -> bool:
    try:
        decoded = base64.b64decode(encoded)
    except ValueError:
        return False
    digest, salt = decoded[:20], decoded[20:]
    return hmac.compare_digest(digest, hashlib.sha1(password + salt).digest())  # noqa: S324 - the file's scheme


def crypt(password: bytes, setting: bytes) -> bytes:
    """Hash a password by the system's crypt library. Raises ValueError when it does not know the setting."""
    if b"\0" in password or b"\0" in setting:
        raise ValueError("a NUL in a password")
    made: bytes | None = _crypt()(password, setting)
    if made is None or made.startswith(b"*"):
        raise ValueError("crypt() knows no such setting")
    return made


def _crypt() -> ctypes._NamedFuncPointer:
    global _function  # noqa: PLW0603 - loaded once, when the first hash of this kind is seen
    if _function is None:
        for name in _LIBRARIES:
            try:
                found = ctypes.CDLL(name).crypt
            except (OSError, AttributeError):
                continue
            found.restype, found.argtypes = ctypes.c_char_p, [ctypes.c_char_p, ctypes.c_char_p]
            _function = found
            break
        else:
            raise ValueError("this system has no crypt()")
    return _function


_function: ctypes._NamedFuncPointer | None = None


def apr1(password: bytes, setting: bytes) -> bytes:
    """Apache's variant of the MD5 scheme: `$apr1$salt$hash`."""
    salt = setting[6:].partition(b"$")[0][:8]

    def md5(data: bytes) -> bytes:
        return hashlib.md5(data).digest()  # noqa: S324 - the file's scheme

    size = len(password)
    final = md5(password + salt + password)
    mixed = password + b"$apr1$" + salt + final * (size // 16) + final[: size % 16]
    bits = size
    while bits:
        mixed += b"\0" if bits & 1 else password[:1]
        bits >>= 1
    final = md5(mixed)
    for i in range(1000):
        step = password if i & 1 else final
        if i % 3:
            step += salt
        if i % 7:
            step += password
        final = md5(step + (final if i & 1 else password))
    out = b""
    for a, b, c in ((0, 6, 12), (1, 7, 13), (2, 8, 14), (3, 9, 15), (4, 10, 5)):
        out += _to64(final[a] << 16 | final[b] << 8 | final[c], 4)
    return b"$apr1$" + salt + b"$" + out + _to64(final[11], 2)


def _to64(value: int, count: int) -> bytes:
    out = b""
    for _ in range(count):
        out += _ITOA64[value & 63 : (value & 63) + 1]
        value >>= 6
    return out
