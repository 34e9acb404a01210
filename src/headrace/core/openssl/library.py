"""OpenSSL's shared library: found, opened, its functions declared.

It is the one that Python's ssl has loaded, where Python is linked with one, so that a process has one OpenSSL; the
system's otherwise. Version 3 at least. Calls keep the interpreter's lock (PyDLL): none of them waits, and callbacks
come back into Python on the same thread.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import ssl as _python_ssl  # noqa: F401 - loads the library that is looked for
from typing import Any, Final

from headrace import errors

_P: Final = ctypes.c_void_p
_I: Final = ctypes.c_int
_L: Final = ctypes.c_long
_S: Final = ctypes.c_size_t
_B: Final = ctypes.c_char_p
_U: Final = ctypes.c_uint
_U32: Final = ctypes.c_uint32
_U64: Final = ctypes.c_uint64
_X: Final = ctypes.c_ulong

_LEAST: Final = 0x30000000

# name: (what it returns, what it takes)
_SSL: Final[dict[str, tuple[Any, ...]]] = {
    "TLS_method": (_P,),
    "SSL_CTX_new": (_P, _P),
    "SSL_CTX_free": (None, _P),
    "SSL_CTX_ctrl": (_L, _P, _I, _L, _P),
    "SSL_CTX_callback_ctrl": (_L, _P, _I, _P),
    "SSL_CTX_set_options": (_U64, _P, _U64),
    "SSL_CTX_clear_options": (_U64, _P, _U64),
    "SSL_CTX_get_options": (_U64, _P),
    "SSL_CTX_set_cipher_list": (_I, _P, _B),
    "SSL_CTX_use_certificate": (_I, _P, _P),
    "SSL_CTX_use_PrivateKey": (_I, _P, _P),
    "SSL_CTX_check_private_key": (_I, _P),
    "SSL_CTX_set_verify": (None, _P, _I, _P),
    "SSL_CTX_set_verify_depth": (None, _P, _I),
    "SSL_CTX_get_verify_mode": (_I, _P),
    "SSL_CTX_get_verify_depth": (_I, _P),
    "SSL_CTX_get_cert_store": (_P, _P),
    "SSL_CTX_load_verify_file": (_I, _P, _B),
    "SSL_CTX_load_verify_dir": (_I, _P, _B),
    "SSL_CTX_set_default_verify_paths": (_I, _P),
    "SSL_CTX_set_client_CA_list": (None, _P, _P),
    "SSL_CTX_get_client_CA_list": (_P, _P),
    "SSL_load_client_CA_file": (_P, _B),
    "SSL_CTX_set_session_id_context": (_I, _P, _B, _U),
    "SSL_CTX_set_timeout": (_L, _P, _L),
    "SSL_CTX_set_alpn_select_cb": (None, _P, _P, _P),
    "SSL_CTX_set_alpn_protos": (_I, _P, _B, _U),
    "SSL_CTX_set_client_hello_cb": (None, _P, _P, _P),
    "SSL_CTX_set_cert_cb": (None, _P, _P, _P),
    "SSL_CTX_sess_set_new_cb": (None, _P, _P),
    "SSL_CTX_sess_set_get_cb": (None, _P, _P),
    "SSL_CTX_sess_set_remove_cb": (None, _P, _P),
    "SSL_CTX_set_max_early_data": (_I, _P, _U32),
    "SSL_CTX_set0_tmp_dh_pkey": (_I, _P, _P),
    "SSL_CTX_get0_certificate": (_P, _P),
    "SSL_CONF_CTX_new": (_P,),
    "SSL_CONF_CTX_free": (None, _P),
    "SSL_CONF_CTX_set_flags": (_U, _P, _U),
    "SSL_CONF_CTX_set_ssl_ctx": (None, _P, _P),
    "SSL_CONF_CTX_finish": (_I, _P),
    "SSL_CONF_cmd": (_I, _P, _B, _B),
    "SSL_CONF_cmd_value_type": (_I, _P, _B),
    "SSL_new": (_P, _P),
    "SSL_free": (None, _P),
    "SSL_ctrl": (_L, _P, _I, _L, _P),
    "SSL_set_bio": (None, _P, _P, _P),
    "SSL_set_accept_state": (None, _P),
    "SSL_set_connect_state": (None, _P),
    "SSL_do_handshake": (_I, _P),
    "SSL_shutdown": (_I, _P),
    "SSL_set_shutdown": (None, _P, _I),
    "SSL_get_shutdown": (_I, _P),
    "SSL_get_error": (_I, _P, _I),
    "SSL_want": (_I, _P),
    "SSL_pending": (_I, _P),
    "SSL_has_pending": (_I, _P),
    "SSL_write_early_data": (_I, _P, _P, _S, _P),
    "SSL_read_early_data": (_I, _P, _P, _S, _P),
    "SSL_get_early_data_status": (_I, _P),
    "SSL_is_init_finished": (_I, _P),
    "SSL_set_options": (_U64, _P, _U64),
    "SSL_clear_options": (_U64, _P, _U64),
    "SSL_get_options": (_U64, _P),
    "SSL_get_SSL_CTX": (_P, _P),
    "SSL_set_SSL_CTX": (_P, _P, _P),
    "SSL_get_servername": (_B, _P, _I),
    "SSL_get_version": (_B, _P),
    "SSL_version": (_I, _P),
    "SSL_get_current_cipher": (_P, _P),
    "SSL_CIPHER_get_name": (_B, _P),
    "SSL_CIPHER_get_id": (_U32, _P),
    "SSL_CIPHER_find": (_P, _P, _B),
    "SSL_get_session": (_P, _P),
    "SSL_get1_session": (_P, _P),
    "SSL_set_session": (_I, _P, _P),
    "SSL_session_reused": (_I, _P),
    "SSL_get0_alpn_selected": (None, _P, _P, _P),
    "SSL_get1_peer_certificate": (_P, _P),
    "SSL_get_peer_cert_chain": (_P, _P),
    "SSL_get0_verified_chain": (_P, _P),
    "SSL_get_verify_result": (_L, _P),
    "SSL_get_verify_mode": (_I, _P),
    "SSL_set_verify_result": (None, _P, _L),
    "SSL_get_certificate": (_P, _P),
    "SSL_set_verify": (None, _P, _I, _P),
    "SSL_set_verify_depth": (None, _P, _I),
    "SSL_get0_param": (_P, _P),
    "SSL_set_hostflags": (None, _P, _U),
    "SSL_set1_host": (_I, _P, _B),
    "SSL_add1_host": (_I, _P, _B),
    "SSL_set_client_CA_list": (None, _P, _P),
    "SSL_certs_clear": (None, _P),
    "SSL_use_certificate": (_I, _P, _P),
    "SSL_use_PrivateKey": (_I, _P, _P),
    "SSL_get_client_random": (_S, _P, _P, _S),
    "SSL_get_server_random": (_S, _P, _P, _S),
    "SSL_client_hello_get0_legacy_version": (_U, _P),
    "SSL_client_hello_get0_session_id": (_S, _P, _P),
    "SSL_client_hello_get0_ciphers": (_S, _P, _P),
    "SSL_client_hello_get1_extensions_present": (_I, _P, _P, _P),
    "SSL_client_hello_get0_ext": (_I, _P, _U, _P, _P),
    "SSL_SESSION_free": (None, _P),
    "SSL_SESSION_up_ref": (_I, _P),
    "SSL_SESSION_get0_hostname": (_B, _P),
    "SSL_SESSION_get_id": (_P, _P, _P),
    "SSL_SESSION_get_timeout": (_L, _P),
    "SSL_SESSION_set_timeout": (_L, _P, _L),
    "SSL_SESSION_get_time": (_L, _P),
    "SSL_SESSION_is_resumable": (_I, _P),
    "SSL_SESSION_get_protocol_version": (_I, _P),
    "i2d_SSL_SESSION": (_I, _P, _P),
    "d2i_SSL_SESSION": (_P, _P, _P, _L),
    "SSL_get_ex_data_X509_STORE_CTX_idx": (_I,),
    "SSL_group_to_name": (_B, _P, _I),
    "SSL_set_cipher_list": (_I, _P, _B),
    "SSL_set_ciphersuites": (_I, _P, _B),
}  # fmt: skip

_CRYPTO: Final[dict[str, tuple[Any, ...]]] = {
    "OpenSSL_version_num": (_X,),
    "OpenSSL_version": (_B, _I),
    "CRYPTO_malloc": (_P, _S, _B, _I),
    "CRYPTO_free": (None, _P, _B, _I),
    "ERR_clear_error": (None,),
    "ERR_get_error": (_X,),
    "ERR_get_error_all": (_X, _P, _P, _P, _P, _P),
    "ERR_error_string_n": (None, _X, _P, _S),
    "ERR_reason_error_string": (_B, _X),
    "BIO_new": (_P, _P),
    "BIO_new_mem_buf": (_P, _P, _I),
    "BIO_s_mem": (_P,),
    "BIO_free": (_I, _P),
    "BIO_ctrl": (_L, _P, _I, _L, _P),
    "BIO_read": (_I, _P, _P, _I),
    "BIO_write": (_I, _P, _P, _I),
    "X509_free": (None, _P),
    "X509_up_ref": (_I, _P),
    "X509_cmp": (_I, _P, _P),
    "i2d_X509": (_I, _P, _P),
    "d2i_X509": (_P, _P, _P, _L),
    "PEM_read_bio_X509_AUX": (_P, _P, _P, _P, _P),
    "PEM_read_bio_X509": (_P, _P, _P, _P, _P),
    "PEM_read_bio_PrivateKey": (_P, _P, _P, _P, _P),
    "PEM_read_bio_Parameters": (_P, _P, _P),
    "PEM_read_bio_X509_CRL": (_P, _P, _P, _P, _P),
    "d2i_AutoPrivateKey": (_P, _P, _P, _L),
    "EVP_PKEY_free": (None, _P),
    "EVP_PKEY_up_ref": (_I, _P),
    "X509_get_subject_name": (_P, _P),
    "X509_get_issuer_name": (_P, _P),
    "X509_NAME_print_ex": (_I, _P, _P, _I, _X),
    "X509_NAME_oneline": (_P, _P, _P, _I),
    "X509_NAME_dup": (_P, _P),
    "X509_NAME_cmp": (_I, _P, _P),
    "X509_get_serialNumber": (_P, _P),
    "X509_get0_notBefore": (_P, _P),
    "X509_get0_notAfter": (_P, _P),
    "X509_check_host": (_I, _P, _B, _S, _U, _P),
    "X509_check_issued": (_I, _P, _P),
    "X509_get1_ocsp": (_P, _P),
    "X509_email_free": (None, _P),
    "X509_verify_cert_error_string": (_B, _L),
    "ASN1_TIME_print": (_I, _P, _P),
    "ASN1_TIME_to_tm": (_I, _P, _P),
    "i2a_ASN1_INTEGER": (_I, _P, _P),
    "OPENSSL_sk_num": (_I, _P),
    "OPENSSL_sk_value": (_P, _P, _I),
    "OPENSSL_sk_new_null": (_P,),
    "OPENSSL_sk_push": (_I, _P, _P),
    "OPENSSL_sk_free": (None, _P),
    "OPENSSL_sk_pop_free": (None, _P, _P),
    "X509_STORE_CTX_new": (_P,),
    "X509_STORE_CTX_free": (None, _P),
    "X509_STORE_CTX_init": (_I, _P, _P, _P, _P),
    "X509_STORE_CTX_get1_issuer": (_I, _P, _P, _P),
    "X509_STORE_CTX_get_error": (_I, _P),
    "X509_STORE_CTX_set_error": (None, _P, _I),
    "X509_STORE_CTX_get_error_depth": (_I, _P),
    "X509_STORE_CTX_get_ex_data": (_P, _P, _I),
    "X509_STORE_add_crl": (_I, _P, _P),
    "X509_STORE_add_cert": (_I, _P, _P),
    "X509_STORE_set_flags": (_I, _P, _X),
    "X509_STORE_load_file": (_I, _P, _B),
    "X509_STORE_new": (_P,),
    "X509_STORE_free": (None, _P),
    "X509_CRL_free": (None, _P),
    "X509_VERIFY_PARAM_set_flags": (_I, _P, _X),
    "X509_VERIFY_PARAM_set1_host": (_I, _P, _B, _S),
    "X509_VERIFY_PARAM_set1_ip_asc": (_I, _P, _B),
    "EVP_aes_128_cbc": (_P,),
    "EVP_aes_256_cbc": (_P,),
    "EVP_sha256": (_P,),
    "EVP_sha1": (_P,),
    "EVP_EncryptInit_ex": (_I, _P, _P, _P, _P, _P),
    "EVP_DecryptInit_ex": (_I, _P, _P, _P, _P, _P),
    "HMAC_Init_ex": (_I, _P, _P, _I, _P, _P),
    "OCSP_REQUEST_new": (_P,),
    "OCSP_REQUEST_free": (None, _P),
    "OCSP_CERTID_free": (None, _P),
    "OCSP_RESPONSE_free": (None, _P),
    "OCSP_BASICRESP_free": (None, _P),
    "OCSP_cert_to_id": (_P, _P, _P, _P),
    "OCSP_request_add0_id": (_P, _P, _P),
    "OCSP_response_status": (_I, _P),
    "OCSP_response_status_str": (_B, _L),
    "OCSP_response_get1_basic": (_P, _P),
    "OCSP_basic_verify": (_I, _P, _P, _P, _X),
    "OCSP_resp_find_status": (_I, _P, _P, _P, _P, _P, _P, _P),
    "OCSP_check_validity": (_I, _P, _P, _L, _L),
    "OCSP_cert_status_str": (_B, _L),
    "i2d_OCSP_REQUEST": (_I, _P, _P),
    "i2d_OCSP_CERTID": (_I, _P, _P),
    "d2i_OCSP_RESPONSE": (_P, _P, _P, _L),
    "X509_verify_cert": (_I, _P),
    "X509_STORE_CTX_get1_chain": (_P, _P),
    "OBJ_nid2sn": (_B, _I),
    "OBJ_txt2nid": (_I, _B),
}  # fmt: skip


class Library:
    """The functions by their own names, as attributes.

    ssl, crypto: the libraries, for declarations of one's own (`ssl["SSL_read"]` is a fresh function each time).
    """

    def __init__(self, ssl: ctypes.PyDLL, crypto: ctypes.PyDLL) -> None:
        self.ssl = ssl
        self.crypto = crypto
        for library, table in ((ssl, _SSL), (crypto, _CRYPTO)):
            for name, (result, *takes) in table.items():
                try:
                    function = library[name]
                except AttributeError:
                    continue
                function.restype = result
                function.argtypes = takes
                setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{name} is not in this OpenSSL")

    @property
    def version(self) -> str:
        """As `openssl version` says it."""
        text: bytes = self.OpenSSL_version(0)
        return text.decode()


def _mapped(name: str) -> str | None:
    """The file of a library that this process has loaded already."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            return next((line.split(maxsplit=5)[5].strip() for line in maps if f"/{name}." in line), None)
    except OSError:
        return None


@functools.cache
def find() -> Library | str:
    """The library, or why there is none."""
    found = []
    for name in ("ssl", "crypto"):
        path = _mapped(f"lib{name}") or ctypes.util.find_library(name)
        if path is None:
            return f"OpenSSL's shared library (lib{name}, version 3) is not installed"
        try:
            found.append(ctypes.PyDLL(path))
        except OSError as error:
            return f"OpenSSL's shared library cannot be used: {error}"
    library = Library(*found)
    if library.OpenSSL_version_num() < _LEAST:
        return f"{library.version} is too old: version 3 is needed"
    return library


def library() -> Library:
    """The library. errors.ConfError: there is none."""
    found = find()
    if isinstance(found, str):
        raise errors.ConfError(found, hint="install your system's OpenSSL 3 package (libssl3)")
    return found
