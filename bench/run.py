"""`make bench`: headrace and its peers side by side, in one run; ratios, with the spread.

    python bench/run.py [JOB ...] [--quick] [--json FILE]

JOB: cosocket, hello, gateway, gateway_scale, reuse, receiver, forward, tail, scale, memory (all by default).
A peer that is missing is named, and its ratios are left out. The JSON is kept under bench/results/.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pathlib
import platform
import sys
import tempfile
import time
from typing import Any

HERE = pathlib.Path(__file__).parent
JOBS = ("cosocket", "hello", "gateway", "gateway_scale", "reuse", "receiver", "forward", "tail", "scale", "memory")


def pick(result: Any, path: str) -> float | None:
    """The figure at a dotted path; the median where it is a spread."""
    for key in path.split("."):
        if not isinstance(result, dict) or key not in result:
            return None
        result = result[key]
    return result["median"] if isinstance(result, dict) else result


def judge(result: Any, goals: dict[str, float]) -> list[str]:
    """A line for each goal; a negative goal is a least value, a positive one a most value."""
    lines = []
    for path, goal in goals.items():
        value = pick(result, path)
        if value is None:
            lines.append(f"  {'-':>6}  {path}: not measured")
            continue
        met = value >= -goal if goal < 0 else value <= goal
        word, bound = ("ok" if met else "MISSED"), ("at least" if goal < 0 else "at most")
        lines.append(f"  {word:>6}  {path}: {value:.3g} (goal: {bound} {abs(goal):g})")
    return lines


def main() -> int:
    """Run the jobs and print figures, goals and where the JSON lies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", metavar="JOB", choices=[*JOBS, []])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs")
    parser.add_argument("--json", type=pathlib.Path, help="where to keep the figures")
    args = parser.parse_args()
    sys.path.insert(0, str(HERE))
    if not os.environ.get("HEADRACE_PEER_FLUENTD"):
        print("Fluentd is left out: set HEADRACE_PEER_FLUENTD to its command to measure against it.")
    report: dict[str, Any] = {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "jobs": {},
    }
    for name in args.jobs or JOBS:
        job = importlib.import_module(f"job_{name}")
        print(f"{name}: {job.__doc__.splitlines()[0]}", flush=True)
        with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
            start = time.monotonic()
            result = job.run(pathlib.Path(folder), quick=args.quick)
        report["jobs"][name] = result
        print(json.dumps(result, indent=1))
        print("\n".join(judge(result, job.GOALS)), flush=True)
        print(f"  ({time.monotonic() - start:.0f} s)", flush=True)
    target = args.json or HERE / "results" / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(report, indent=1) + "\n")
    print(f"kept in {target}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
