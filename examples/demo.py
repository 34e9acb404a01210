"""`make demo`: both headline jobs, live, on this machine, for about half a minute.

1. A receiver and a sender over HTTP: the sender first opens a connection for every request, then keeps
   one per flush thread.
2. A gateway whose Lua handler makes round trips over a unix socket, behind an `ngx.say` that is flushed,
   then behind one that is not.

Runs the configurations of this folder on free ports, in a temporary folder that is removed at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

HERE = pathlib.Path(__file__).resolve().parent
BIN = pathlib.Path(sys.executable).parent
ROUND_TRIPS = 30_000
ROUNDS = 7
RATE = 30_000  # events a second: more than a connection for each request can carry


def free_port() -> int:
    """A TCP port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Running:
    """A program of the demo: its log in the temporary folder, ended with the demo."""

    def __init__(self, folder: pathlib.Path, name: str, command: list[str], **env: str) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._out = self.log.open("wb")
        self.process = subprocess.Popen(
            command,
            stdout=self._out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "HEADRACE_RUN_DIR": str(folder / "run"), **env},
        )

    def figures(self) -> dict[str, Any]:
        """What `headrace stats` says of this program; {} while it is starting."""
        with contextlib.suppress(subprocess.SubprocessError, ValueError):
            done = subprocess.run(
                [BIN / "headrace", "stats", str(self.process.pid), "--json"],
                capture_output=True,
                check=True,
                timeout=5,
                env={**os.environ, "HEADRACE_RUN_DIR": str(self.log.parent / "run")},
            )
            total: dict[str, Any] = json.loads(done.stdout)["total"]
            return total
        return {}

    def check(self) -> None:
        """Raise RuntimeError with the last lines of the log when the program has ended."""
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.name} ended:\n{self.log.read_text(errors='replace')[-1500:]}")

    def stop(self) -> None:
        """Ask it to end, then not to flush what it still holds; kill it after ten seconds."""
        for patience in (1, 10):
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(patience)
                break
        else:
            self.process.kill()
            self.process.wait()
        self._out.close()


@contextlib.contextmanager
def running(folder: pathlib.Path, name: str, command: list[str], **env: str) -> Iterator[Running]:
    """A program for the time of a block."""
    program = Running(folder, name, command, **env)
    try:
        yield program
    finally:
        program.stop()


def wait_open(address: tuple[str, int] | str, program: Running) -> None:
    """Wait until somebody listens; RuntimeError after ten seconds."""
    for _ in range(200):
        program.check()
        with socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET) as probe:
            if probe.connect_ex(address) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"{program.name} does not listen on {address}")


def of_type(figures: dict[str, Any], kind: str) -> dict[str, Any]:
    """The figures of the first plugin whose generated id begins with `kind`."""
    plugins = figures.get("pipeline", {}).get("plugins", {})
    found: dict[str, Any] = next((value for name, value in plugins.items() if name.startswith(kind)), {})
    return found


def board(title: str, rows: list[tuple[str, str]]) -> Table:
    """A small table of live figures."""
    table = Table(title=title, title_justify="left", show_header=False, min_width=58)
    for name, value in rows:
        table.add_row(name, value)
    return table


def send(folder: pathlib.Path, live: Live, endpoint: str, *, reuse: bool, seconds: float) -> dict[str, float]:
    """Run the sender for some seconds; events a second and connections, as it went."""
    name = "sender"
    command = [str(BIN / "headrace"), "run", str(HERE / "sender.conf")]
    best = 0.0
    seen: dict[str, Any] = {}
    with running(folder, name, command, ENDPOINT=endpoint, RATE=str(RATE), REUSE=str(reuse).lower()) as sender:
        start = before_time = time.monotonic()
        before = 0
        while time.monotonic() - start < seconds:
            time.sleep(0.5)
            sender.check()
            seen = of_type(sender.figures(), "output_http") or seen
            now = time.monotonic()
            delivered = seen.get("delivered", 0)
            rate, before, before_time = (delivered - before) / (now - before_time), delivered, now
            best = max(best, rate)
            connections = seen.get("connections", {})
            live.update(
                board(
                    f"sender, reuse_connections {str(reuse).lower()}",
                    [
                        ("events delivered a second", f"{rate:,.0f}"),
                        ("events delivered", f"{delivered:,}"),
                        ("connections opened", f"{connections.get('opened', 0):,}"),
                        ("connections reused", f"{connections.get('reused', 0):,}"),
                    ],
                ),
                refresh=True,
            )
    connections = seen.get("connections", {})
    return {"rate": best, "opened": connections.get("opened", 0), "reused": connections.get("reused", 0)}


