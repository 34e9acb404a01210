"""Processes of headrace in tests: started with their own run folder, read line by line, always ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

PATIENCE: Final = 20.0
"""Seconds a condition may take on a busy machine before a test fails."""


def wait_until(condition: Callable[[], object], what: str = "the condition", timeout: float = PATIENCE) -> None:
    """Poll `condition` until it is true; AssertionError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {timeout:g} s")
        time.sleep(0.01)


class HeadraceProcess:
    """One running command with its output (stdout and stderr together) collected by a thread."""

    def __init__(self, command: list[str], *, cwd: Path, env: Mapping[str, str]) -> None:
        self.command = command
        self._popen = subprocess.Popen(
            command,
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Process id of the master, or of the only process."""
        return self._popen.pid

    @property
    def output(self) -> str:
        """What it printed until now."""
        return "".join(self._lines)

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._popen.poll() is None

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            self._lines.append(line.decode("utf-8", "replace"))

    def wait_for(self, text: str, *, count: int = 1, timeout: float = PATIENCE) -> None:
        """Wait until `text` was printed `count` times."""

        def seen() -> bool:
            if self.output.count(text) >= count:
                return True
            if not self.running:
                self._reader.join(timeout=5)
                assert self.output.count(text) >= count, f"ended without printing {text!r}:\n{self.output}"
            return False

        try:
            wait_until(seen, f"{text!r} in the output", timeout)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output}") from None

    def send(self, number: int) -> None:
        """Send it a signal."""
        self._popen.send_signal(number)

    def wait(self, timeout: float = PATIENCE) -> int:
        """Its exit status."""
        try:
            status = self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout:g} s:\n{self.output}") from None
        self._reader.join(timeout=5)
        return status

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send `number` and wait for the end."""
        if self.running:
            self.send(number)
        return self.wait()

    def end(self) -> None:
        """End it and every process of its session, whatever state they are in."""
        if self.running:
            self.send(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(3)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait(5)
        self._reader.join(timeout=5)
        if self._popen.stdout is not None:
            self._popen.stdout.close()


class Launcher:
    """Starts `headrace` and its drop-in commands with this interpreter; remembers them to end them."""

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        self.env: dict[str, str] = {
            **os.environ,
            "HEADRACE_RUN_DIR": str(prefix / "run"),
            "PYTHONUNBUFFERED": "1",
        }
        self._started: list[HeadraceProcess] = []

    def command(self, name: str, *args: object) -> list[str]:
        """The command line: name is "headrace" or the drop-in's part ("nginx", "fluentd", "resty")."""
        function = "main" if name == "headrace" else f"{name}_main"
        code = f"import sys; from headrace.cli import {function}; sys.exit({function}())"
        return [sys.executable, "-c", code, *map(str, args)]

    def __call__(self, name: str, *args: object, env: Mapping[str, str] | None = None) -> HeadraceProcess:
        """Start it in the background."""
        return self.start(self.command(name, *args), env=env)

    def start(self, command: list[str], *, env: Mapping[str, str] | None = None) -> HeadraceProcess:
        """Start any command in the background, in the prefix."""
        process = HeadraceProcess(command, cwd=self.prefix, env={**self.env, **(env or {})})
        self._started.append(process)
        return process

    def run(
        self, name: str, *args: object, env: Mapping[str, str] | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run it to its end; stdout and stderr are captured apart."""
        return subprocess.run(
            self.command(name, *args),
            cwd=self.prefix,
            env={**self.env, **(env or {})},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def end_all(self) -> None:
        """End everything that was started."""
        for process in self._started:
            process.end()
