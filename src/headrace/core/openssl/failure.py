"""OpenSSL's error queue as exceptions of Python's ssl, so that whoever handles one engine handles both."""

from __future__ import annotations

import ctypes
import ssl
from typing import TYPE_CHECKING, Final

from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.core.openssl.library import Library

_EOF: Final = "UNEXPECTED_EOF_WHILE_READING"
_VERIFY: Final = "CERTIFICATE_VERIFY_FAILED"


class OpensslError(ssl.SSLError):
    """A call that failed. reason: as Python's ssl names it; queue: all that OpenSSL said, as nginx prints it."""

    def __init__(self, reason: str, queue: str = "") -> None:
        super().__init__(reason.replace("_", " ").lower())
        self.reason = reason
        self.queue = queue


class UnexpectedEof(OpensslError, ssl.SSLEOFError):
    """The peer has closed the connection without a word."""


class NotVerified(OpensslError, ssl.SSLCertVerificationError):
    """A certificate of the peer did not pass.

    verify_code: X509_V_ERR_...; verify_message: the same in words. wrong_name: it is good, but not for this host.
    """

    def __init__(self, reason: str, queue: str, code: int, message: str, wrong_name: str | None = None) -> None:
        super().__init__(reason, queue)
        self.wrong_name = wrong_name
        self.verify_code = code
        self.verify_message = message


def drain(lib: Library) -> tuple[str, str]:
    """Empty the error queue: the reason of the last error (as Python's ssl names it), and all of it as text."""
    text = ctypes.create_string_buffer(256)
    data, flags = ctypes.c_char_p(), ctypes.c_int()
    parts: list[str] = []
    reason = ""
    while code := lib.ERR_get_error_all(None, None, None, ctypes.byref(data), ctypes.byref(flags)):
        lib.ERR_error_string_n(code, text, len(text))
        shown = text.value.decode(errors="replace")
        if flags.value & 1 and data.value:
            shown += ":" + data.value.decode(errors="replace")
        parts.append(shown)
        words: bytes | None = lib.ERR_reason_error_string(code)
        reason = words.decode().upper().replace(" ", "_") if words else reason
    return reason, " ".join(parts)


def broken(lib: Library, verify_code: int = 0) -> OpensslError:
    """The error of a call on a connection. verify_code: what verification of the peer's certificate said."""
    reason, queue = drain(lib)
    if reason == _VERIFY and verify_code:
        words: bytes = lib.X509_verify_cert_error_string(verify_code)
        return NotVerified(reason, queue, verify_code, words.decode())
    if not reason or reason == _EOF:
        return UnexpectedEof(reason or _EOF, queue)
    return OpensslError(reason, queue)


def unusable(lib: Library, what: str) -> ConfError:
    """The error of a setting that OpenSSL does not take, in nginx's words: `what (SSL: error:...)`."""
    _, queue = drain(lib)
    return ConfError(f"{what} (SSL: {queue})" if queue else what)