def ask(port: int, *, flush: bool) -> float:
    """Round trips a second of one request, as its handler measured them."""
    url = f"http://127.0.0.1:{port}/?n={ROUND_TRIPS}&flush={int(flush)}"
    with urllib.request.urlopen(url, timeout=60) as reply:
        text = reply.read().decode()
    match = re.search(r"seconds: ([\d.e-]+)", text)
    if not match:
        raise RuntimeError(f"the gateway answered {text!r}")
    return ROUND_TRIPS / max(float(match[1]), 0.001)


def gateway(folder: pathlib.Path, live: Live) -> dict[str, float]:
    """The round trips behind a flushed and an unflushed `ngx.say`; the longest chain of a cosocket."""
    port, path = free_port(), str(folder / "echo.sock")
    text = (HERE / "gateway" / "nginx.conf").read_text()
    conf = folder / "nginx.conf"
    conf.write_text(text.replace("50000", f"127.0.0.1:{port}").replace("/tmp/headrace-echo.sock", path))
    rates: dict[bool, list[float]] = {True: [], False: []}
    chain = 0
    with (
        running(folder, "echo", [sys.executable, str(HERE / "gateway" / "echo.py"), path]) as echo,
        running(folder, "gateway", [str(BIN / "headrace"), "run", str(conf)]) as server,
    ):
        wait_open(path, echo)
        wait_open(("127.0.0.1", port), server)
        for _ in range(ROUNDS):
            for flush in (True, False):
                rates[flush].append(ask(port, flush=flush))
                chain = max(chain, server.figures().get("lua", {}).get("chain_peak", 0))
                rows = [
                    (f"round trips a second, {'flushed' if word else 'unflushed'}", f"{values[-1]:,.0f}")
                    for word, values in rates.items()
                    if values
                ]
                live.update(
                    board("gateway, cosocket over a unix socket", [*rows, ("longest chain of a cosocket", str(chain))]),
                    refresh=True,
                )
    return {
        "flushed": statistics.median(rates[True]),
        "unflushed": statistics.median(rates[False]),
        "ratio": statistics.median([b / a for a, b in zip(rates[True], rates[False], strict=True)]),
        "chain": chain,
    }


def summary(off: dict[str, float], on: dict[str, float], lua: dict[str, float]) -> Table:
    """The comparison that the demo is about."""
    table = Table(title="What it comes to", title_justify="left")
    for column in ("", "before", "after", "ratio"):
        table.add_column(column, justify="left" if not column else "right")
    table.add_row("reuse_connections", "false", "true", "")
    table.add_row(
        "  events a second", f"{off['rate']:,.0f}", f"{on['rate']:,.0f}", f"{on['rate'] / max(off['rate'], 1):.1f}x"
    )
    table.add_row("  connections opened", f"{off['opened']:,.0f}", f"{on['opened']:,.0f}", "")
    table.add_section()
    table.add_row("ngx.say before the round trips", "flushed", "unflushed", "")
    ratio = lua["ratio"]
    table.add_row("  round trips a second", f"{lua['flushed']:,.0f}", f"{lua['unflushed']:,.0f}", f"{ratio:.2f}x")
    table.add_row("  longest chain of a cosocket", "", f"{lua['chain']:.0f}", "")
    return table


def gap(console: Console) -> None:
    """End the line of a live table where nothing is redrawn (a pipe, a file)."""
    if not console.is_terminal:
        console.print()


def main() -> int:
    """Run the demo; 1 with the reason when a part of it failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=7, help="how long each sender runs (default: 7)")
    args = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="headrace-demo-") as name:
        folder = pathlib.Path(name)
        port = free_port()
        results = []
        try:
            receive = [str(BIN / "headrace"), "run", str(HERE / "receiver.conf")]
            for reuse in (False, True):
                with running(folder, "receiver", receive, PORT=str(port)) as receiver:
                    wait_open(("127.0.0.1", port), receiver)
                    with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
                        endpoint = f"http://localhost:{port}"
                        results.append(send(folder, live, endpoint, reuse=reuse, seconds=args.seconds))
                    gap(console)
            with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
                lua = gateway(folder, live)
            gap(console)
        except (RuntimeError, OSError) as error:
            console.print(f"[red]the demo failed:[/red] {error}")
            return 1
        console.print(summary(results[0], results[1], lua))
    console.print("The same with your own files: headrace check FILE..., headrace run FILE..., headrace stats")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
