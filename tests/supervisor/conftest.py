"""The small program as a running process, and its clients."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.testing.process import HeadraceProcess, Launcher, wait_until

PROGRAM = Path(__file__).with_name("small_program.py")


class Small:
    """A master with the small program; `configure` rewrites its configuration, `ask` talks to it."""

    def __init__(self, prefix: Path, port: int, launcher: Launcher) -> None:
        self.port = port
        self.path = prefix / "small.json"
        self._launcher = launcher
        self.process: HeadraceProcess

    def configure(self, text: str = "one", **more: Any) -> None:
        self.path.write_text(json.dumps({"text": text, "port": self.port, **more}))

    def start(self, text: str = "one", *, ready: bool = True, **more: Any) -> HeadraceProcess:
        self.configure(text, **more)
        self.process = self._launcher.start([sys.executable, str(PROGRAM), str(self.path)])
        if ready:
            wait_until(self.answers, "an answer")
        return self.process

    def answers(self) -> bool:
        try:
            self.ask()
        except OSError:
            return False
        return True

    def connect(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def ask(self, word: str = "who") -> tuple[int, int, str]:
        """(pid, generation, text) of the worker that answered."""
        with self.connect() as sock:
            sock.sendall(f"{word}\n".encode())
            answer = sock.makefile().readline()
        if not answer:
            raise ConnectionError("no answer")
        pid, generation, text = answer.split()
        return int(pid), int(generation), text

    def workers(self) -> set[int]:
        """Pids of the workers that serve figures."""
        return {int(path.stem.rpartition("-")[2]) for path in self.path.parent.glob("run/*/worker-*.sock")}


@pytest.fixture
def small(prefix: Path, port: int, headrace: Launcher) -> Small:
    return Small(prefix, port, headrace)
