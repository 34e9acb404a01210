"""`headrace-resty`: resty's command line (Lua scripts with cosockets). Not built yet: it says so."""

from __future__ import annotations

import sys


def main(_argv: list[str]) -> int:
    """Refuse, with the way to run Lua today."""
    sys.stderr.write(
        "headrace-resty: running Lua scripts from the command line is not supported yet; "
        "run them by content_by_lua_file in an nginx.conf (headrace run nginx.conf)\n"
    )
    return 1
