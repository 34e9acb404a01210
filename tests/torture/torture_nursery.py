"""Starts nodes quickly: `python torture_nursery.py` imports headrace once, then forks a process for each line it reads.

In: a JSON object a line, the spec of a node. Out: JSON objects a line: {"started": pid}, {"ready": pid},
{"stats": {...}, "pid": pid} after SIGUSR2, {"ended": pid, "signal": number or null, "status": number or null}.

A spec: conf (the text of a fluent.conf), log (a file for stdout and stderr), and what makes it a torture:
point and nth (see torture_points.py), faults ({operation: errno name or "short"}, switched on and off by SIGUSR1),
user (a uid), nofile (RLIMIT_NOFILE), within (seconds of a stop by SIGTERM).
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import resource
import selectors
import signal
import sys

import torture_points as points
import uvloop

from headrace.conf.fluent import parse
from headrace.conf.params import Problems
from headrace.core.clock import Clock
from headrace.pipeline.build import build_pipeline
from headrace.pipeline.context import Settings
from headrace.pipeline.files import Files
from headrace.plugins.registry import lookup
from headrace.topology.pipelines import _open


class FaultyFiles(Files):
    """Real files that fail while `on`: an errno for an operation, or writes that take half of what they get."""

    def __init__(self, faults):
        self.on = False
        self.faults = faults
        for operation in faults:
            setattr(self, operation, self._wrapped(operation, getattr(self, operation)))

    def _wrapped(self, operation, original):
        kind = self.faults[operation]

        def act(*args):
            if not self.on:
                return original(*args)
            if kind == "short":
                return original(args[0], memoryview(args[1])[: max(len(args[1]) // 2, 1)])
            code = getattr(errno, kind)
            raise OSError(code, os.strerror(code))

        return act


async def serve(spec, report):
    problems = Problems()
    tree = parse(spec["conf"], "node.conf", env={}, hostname="node", worker_id="0")
    settings = Settings(root_dir=spec.get("root"))
    files = FaultyFiles(spec.get("faults", {}))
    pipeline = build_pipeline(tree, lookup=lookup, problems=problems, settings=settings, files=files)
    problems.raise_first()
    loop = asyncio.get_running_loop()
    sockets = {one.key: _open(one) for one in pipeline.listens}
    stop = loop.create_future()
    loop.add_signal_handler(signal.SIGTERM, lambda: stop.done() or stop.set_result(None))
    loop.add_signal_handler(signal.SIGUSR1, lambda: setattr(files, "on", not files.on))
    loop.add_signal_handler(
        signal.SIGUSR2, lambda: say(report, {"stats": pipeline.stats()["plugins"], "pid": os.getpid()})
    )
    await pipeline.start(loop, Clock(loop), sockets)
    say(report, {"ready": os.getpid()})
    await stop
    await pipeline.stop(spec.get("within", 5.0))


def say(report, message):
    os.write(report, json.dumps(message, default=str).encode() + b"\n")


def node(spec):
    report = os.dup(1)
    log = os.open(spec["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for fd in (1, 2):
        os.dup2(log, fd)
    logging.basicConfig(level="INFO", format="%(asctime)s %(process)d %(levelname)s %(name)s %(message)s", force=True)
    if spec.get("user") is not None:
        "".encode("idna")  # what is imported late may not be readable for this user
        os.setgroups([])
        os.setgid(spec["user"])
        os.setuid(spec["user"])
    if spec.get("nofile"):
        resource.setrlimit(resource.RLIMIT_NOFILE, (spec["nofile"], spec["nofile"]))
    if spec.get("point"):
        points.install(spec["point"], spec.get("nth", 1))
    uvloop.run(serve(spec, report))  # as workers do


def preload():
    """Import what plugins import when they are first used, so that no node has to."""
    text = (
        "<source>\n@type http\n</source>\n<match **>\n@type http\nendpoint http://a\n<buffer>\n@type file\npath /tmp\n"
    )
    build_pipeline(
        parse(text + "</buffer>\n</match>\n", "preload", env={}, hostname="node", worker_id="0"),
        lookup=lookup,
        problems=Problems(),
    )


def main():
    preload()
    selector = selectors.DefaultSelector()
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector.register(0, selectors.EVENT_READ)
    selector.register(read, selectors.EVENT_READ)
    rest = b""
    while True:
        for key, _ in selector.select():
            if key.fd == read:
                os.read(read, 4096)
                continue
            data = os.read(0, 1 << 20)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                birth(json.loads(line), selector)
        bury()


def birth(spec, selector):
    pid = os.fork()
    if pid:
        say(1, {"started": pid})
        return
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        selector.close()
        node(spec)
        status = 0
    except BaseException:
        logging.getLogger("node").exception("the node ends")
    finally:
        os._exit(status)


def bury():
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        killed = os.WIFSIGNALED(status)
        end = os.WTERMSIG(status) if killed else None
        say(1, {"ended": pid, "signal": end, "status": None if killed else os.WEXITSTATUS(status)})


if __name__ == "__main__":
    sys.exit(main())
