"""Every function of the Lua API called in every phase: the configuration, the client, and what the calls said.

`PHASES` are the columns, phase_probes.lua has the calls, phases.json what nginx with its Lua module (and, for names that
it does not have, the documentation) says of each: "" where it may be called, or the error.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
import time
from pathlib import Path

import trustme

HERE = Path(__file__).parent
DATA = HERE / "phases.json"
PROBES = HERE / "phase_probes.lua"

REQUEST = ("set", "server_rewrite", "rewrite", "access", "content", "header_filter", "body_filter", "log", "balancer")
HANDSHAKE = ("ssl_client_hello", "ssl_certificate", "ssl_session_fetch", "ssl_session_store")
PHASES = ("init", "init_worker", *REQUEST, "timer", *HANDSHAKE, "exit_worker")

REFUSALS = re.compile(
    "API disabled|no upstream found|no co ctx found|no session|session in lua context|session id len|bad context|"
    "not supported in the current|yield across|outside the scope|unsupported context|no socket ctx found"
)
"""What the texts of errors have in common that are about the phase and not about what was asked for."""

PROBE = "probe('{phase}', tonumber(ngx.var.arg_i))"


def configuration(folder: Path, report: Path, skipped: str = "") -> tuple[str, str]:
    """What goes into `server` and what into `http`."""
    code = {phase: PROBE.format(phase=phase) for phase in REQUEST}
    server = f"""
        set $kept 0; lua_check_client_abort on;
        server_rewrite_by_lua_block {{ if ngx.var.uri == "/server_rewrite" then {code["server_rewrite"]} end }}
        location = /count {{ content_by_lua_block {{ ngx.print(PROBE_COUNT) }} }}
        location = /timers {{ content_by_lua_block {{ probe_in_timers() }} }}
        location = /sub {{ return 200 sub; }}
        location = /other {{ return 200 other; }}
        location = /server_rewrite {{ return 200 x; }}
        location = /set {{ set_by_lua_block $x {{ {code["set"]} return "" }} return 200 x; }}
        location = /content {{ content_by_lua_block {{ {code["content"]} }} }}
        location = /balancer {{ proxy_pass http://balanced; }}
    """
    for phase in ("rewrite", "access", "header_filter", "body_filter", "log"):
        server += f"location = /{phase} {{ {phase}_by_lua_block {{ {code[phase]} }} echo x; }}\n"
    http = f"""
        lua_shared_dict d 1m;
        lua_max_pending_timers 4096; lua_max_running_timers 4096;
        init_by_lua_block {{ REPORT = "{report}" SKIPPED = "{skipped}" dofile("{PROBES}") probe_all("init") }}
        init_worker_by_lua_block {{ probe_all("init_worker") }}
        exit_worker_by_lua_block {{ probe_all("exit_worker") }}
        upstream balanced {{ server 0.0.0.1; balancer_by_lua_block {{ {code["balancer"]} ngx.exit(500) }} }}
    """
    tls = f"ssl_certificate {folder}/plain.crt; ssl_certificate_key {folder}/plain.key; ssl_protocols TLSv1.2;"
    session = "".join(
        f'ssl_{kind}_by_lua_block {{ probe_next("ssl_{kind}") }}\n' for kind in ("session_fetch", "session_store")
    )
    http += session + "ssl_session_tickets off; ssl_session_cache none;"
    for phase in HANDSHAKE:
        script = "" if "session" in phase else f'{phase}_by_lua_block {{ probe_next("{phase}") }}'
        http += f"server {{ listen unix:{folder}/{phase} ssl; {tls} {script} location / {{ return 200 x; }} }}\n"
    return server, http


def drive(path: str, folder: Path) -> None:
    """Be the client: each probe in each phase, in a request or a handshake of its own."""
    count = int(ask(path, "/count").rpartition(b"\r\n\r\n")[2])
    for phase in REQUEST:
        for number in range(1, count + 1):
            ask(path, f"/{phase}?i={number}")
    for phase in HANDSHAKE:
        session = None
        for _ in range(count + 1):
            session = shake(f"{folder}/{phase}", session) or session
    ask(path, "/timers")


def ask(path: str, target: str) -> bytes:
    """A whole answer."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(10)
        sock.connect(path)
        sock.sendall(f"GET {target} HTTP/1.0\r\nHost: a\r\n\r\n".encode())
        raw = b""
        with contextlib.suppress(ConnectionError):
            while data := sock.recv(65536):
                raw += data
        return raw


def shake(path: str, session: ssl.SSLSession | None) -> ssl.SSLSession | None:
    """One handshake, that asks for this session."""
    context = _context()
    with socket.socket(socket.AF_UNIX) as sock, contextlib.suppress(OSError):
        sock.settimeout(10)
        sock.connect(path)
        with context.wrap_socket(sock, server_hostname="plain.test", session=session) as tls:
            tls.sendall(b"GET / HTTP/1.0\r\n\r\n")
            while tls.recv(65536):
                pass
            return tls.session
    return None


_made: list[ssl.SSLContext] = []


def _context() -> ssl.SSLContext:
    if not _made:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_TICKET
        _made.append(context)
    return _made[0]


def read(report: Path) -> dict[str, dict[str, str]]:
    """Phase -> name -> "" or the refusal. "absent" where there is no such function."""
    found: dict[str, dict[str, str]] = {phase: {} for phase in PHASES}
    done: set[tuple[str, str]] = set()
    for line in report.read_text(errors="replace").splitlines():
        phase, name, step, *rest = line.split("\t")
        if (phase, name) in done:
            continue
        found[phase].setdefault(name, "")
        if step == "returns":
            done.add((phase, name))
            found[phase][name] = refusal(rest[0] if rest else "")
    return found


def refusal(text: str) -> str:
    """The error when it is about the phase."""
    if ("attempt to call" in text and "nil value" in text) or re.match("module '.*' not found", text):
        return "absent"
    if re.search("no (request|status)|request object not found", text):
        return "no request found"  # in some words or others
    return text if REFUSALS.search(text) else ""


def authority(folder: Path) -> None:
    """plain.crt and plain.key in this folder."""
    one = trustme.CA().issue_cert("plain.test")
    one.private_key_pem.write_to_path(str(folder / "plain.key"))
    (folder / "plain.crt").write_bytes(one.cert_chain_pems[0].bytes())


def skipped() -> str:
    """The calls that nginx does not survive, for `configuration`."""
    return "|" + "".join(
        f"{phase} {name}|" for phase, names in known().items() for name in names if names[name] == "crash"
    )


def settled(report: Path, phase: str, deadline: float = 10) -> None:
    """Wait until all the calls of this phase are in the report, and returned."""
    until = time.monotonic() + deadline
    while time.monotonic() < until:
        lines = [line for line in report.read_text().splitlines() if line.startswith(phase + "\t")]
        names = {line.split("\t")[1] for line in lines}
        if names and len(lines) >= 2 * len(names) - 1:
            return
        time.sleep(0.05)


DIFFERENCES = {
    ("init", "ngx.arg[1]="): "refused, nginx has other words for it",
    ("init", "ngx.timer.running_count"): "a number there too",
    ("init", "ngx.timer.pending_count"): "a number there too",
    ("init", "ndk.set_var.X"): "the functions of set-misc need no request",
    ("init", "ngx.pipe.spawn"): "Debian's nginx lacks the patch; refused as documented",
    ("init_worker", "ngx.worker.pids"): "as in 0.10.26",
    ("server_rewrite", "ngx.location.capture"): "subrequests work there",
    ("server_rewrite", "ngx.location.capture_multi"): "subrequests work there",
    ("ssl_client_hello", "ngx.ssl.session.get_session_id"): "the identity that the client sent",
    ("*", "ngx.req.start_time"): "refused without a request, as documented",
    ("*", "ngx.run_worker_thread"): "refused outside rewrite, access and content, as documented",
    ("*", "coroutine.create"): "coroutines work in every phase",
    ("*", "coroutine.resume"): "coroutines work in every phase",
    ("*", "coroutine.yield"): "coroutines work in every phase",
    ("*", "coroutine.status"): "coroutines work in every phase",
}
"""What is not as in nginx, and why."""


def differences(found: dict[str, dict[str, str]]) -> list[str]:
    """What differs from the data file and is not meant to; and what is meant to and does not."""
    wrong, met = [], set()
    for phase, names in known().items():
        for name, expected in names.items():
            got = found[phase].get(name, "not called")
            if got == expected or (expected == "crash" and got):
                continue
            key = next((key for key in ((phase, name), ("*", name)) if key in DIFFERENCES), None)
            if key is None:
                wrong.append(f"{phase}, {name}: {got!r}, in nginx {expected!r}")
            met.add(key)
    return wrong + [f"{key} is as in nginx" for key in DIFFERENCES.keys() - met]


def known() -> dict[str, dict[str, str]]:
    """The data file."""
    data = json.loads(DATA.read_text())
    found = {phase: dict.fromkeys(data["calls"], "") for phase in PHASES}
    for phase, refused in data["refused"].items():
        for words, names in refused.items():
            found[phase].update(dict.fromkeys(names, words))
    return found


def keep(found: dict[str, dict[str, str]]) -> None:
    """Write the data file."""
    refused: dict[str, dict[str, list[str]]] = {}
    for phase, names in found.items():
        for name, words in sorted(names.items()):
            if words:
                refused.setdefault(phase, {}).setdefault(words, []).append(name)
    data = {"calls": sorted(found["init"]), "refused": refused}
    DATA.write_text(json.dumps(data, indent=1) + "\n")
