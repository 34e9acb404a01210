"""A helper process of ngx.run_worker_thread: calls in, results out, one after another, over standard input and output.

    python -m headrace.lua.threadmain PREFIX [PATH [CPATH]]

A second thread of a worker must not run Python or Lua of that worker (docs/architecture.md, 3): so this is a process.
What a script prints goes to standard error.
"""

from __future__ import annotations

import os
import sys

from headrace.lua.api.threads import pack, unpack
from headrace.lua.runtime import Runtime, Settings


def main(arguments: list[str]) -> None:
    """Serve until the input ends. arguments: prefix, lua_package_path and lua_package_cpath ("": not set)."""
    prefix, path, cpath = (*arguments, "", "")[:3]
    out = os.dup(1)
    os.dup2(2, 1)
    call = Runtime(Settings(prefix=prefix, package_path=path or None, package_cpath=cpath or None)).vm.entry(
        "thread_call"
    )
    with os.fdopen(out, "wb") as results:
        while head := sys.stdin.buffer.read(8):
            fields = unpack(sys.stdin.buffer.read(int.from_bytes(head, "big")))
            ok, data = call(*fields)
            results.write(pack((b"%d" % ok, data)))
            results.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
