"""`headrace ca`: a private CA for the forward plugins, and the certificates of servers and clients that it signs.

    headrace ca DIR PASSPHRASE                       a CA, as fluent-ca-generate makes it
    headrace ca DIR PASSPHRASE --server a.example    and a certificate for in_forward on that host
    headrace ca DIR PASSPHRASE --client edge-7       and one for out_forward (client_cert_auth)

A CA that is there already signs; it is not made anew. Nothing that exists is overwritten. Keys are readable by
their owner only.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import sys
from pathlib import Path
from typing import Final

from headrace.errors import ConfError
from headrace.plugins.certificates import (
    INSTALL_HINT,
    Authority,
    Wanted,
    cryptography_installed,
    make,
    make_authority,
)

VARIABLE: Final = "HEADRACE_CA_PASSPHRASE"
"""Where the passphrase may stand instead of the command line, which everybody on the machine can read."""
NAME: Final = "Fluentd Forward CA"
YEARS: Final = 5

_DAY: Final = 86400.0
_FILE: Final = re.compile(r"[^A-Za-z0-9._-]")


def add(command: argparse.ArgumentParser) -> None:
    """Declare the flags; those of fluent-ca-generate among them."""
    add = command.add_argument
    add("folder", metavar="DIR", help="where the files are, or are to be")
    add(
        "passphrase",
        nargs="?",
        metavar="PASSPHRASE",
        help=f"of the CA's key; -: the first line of standard input; default: ${VARIABLE}, else the key is plain",
    )
    add("--server", action="append", default=[], metavar="HOST[,HOST...]", help="a certificate for a receiving host")
    add("--client", action="append", default=[], metavar="NAME", help="a certificate for a sender")
    add("--key-length", type=int, default=2048, metavar="BITS", help="of RSA keys (2048)")
    add("--country", default="US", help="in the certificates (US)")
    add("--state", default="CA", help="likewise (CA)")
    add("--locality", default="Mountain View", help="likewise (Mountain View)")
    add("--common-name", default=NAME, help=f"the CA's name ({NAME})")
    add("--days", type=int, default=YEARS * 365, help=f"for which certificates are valid ({YEARS * 365})")


def run(flags: argparse.Namespace) -> int:
    """Make what is asked for; the exit status. Raises ConfError."""
    if not cryptography_installed():
        raise ConfError("making certificates needs cryptography, which is not installed", hint=INSTALL_HINT)
    if flags.days < 1:
        raise ConfError("--days must be at least 1")
    folder = Path(flags.folder)
    passphrase = _passphrase(flags.passphrase)
    cert_path, key_path = folder / "ca_cert.pem", folder / "ca_key.pem"
    leaves = [(True, names.split(",")) for names in flags.server] + [(False, [name]) for name in flags.client]
    for _server, names in leaves:
        _paths(folder, names[0])  # a name that cannot be is told before anything is made
    made: list[Path] = []
    if not (cert_path.exists() and key_path.exists()):
        made += _ca(flags, cert_path, key_path, passphrase)
    elif not leaves:
        raise ConfError(f"{cert_path} exists", hint="--server and --client make certificates with it")
    authority = Authority(str(cert_path), str(key_path), passphrase)
    for server, names in leaves:
        made += _leaf(flags, folder, names, authority, server=server)
    out = sys.stdout.write
    out(f"successfully generated: {', '.join(path.name for path in made)}\n")
    out("copy and use ca_cert.pem to client(out_forward)\n")
    if passphrase is None and made[0] == key_path:
        out(f"the CA's key has no passphrase: keep {key_path} where nobody else reads it\n")
    for server, names in leaves:
        out(_settings(folder, names[0], server=server))
    return 0


def _passphrase(given: str | None) -> str | None:
    if given == "-":
        given = sys.stdin.readline().rstrip("\n")
    return given or os.environ.get(VARIABLE) or None


def _wanted(
    flags: argparse.Namespace, common_name: str, names: tuple[str, ...] = (), *, client: bool = False
) -> Wanted:
    country, seconds = flags.country.upper(), flags.days * _DAY
    place = (country, flags.state, flags.locality)
    return Wanted(flags.key_length, *place, common_name, seconds, "sha256", names, client)


def _ca(flags: argparse.Namespace, cert_path: Path, key_path: Path, passphrase: str | None) -> list[Path]:
    cert, key = make_authority(_wanted(flags, flags.common_name), passphrase)
    cert_path.parent.mkdir(parents=True, exist_ok=True)
    _write(key_path, key, 0o600)
    _write(cert_path, cert, 0o644)
    return [key_path, cert_path]


def _leaf(
    flags: argparse.Namespace, folder: Path, names: list[str], authority: Authority, *, server: bool
) -> list[Path]:
    first = names[0]
    more = tuple(names[1:])
    if server and first in {"localhost", socket.gethostname()}:
        more += ("localhost", "127.0.0.1", "::1")
    cert, key = make(_wanted(flags, first, more, client=not server), authority)
    cert_path, key_path = _paths(folder, first)
    _write(key_path, key, 0o600)
    _write(cert_path, cert, 0o644)
    return [key_path, cert_path]


def _paths(folder: Path, name: str) -> tuple[Path, Path]:
    stem = _FILE.sub("_", name)
    if stem in {"", ".", "..", "ca"}:
        raise ConfError(f'"{name}" cannot be the name of a file')
    return folder / f"{stem}_cert.pem", folder / f"{stem}_key.pem"


def _write(path: Path, data: bytes, mode: int) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except OSError as error:
        raise ConfError(f"{path} cannot be written: {error.strerror}") from error
    with open(fd, "wb") as file:
        file.write(data)


def _settings(folder: Path, name: str, *, server: bool) -> str:
    """What to write into the configuration."""
    cert, key = _paths(folder.absolute(), name)
    ca = folder.absolute() / "ca_cert.pem"
    if server:
        return (
            f"\nin_forward on {name}:\n  <transport tls>\n    cert_path {cert}\n    private_key_path {key}\n"
            f"    # clients need a certificate too:\n    # client_cert_auth true\n    # ca_path {ca}\n  </transport>\n"
        )
    return (
        f"\nout_forward on {name}:\n  transport tls\n  tls_cert_path {ca}\n  tls_client_cert_path {cert}\n"
        f"  tls_client_private_key_path {key}\n"
    )
