"""The functions that OpenSSL calls in the middle of a call of ours.

They look up the connection that is being driven, take note of what is asked, and answer at once: "go on", "no", or
"come back", when a hook has to be run first (by Connection.handshake, outside). Nothing may leave them by an
exception.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final

from headrace.core.openssl.hooks import INTERNAL_ERROR, Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.core.openssl.connection import Connection

_P: Final = ctypes.c_void_p
_I: Final = ctypes.c_int
_INT: Final = ctypes.POINTER(ctypes.c_int)

driven: Final[dict[int, Connection]] = {}
"""The connections that are inside a call of OpenSSL, by their SSL."""

OK: Final = 0  # SSL_TLSEXT_ERR_OK
ALERT: Final = 2  # SSL_TLSEXT_ERR_ALERT_FATAL
NO_ACK: Final = 3  # SSL_TLSEXT_ERR_NOACK
RETRY: Final = -1


def _callback(failed: int, *types: Any) -> Callable[[Callable[..., int | None]], Any]:
    """Make a function of C of one that gets the connection instead of its SSL. types: what it returns and takes.

    failed: the answer in place of an exception, which the connection keeps, to raise it when OpenSSL has returned.
    """

    def outer(function: Callable[..., int | None]) -> Any:
        def inner(ssl: int, *rest: Any) -> int | None:
            connection = driven.get(ssl)
            if connection is None:
                return failed
            try:
                return function(connection, *rest)
            except Exception as error:  # noqa: BLE001 - raised again by Connection.handshake
                connection.failed_by = error
                return failed

        return ctypes.PYFUNCTYPE(*types)(inner)

    return outer


@_callback(0, _I, _P, _INT, _P)
def client_hello(connection: Connection, alert: Any, _argument: int) -> int:
    """SSL_CTX_set_client_hello_cb(3)."""
    if connection.refusal is not None:
        alert[0] = connection.alert
        return 0
    return 1 if connection.ask("client_hello") else RETRY


@_callback(0, _I, _P, _P)
def certificate(connection: Connection, _argument: int) -> int:
    """SSL_CTX_set_cert_cb(3)."""
    if connection.refusal is not None:
        return 0
    return 1 if connection.ask("certificate") else RETRY


@_callback(ALERT, _I, _P, _INT, _P)
def server_name(connection: Connection, alert: Any, _argument: int) -> int:
    """SSL_CTX_set_tlsext_servername_callback(3)."""
    alert[0] = INTERNAL_ERROR
    try:
        return OK if connection.choose_server() else NO_ACK
    except Refused as refused:
        alert[0] = refused.alert
        raise


@_callback(ALERT, _I, _P, ctypes.POINTER(_P), ctypes.POINTER(ctypes.c_ubyte), _P, ctypes.c_uint, _P)
def alpn(connection: Connection, out: Any, length: Any, offered: int, size: int, _argument: int) -> int:
    """SSL_CTX_set_alpn_select_cb(3): the first of ours that the client offers, an alert when there is none."""
    ours = connection.context.settings.alpn if connection.hooks.alpn is None else connection.hooks.alpn
    if not ours:
        return NO_ACK
    names: dict[bytes, int] = {}
    data = ctypes.string_at(offered, size)
    at = 0
    while at < size:
        names.setdefault(data[at + 1 : at + 1 + data[at]], at + 1)
        at += 1 + data[at]
    for name in ours:
        place = names.get(name.encode())
        if place is not None:
            out[0] = offered + place
            length[0] = len(name)
            return OK
    return ALERT


@_callback(0, _I, _P, _P)
def session_new(connection: Connection, session: int) -> int:
    """SSL_CTX_sess_set_new_cb(3); 0: the reference stays OpenSSL's."""
    connection.made_session(session)
    return 0


@_callback(0, _P, _P, _P, _I, _INT)
def session_get(connection: Connection, where: int, size: int, copy: Any) -> int | None:
    """SSL_CTX_sess_set_get_cb(3); the reference becomes OpenSSL's."""
    copy[0] = 0
    return connection.find_session(ctypes.string_at(where, size))


@_callback(-1, _I, _P, _P, _P, _P, _P, _I)
def ticket_key(connection: Connection, name: int, iv: int, cipher: int, mac: int, encrypt: int) -> int:
    """SSL_CTX_set_tlsext_ticket_key_cb(3)."""
    keys = connection.session_context.ticket_keys
    assert keys is not None
    return keys.seal(name, iv, cipher, mac) if encrypt else keys.open(name, iv, cipher, mac, connection)


@_callback(NO_ACK, _I, _P, _P)
def status(connection: Connection, _argument: int) -> int:
    """SSL_CTX_set_tlsext_status_cb(3), servers: an OCSP response is wanted."""
    return OK if connection.staple() else NO_ACK


def _accept_any(_ok: int, _store: int) -> int:
    return 1


accept_any: Final[Any] = ctypes.PYFUNCTYPE(_I, _I, _P)(_accept_any)
"""SSL_CTX_set_verify(3): the handshake goes on, and the result is looked at when it is done."""
