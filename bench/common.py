"""What every benchmark shares: programs under test, their CPU and memory, ratios with their spread.

All figures come from the operating system (/proc) and from the load generator, never from the
program under test alone. Programs run in temporary folders, on free ports of 127.0.0.1, pinned to
a core where the job says so, and are always stopped.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

BIN = pathlib.Path(sys.executable).parent
TICK = os.sysconf("SC_CLK_TCK")
USER = "user root;" if os.geteuid() == 0 else ""  # the temporary folders are nobody else's
NGINX_MODULES = pathlib.Path("/usr/lib/nginx/modules")
HERE_RELAY = pathlib.Path(__file__).parent / "relay.py"


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def children(pid: int) -> list[int]:
    """The process and all its descendants."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for task in pathlib.Path(f"/proc/{one}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time of a process tree, threads included."""
    total = 0
    for one in children(pid):
        with contextlib.suppress(OSError):
            fields = pathlib.Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / TICK


def scheduled_seconds(pid: int) -> float:
    """Seconds on a processor of a process tree, of all threads, to the nanosecond, as the scheduler counts them."""
    total = 0
    for one in children(pid):
        for task in pathlib.Path(f"/proc/{one}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def memory_bytes(pid: int) -> list[int]:
    """Resident bytes of each process of a tree, the largest first."""
    sizes = []
    for one in children(pid):
        with contextlib.suppress(OSError):
            match = re.search(r"VmRSS:\s+(\d+) kB", pathlib.Path(f"/proc/{one}/status").read_text())
            if match:
                sizes.append(int(match[1]) * 1024)
    return sorted(sizes, reverse=True)


class Program:
    """A program under test: started on a core, its tree measured, stopped whatever happens."""

    def __init__(
        self, command: Sequence[str], *, core: int | None = None, log: pathlib.Path, env: dict[str, str] | None = None
    ) -> None:
        pin = ["taskset", "-c", str(core)] if core is not None else []
        self.log = log
        self._out = log.open("ab")
        self.process = subprocess.Popen(
            [*pin, *command],
            stdout=self._out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
        self.pid = self.process.pid

    def cpu(self) -> float:
        """CPU seconds used so far by the whole tree."""
        return cpu_seconds(self.pid)

    def memory(self) -> list[int]:
        """Resident bytes of each process."""
        return memory_bytes(self.pid)

    def stop(self) -> None:
        """End it: TERM, then KILL after ten seconds."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()
        self._out.close()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def wait_for(port: int | str, program: Program, seconds: float = 20.0) -> float:
    """Wait until a port (or the path of a unix socket) accepts; give the seconds it took.

    Raises RuntimeError with the program's last lines when it does not.
    """
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        family = socket.AF_UNIX if isinstance(port, str) else socket.AF_INET
        with socket.socket(family) as probe:
            if probe.connect_ex(port if isinstance(port, str) else ("127.0.0.1", port)) == 0:
                return time.monotonic() - start
        if program.process.poll() is not None:
            break
        time.sleep(0.01)
    tail = program.log.read_text(errors="replace")[-2000:]
    raise RuntimeError(f"{program.process.args} did not open {port}:\n{tail}")


def nginx_command(prefix: pathlib.Path, conf: pathlib.Path) -> list[str] | None:
    """The command of nginx with its Lua module, or None where it is not installed."""
    binary = shutil.which("nginx") or "/usr/sbin/nginx"
    if not pathlib.Path(binary).exists() or not (NGINX_MODULES / "ngx_http_lua_module.so").exists():
        return None
    (prefix / "logs").mkdir(exist_ok=True)
    modules = "".join(
        f"load_module {NGINX_MODULES / name};" for name in ("ndk_http_module.so", "ngx_http_lua_module.so")
    )
    return [binary, "-p", str(prefix), "-c", str(conf), "-e", "/dev/stderr", "-g", f"daemon off; {USER} {modules}"]


def headrace_nginx_command(prefix: pathlib.Path, conf: pathlib.Path) -> list[str]:
    """The same for headrace, through its drop-in command line."""
    (prefix / "logs").mkdir(exist_ok=True)
    return [
        str(BIN / "headrace-nginx"),
        "-p",
        str(prefix),
        "-c",
        str(conf),
        "-e",
        "/dev/stderr",
        "-g",
        f"daemon off; {USER}",
    ]


def fluentd_command(conf: pathlib.Path) -> list[str] | None:
    """Fluentd's command, where the environment gives it."""
    command = os.environ.get("HEADRACE_PEER_FLUENTD")
    return [*command.split(), "-c", str(conf)] if command else None


def fluent_bit_command(conf: pathlib.Path) -> list[str] | None:
    """Fluent Bit's command, where the environment gives it."""
    command = os.environ.get("HEADRACE_PEER_FLUENT_BIT")
    return [*command.split(), "-c", str(conf)] if command else None


def pipeline_command(name: str, conf: pathlib.Path) -> list[str] | None:
    """The command of headrace or of a peer that runs pipelines; None where the peer is not given."""
    if name == "fluentd":
        return fluentd_command(conf)
    if name == "fluent_bit":
        return fluent_bit_command(conf)
    return [str(BIN / "headrace-fluentd"), "-c", str(conf)]


PIPELINES = ("headrace", "fluentd", "fluent_bit")


def against(rows: dict[str, dict[str, list[float]]], peer: str) -> dict[str, dict[str, float]]:
    """Ratios of headrace to a peer by job; {} where the peer did not run."""
    return {job: ratios(row["headrace"], row[peer]) for job, row in rows.items() if peer in row}


def compile_c(source: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Compile one C file with the system's compiler."""
    target = folder / source.stem
    subprocess.run(["cc", "-O2", "-Wall", "-o", str(target), str(source)], check=True)
    return target


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, minimum and maximum."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "runs": len(values)}


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """Run by run: ours over theirs, so that a drift of the machine cancels out."""
    return spread([a / b for a, b in zip(ours, theirs, strict=True)])


@contextlib.contextmanager
def wrk_script(folder: pathlib.Path, body: str, content_type: str) -> Iterator[pathlib.Path]:
    """A Lua file that makes wrk POST one body."""
    script = folder / "post.lua"
    quoted = body.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    script.write_text(f"wrk.method = 'POST'\nwrk.body = '{quoted}'\nwrk.headers['Content-Type'] = '{content_type}'\n")
    yield script


def wrk(
    url: str, *, connections: int, seconds: float, core: int | None = None, script: pathlib.Path | None = None
) -> dict[str, float]:
    """Run wrk with one thread; give requests, seconds, requests a second, errors."""
    pin = ["taskset", "-c", str(core)] if core is not None else []
    command = [*pin, "wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", *(["-s", str(script)] if script else []), url]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    done = re.search(r"(\d+) requests in ([\d.]+)(ms|s|m)", text)
    assert done, text
    unit = {"ms": 0.001, "s": 1.0, "m": 60.0}[done[3]]
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    sockets = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
    requests, duration = int(done[1]), float(done[2]) * unit
    return {
        "requests": requests,
        "seconds": duration,
        "rate": requests / duration,
        "errors": (int(bad[1]) if bad else 0) + (sum(map(int, sockets.groups())) if sockets else 0),
    }
