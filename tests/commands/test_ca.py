"""`headrace ca`: files that OpenSSL takes, and a handshake between what it made."""

import io
import os
import ssl
import stat

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from headrace.commands.main import main

FAST = ("--key-length", "1024")


@pytest.fixture(autouse=True)
def small_keys(monkeypatch):
    """Keys of 1,024 bits are quick, and too weak for OpenSSL's defaults."""
    monkeypatch.delenv("HEADRACE_CA_PASSPHRASE", raising=False)


def cert_of(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_the_same_files_and_words_as_fluent_ca_generate(tmp_path, capsys):
    folder = tmp_path / "ca"
    assert main(["ca", str(folder), "secret", "--country", "jp", "--state", "T", "--locality", "C", *FAST]) == 0
    assert capsys.readouterr().out == (
        "successfully generated: ca_key.pem, ca_cert.pem\ncopy and use ca_cert.pem to client(out_forward)\n"
    )
    assert sorted(path.name for path in folder.iterdir()) == ["ca_cert.pem", "ca_key.pem"]
    cert = cert_of(folder / "ca_cert.pem")
    assert cert.subject.rfc4514_string() == "CN=Fluentd Forward CA,L=C,ST=T,C=JP"
    assert cert.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    key = (folder / "ca_key.pem").read_bytes()
    assert b"ENCRYPTED" in key
    serialization.load_pem_private_key(key, b"secret")
    assert stat.S_IMODE(os.stat(folder / "ca_key.pem").st_mode) == 0o600


def test_server_and_client_meet(tmp_path, capsys):
    folder = str(tmp_path)
    assert main(["ca", folder, "secret", "--server", "localhost", "--client", "edge 7"]) == 0
    told = capsys.readouterr().out
    assert f"cert_path {tmp_path}/localhost_cert.pem" in told
    assert f"tls_client_cert_path {tmp_path}/edge_7_cert.pem" in told
    assert "secret" not in told
    shake(tmp_path, "localhost", "localhost", "edge_7")
    shake(tmp_path, "127.0.0.1", "localhost", "edge_7")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(tmp_path, "elsewhere", "localhost", "edge_7")


def shake(folder, name, server, client):
    """A handshake in memory in which both sides verify."""
    left, right = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    right.verify_mode = ssl.CERT_REQUIRED
    for context, stem in ((left, client), (right, server)):
        context.load_verify_locations(folder / "ca_cert.pem")
        context.load_cert_chain(folder / f"{stem}_cert.pem", folder / f"{stem}_key.pem")
    one, two = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [left.wrap_bio(one, two, server_hostname=name), right.wrap_bio(two, one, server_side=True)]
    for _ in range(10):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return sides[0].version()


def test_a_ca_that_is_there_signs_and_nothing_is_overwritten(tmp_path, capsys):
    folder = str(tmp_path)
    assert main(["ca", folder, "secret", *FAST]) == 0
    before = (tmp_path / "ca_cert.pem").read_bytes()
    assert main(["ca", folder, "secret", *FAST]) == 1
    assert "exists (--server and --client make certificates with it)" in capsys.readouterr().err
    assert main(["ca", folder, "secret", "--server", "a.example,b.example,10.0.0.1", *FAST]) == 0
    assert (tmp_path / "ca_cert.pem").read_bytes() == before
    names = cert_of(tmp_path / "a.example_cert.pem").extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert names.value.get_values_for_type(x509.DNSName) == ["a.example", "b.example"]
    assert [str(one) for one in names.value.get_values_for_type(x509.IPAddress)] == ["10.0.0.1"]
    capsys.readouterr()
    assert main(["ca", folder, "secret", "--server", "a.example", *FAST]) == 1
    assert "a.example_key.pem cannot be written: File exists" in capsys.readouterr().err
    assert main(["ca", folder, "wrong", "--server", "c.example", *FAST]) == 1
    assert "ca_key.pem" in capsys.readouterr().err


def test_the_passphrase_from_elsewhere_or_none(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe\n"))
    assert main(["ca", str(tmp_path / "a"), "-", *FAST]) == 0
    serialization.load_pem_private_key((tmp_path / "a" / "ca_key.pem").read_bytes(), b"from a pipe")
    capsys.readouterr()
    assert main(["ca", str(tmp_path / "b"), *FAST]) == 0
    assert "has no passphrase" in capsys.readouterr().out
    monkeypatch.setenv("HEADRACE_CA_PASSPHRASE", "hush")
    assert main(["ca", str(tmp_path / "c"), *FAST]) == 0
    serialization.load_pem_private_key((tmp_path / "c" / "ca_key.pem").read_bytes(), b"hush")


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--country", "Japan"], "subject is not possible"),
        (["--days", "0"], "at least 1"),
        (["--key-length", "7"], "cannot be made"),
        (["--client", ".."], "cannot be the name of a file"),
        (["--client", "ca"], "cannot be the name of a file"),
    ],
)
def test_what_cannot_be_is_told_without_a_traceback(tmp_path, capsys, flags, told):
    assert main(["ca", str(tmp_path), "x", *FAST, *flags]) == 1
    assert told in capsys.readouterr().err
