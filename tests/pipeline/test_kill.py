"""A process that is killed: what it had taken is delivered by the next one."""

from __future__ import annotations

import signal
import subprocess
import sys

from headrace.testing.pipelines import Kit

CHILD = """
import asyncio, sys
from headrace.conf.fluent import parse
from headrace.conf.params import Problems
from headrace.core.clock import Clock
from headrace.pipeline.build import build_pipeline
from headrace.pipeline.event import Batch
from headrace.plugins.registry import lookup
from headrace.testing.pipelines import Script, TransientError

async def main():
    tree = parse(sys.stdin.read(), "child.conf", env={}, hostname="h", worker_id="0")
    problems = Problems()
    own = lambda kind, name: Script if name == "script" else lookup(kind, name)
    pipeline = build_pipeline(tree, lookup=own, problems=problems)
    problems.raise_first()
    loop = asyncio.get_running_loop()
    await pipeline.start(loop, Clock(loop))
    pipeline.plugins[0].then = TransientError("down")
    for number in range(1_000_000):
        outcome = pipeline.router.emit("t", Batch.of([(number, {"n": number}), (number, {"n": -number})]))
        if outcome is not None:
            await outcome
        print(number, flush=True)

asyncio.run(main())
"""


def conf(folder, extra: str) -> str:
    return (
        f"<match **>\n@type script\n@id out\n<buffer>\n@type file\npath {folder}\nsegment_size 64k\n"
        f"chunk_limit_records 50\nqueued_chunks_limit_size 100000\n{extra}\n</buffer>\n</match>\n"
    )


async def test_what_a_killed_process_had_taken_is_delivered(tmp_path):
    folder = tmp_path / "buf"
    process = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdin.write((conf(folder, "flush_interval 1h")).encode())
    process.stdin.close()
    taken = []
    try:
        for line in process.stdout:
            taken.append(int(line))
            if len(taken) == 500:
                process.send_signal(signal.SIGKILL)
                break
        taken += [int(line) for line in process.stdout.read().split(b"\n")[:-1]]
    finally:
        process.kill()
        process.wait(30)
    kit = await Kit(conf(folder, "flush_interval 1s")).start()
    await kit.clock.elapse(2)
    await kit.work()
    got = [record["n"] for record in kit.script.got]
    last = max(map(abs, got))
    assert last >= taken[-1]  # one more may have been taken whose number was not told
    assert got == [sign * number for number in range(last + 1) for sign in (1, -1)]
    await kit.stop()
