"""Ask every worker of a master for its figures, and add them up. No loop: this runs in a short command."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from headrace.errors import Error
from headrace.supervisor.osproc import resident_bytes

PATIENCE: Final = 1.0
"""Seconds to wait for one worker; one whose loop is held does not answer."""

_LARGEST = ("max", "peak", "longest", "uptime")
_LARGEST_NAMES = frozenset({"oldest_chunk_age", "buffer_newest_timekey", "lag", "retry_in", "retry_step", "weight"})
_SMALLEST_NAMES = frozenset({"buffer_available_buffer_space_ratios", "buffer_oldest_timekey"})
_NOT_ADDED = frozenset({"worker", "generation", "pid"})


def ask(path: Path, timeout: float = PATIENCE) -> dict[str, Any]:
    """The figures of one worker; OSError or ValueError when it does not answer properly."""
    deadline = time.monotonic() + timeout
    answer = bytearray()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(timeout)
        sock.connect(str(path))
        sock.sendall(b"GET /stats HTTP/1.0\r\n\r\n")
        while data := sock.recv(65536):
            answer += data
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("the answer takes too long")
            sock.settimeout(left)
    _head, separator, body = bytes(answer).partition(b"\r\n\r\n")
    if not separator:
        raise ValueError("no answer")
    figures = json.loads(body)
    if not isinstance(figures, dict):
        raise TypeError("not figures")
    return figures


def collect(folder: Path) -> dict[str, Any]:
    """Figures of the master in `folder`: {"master": ..., "workers": [...], "total": ...}."""
    try:
        master = json.loads((folder / "master.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Error(f"cannot read {folder / 'master.json'}: {error}", kind="not_running") from error
    master["rss"] = resident_bytes(master.get("pid", 0))
    master["uptime"] = round(time.time() - master.pop("started", time.time()), 3)
    workers = []
    for path in sorted(folder.glob("worker-*.sock")):
        try:
            workers.append(ask(path))
        except (OSError, ValueError, TypeError) as error:
            _, index, pid = path.stem.split("-")
            workers.append({"worker": int(index), "pid": int(pid), "state": f"does not answer: {error}"})
    return {"master": master, "workers": workers, "total": add_up(workers)}


def add_up(workers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Numbers of all workers added by path; of ages, ratios, peaks and the like the worst of a worker."""
    total: dict[str, Any] = {}
    for worker in workers:
        _merge(total, worker)
    return total


def _merge(total: dict[str, Any], figures: Mapping[str, Any]) -> None:
    for key, value in figures.items():
        if isinstance(value, Mapping):
            known = total.setdefault(key, {})
            if isinstance(known, dict):
                _merge(known, value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and key not in _NOT_ADDED:
            known = total.get(key)
            if known is None:
                total[key] = value
            elif not isinstance(known, (int, float)):
                continue
            elif key in _SMALLEST_NAMES:
                total[key] = min(known, value)
            elif key in _LARGEST_NAMES or any(word in key for word in _LARGEST):
                total[key] = max(known, value)
            else:
                total[key] = known + value


def flat(figures: Mapping[str, Any], path: str = "") -> Iterable[tuple[str, Any]]:
    """(dotted path, value) of every leaf; list elements are named by their `id`, else by their number."""
    for key, value in figures.items():
        name = f"{path}.{key}" if path else str(key)
        if isinstance(value, Mapping):
            yield from flat(value, name)
        elif isinstance(value, list):
            members = (
                (str(item.get("id", number)), {key: leaf for key, leaf in item.items() if key != "id"})
                if isinstance(item, Mapping)
                else (str(number), item)
                for number, item in enumerate(value)
            )
            yield from flat(dict(members), name)
        else:
            yield name, value
