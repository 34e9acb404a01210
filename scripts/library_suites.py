"""Run Lua libraries' own suites (Test::Nginx) through headrace-nginx and, for comparison, through nginx.

    python scripts/library_suites.py --test-nginx DIR [--json FILE] [--keep DIR] CHECKOUT [CHECKOUT ...]

CHECKOUT is a library's checkout (it holds t/**/*.t and lib/), DIR one of test-nginx (it holds lib/). Neither is part of
this repository. Redis and memcached are started for as long as it takes, on free ports. The suites bind ports of their
own; to keep them from meeting others, run this in a network namespace:

    unshare -n sh -c 'ip link set lo up; exec python scripts/library_suites.py ...'

Prints a line for each file - checks passed here, checks that nginx passes - and the share for each library: of the
checks that nginx passes, those that pass here. They are compared by name, so a check that passes only here counts for
nothing. --json writes what scripts/suites.py keeps: `python scripts/suites.py libraries FILE`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

MODULES = Path("/usr/lib/nginx/modules")
NEEDED = (
    "ndk_http",
    "ngx_http_lua",
    "ngx_http_echo",
    "ngx_http_headers_more_filter",
    "ngx_http_set_misc",
    "ngx_stream",
)
DETAIL = re.compile(r"(?<=response is expected) \(.*|\d{4,}")
"""Parts of a name that differ from run to run: what came, and times and ports."""
CHECK = re.compile(r"(not )?ok (\d+)(.*)")
OUTSIDE = re.compile(r"# ?(skip|TODO)", re.IGNORECASE)


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="+", type=Path, metavar="CHECKOUT")
    parser.add_argument("--test-nginx", type=Path, required=True, metavar="DIR")
    parser.add_argument("--nginx", default=shutil.which("headrace-nginx") or "headrace-nginx", metavar="PROGRAM")
    parser.add_argument("--peer", default="/usr/sbin/nginx", metavar="PROGRAM", help="nginx with its Lua module")
    parser.add_argument("--only", default="", metavar="TEXT", help="files whose name holds TEXT")
    parser.add_argument("--timeout", type=float, default=300, metavar="SECONDS", help="for a file")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep TAP and errors of each file here")
    parser.add_argument("--json", type=Path, metavar="FILE")
    flags = parser.parse_args()
    keep = flags.keep or Path(tempfile.mkdtemp(prefix="suites-"))
    figures: dict[str, dict[str, int]] = {}
    with _servers() as environment:
        environment["PERL5LIB"] = str((flags.test_nginx / "lib").resolve())
        for checkout in flags.checkouts:
            _library(checkout.resolve(), flags, environment, keep, figures)
    if flags.json:
        flags.json.write_text(json.dumps({"files": figures}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 0


def _library(
    checkout: Path, flags: argparse.Namespace, environment: dict[str, str], keep: Path,
    figures: dict[str, dict[str, int]],
) -> None:  # fmt: skip
    ours_all = peer_all = 0
    for file in sorted((checkout / "t").rglob("*.t")):
        name = str(file.relative_to(checkout))
        if flags.only not in name:
            continue
        passed = {}
        for kind, program in (("nginx", flags.peer), ("ours", flags.nginx)):
            out = keep / checkout.name / f"{name.replace('/', '-')}.{kind}"
            passed[kind] = _file(checkout, name, program, environment, out, flags.timeout)
        both, peer = (passed["nginx"] & passed["ours"]).total(), passed["nginx"].total()
        ours_all += both
        peer_all += peer
        if peer:
            short = name.removeprefix("t/").removesuffix(".t")
            figures[f"{checkout.name}/{short}"] = {"passed": both, "failed": peer - both, "nginx": peer}
        _say(f"  {name:40} {both:5} of {peer:5}")
    share = 100 * ours_all / peer_all if peer_all else 0.0
    _say(f"{checkout.name}: {ours_all} of the {peer_all} checks that nginx passes: {share:.1f}% (kept in {keep})")


def _file(
    checkout: Path, name: str, program: str, environment: dict[str, str], out: Path, timeout: float
) -> Counter[str]:
    """The checks of one file that pass: how often each name does."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="servroot-") as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
        probe.close()
        env = os.environ | environment | {"LC_ALL": "C", "TEST_NGINX_BINARY": program}
        env |= {"TEST_NGINX_SERVROOT": f"{folder}/s", "TEST_NGINX_PORT": port, "TEST_NGINX_SERVER_PORT": port}
        if "headrace" not in Path(program).name:
            paths = [MODULES / f"{one}_module.so" for one in NEEDED]
            env["TEST_NGINX_LOAD_MODULES"] = " ".join(str(path) for path in paths if path.exists())
        tap = out.with_name(out.name + ".tap")
        with tap.open("wb") as stdout, out.with_name(out.name + ".err").open("wb") as stderr:
            try:
                subprocess.run(
                    ["perl", "-I.", name], cwd=checkout, env=env, stdin=subprocess.DEVNULL, stdout=stdout,
                    stderr=stderr, timeout=timeout, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                stderr.write(b"\ntimed out\n")
        with contextlib.suppress(OSError, ValueError):
            os.kill(int(Path(folder, "s/logs/nginx.pid").read_text(encoding="ascii")), 15)
        with contextlib.suppress(OSError):
            shutil.copytree(f"{folder}/s", out.with_name(out.name + ".root"), dirs_exist_ok=True)
    lines = tap.read_text(encoding="utf-8", errors="replace").splitlines()
    found = [match for line in lines if (match := CHECK.match(line)) and not OUTSIDE.search(line)]
    return Counter(DETAIL.sub("", one[3]) for one in found if not one[1])


@contextlib.contextmanager
def _servers() -> Iterator[dict[str, str]]:
    """Redis and memcached, where they are installed; gives what tells the suites their ports."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="suites-servers-"))
        ports = []
        for _ in range(2):
            probe = stack.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            ports.append(str(probe.getsockname()[1]))
            probe.close()
        commands = (
            ["redis-server", "--port", ports[0], "--save", "", "--dir", folder],
            ["memcached", "-l", "127.0.0.1", "-p", ports[1], "-u", "root"],
        )
        for command in commands:
            if shutil.which(command[0]):
                process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                stack.callback(process.wait)
                stack.callback(process.terminate)
        yield {"TEST_NGINX_REDIS_PORT": ports[0], "TEST_NGINX_MEMCACHED_PORT": ports[1]}


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
