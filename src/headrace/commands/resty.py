"""`headrace-resty`: run Lua from the command line, with cosockets, timers and light threads.

    headrace-resty [options] FILE [ARGUMENT ...]
    headrace-resty [options] -e CODE [FILE ...]

It makes a small nginx.conf in a temporary folder, whose first worker runs the code in a timer and then ends the
process (github.com/openresty/resty-cli describes the original). `ngx.say`, `ngx.print` and `print` write to
standard output. The process ends when the code and the light threads and timers that it began have.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Final

from headrace import errors
from headrace.commands.launch import build, serve
from headrace.commands.resty_flags import HELP, Flags, UsageError, lua_string, parse
from headrace.topology.options import GatewayOptions, Options
from headrace.version import NGINX_VERSION, NGX_LUA_VERSION, VERSION

_FORWARDED: Final = {
    signal.SIGINT: signal.SIGQUIT, signal.SIGHUP: signal.SIGQUIT, signal.SIGQUIT: signal.SIGQUIT,
    signal.SIGTERM: signal.SIGTERM, signal.SIGUSR1: signal.SIGUSR1, signal.SIGUSR2: signal.SIGUSR2,
}  # fmt: skip
_LAST_MOMENT: Final = 0.1  # seconds that a script has to end after INT

_CONF: Final = """\
{modules}error_log stderr {level};
pid logs/nginx.pid;
{environment}
{main}
events {{
    worker_connections {connections};
}}
{stream}http {{
    access_log off;
    lua_socket_log_errors off;
    {http}
    init_worker_by_lua_file conf/resty.lua;
}}
"""

_LUA: Final = """\
ngx.config.is_console = true
arg = {arguments}
local stdout, null, maxn = io.stdout, ngx.null, table.maxn
local function text(value)
    if value == null then
        return "null"
    elseif type(value) ~= "table" then
        return tostring(value)
    end
    local words = {{}}
    for i = 1, maxn(value) do
        words[i] = text(value[i])
    end
    return table.concat(words)
end
local function write(...)
    return stdout:write(text {{...}}) -- a nil at the end is nothing, as in resty
end
ngx.orig_print, ngx.orig_say, ngx.orig_exit = ngx.print, ngx.say, ngx.exit
ngx.print = write
ngx.say = function(...)
    local ok, failure = write(...)
    if not ok then
        return ok, failure
    end
    return stdout:write("\\n")
end
print = ngx.say
ngx.flush = function() return stdout:flush() end
ngx.eof = function() return true end
local finish = os.exit
os.exit = function(...)
    stdout:flush()
    return finish(...)
end
ngx.exit = os.exit
local graceful = require("ngx.process").signal_graceful_exit
local function failed(message)
    stdout:flush()
    io.stderr:write("ERROR: ", tostring(message), "\\n")
    os.exit(1)
end
local runs = {{}}
local function load(run, failure)
    if not run then
        failed(failure)
    end
    runs[#runs + 1] = run
end
{loads}
assert(ngx.timer.at(0, function()
    for _, run in ipairs(runs) do
        local ok, trace = xpcall(run, function(message)
            return debug.traceback(message, 2)
        end)
        if not ok then
            failed(trace)
        end
    end
    stdout:flush()
    graceful()
end))
"""


def main(argv: list[str]) -> int:
    """Run; the exit status is the script's."""
    try:
        flags = parse(argv)
        if flags.help:
            sys.stdout.write(HELP)
            return 0
        if flags.version:
            sys.stderr.write(
                f"resty (headrace {VERSION})\nnginx version: nginx/{NGINX_VERSION} (ngx_lua {NGX_LUA_VERSION})\n"
            )
            return 0
        conf = _conf(flags)
        if flags.dump:
            sys.stdout.write(conf)
            return 0
    except UsageError as error:
        sys.stderr.write(f"ERROR: {error}.\n" if str(error)[-1] not in ".)" else f"ERROR: {error}\n")
        return 255
    except FileNotFoundError as error:
        sys.stderr.write(f"{error.args[0]}\n")
        return 2
    folder = tempfile.mkdtemp(prefix="resty_")
    try:
        for name in ("conf", "logs"):
            os.mkdir(os.path.join(folder, name))
        for name, text in (("nginx.conf", conf), ("resty.lua", _script(flags))):
            Path(folder, "conf", name).write_text(text, encoding="utf-8", errors="surrogateescape")
        # The script ends its process from within Lua; who waits for it cleans up.
        child = os.fork()
        if child == 0:
            os._exit(_serve(folder))
        return _await(child)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _await(child: int) -> int:
    """The exit status; signals go on to the script: INT and HUP as QUIT, and INT ends it in a moment anyhow."""
    told: list[int] = []

    def forward(number: int, _frame: object) -> None:
        told.append(number)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, _FORWARDED[signal.Signals(number)])
        if number == signal.SIGINT:
            signal.setitimer(signal.ITIMER_REAL, _LAST_MOMENT)

    def end(_number: int, _frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)

    for number in _FORWARDED:
        signal.signal(number, forward)
    signal.signal(signal.SIGALRM, end)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if signal.SIGINT in told or (signal.SIGTERM in told and status == 0):
        return 128 + told[0]
    return status if status >= 0 else 128 - status


def _serve(folder: str) -> int:
    options = Options(
        GatewayOptions(os.path.join(folder, "conf", "nginx.conf"), folder),
        master=False,
        user=str(os.geteuid()),
        watchdog=0.0,
    )

    def say(level: str, error: errors.ConfError) -> None:
        if level == "emerg":
            sys.stderr.write(f"nginx: [emerg] {error}\n")

    try:
        plan = build(options, say)
        return 1 if plan is None else serve(plan, options)
    except errors.Error as error:
        sys.stderr.write(f"headrace-resty: {error}\n")
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _conf(flags: Flags) -> str:
    """The nginx.conf. Raises FileNotFoundError, with a text, for a file that is not there."""
    for kind, paths in (("main", flags.main_includes), ("http", flags.http_includes)):
        for path in paths:
            if not os.path.isfile(path):
                raise FileNotFoundError(f"ERROR: could not find {kind} include file '{path}'")
    if flags.file is not None and flags.file != "-" and not os.path.exists(flags.file):
        raise FileNotFoundError(f"Lua input file {flags.file} not found.")
    shared = []
    if flags.servers:
        shared.append(f"resolver {' '.join(flags.servers)}{'' if flags.resolve_ipv6 else ' ipv6=off'};")
    http = [*shared, *(f"lua_shared_dict {text};" for text in flags.dicts)]
    if flags.folders:
        path = "".join(f"{each}/?.ljbc;{each}/?.lua;{each}/?/init.ljbc;{each}/?/init.lua;" for each in flags.folders)
        http.append(f"lua_package_path {_quoted(path + ';')};")
        http.append(f"lua_package_cpath {_quoted(''.join(f'{each}/?.so;' for each in flags.folders) + ';')};")
    http += [*flags.http_conf, *map(_include, flags.http_includes)]
    stream = "\n    ".join([*shared, *flags.stream_conf])
    return _CONF.format(
        modules="".join(f"load_module {path};\n" for path in flags.load_modules),
        level=flags.level,
        environment="\n".join(f"env {name};" for name in sorted(os.environ) if re.fullmatch(r"\w+", name, re.ASCII)),
        main="\n".join([*flags.main_conf, *map(_include, flags.main_includes)]),
        connections=flags.connections,
        stream=f"stream {{\n    {stream}\n}}\n" if flags.stream_conf else "",
        http="\n    ".join(http),
    )


def _script(flags: Flags) -> str:
    code = list(flags.code)
    if flags.jit is not None:
        code.insert(0, "require('jit.v').on()" if flags.jit == "v" else "require('jit').off()")
    loads = []
    if code:
        loads.append(f"load(loadstring({lua_string('; '.join(code))}, '=(command line -e)'))")
    if flags.file is not None:
        name = lua_string(flags.file)
        opened = "io.stdin" if flags.file == "-" else f"assert(io.open({name}))"
        loads.append(f"load(loadstring(assert({opened}:read('*a')), '@' .. {name}))")
    first = flags.file if flags.file is not None else "(command line -e)"
    given = [f"[0] = {lua_string(first)}", *map(lua_string, flags.arguments)]
    return _LUA.format(arguments=f"{{{', '.join(given)}}}", loads="\n".join(loads))


def _include(path: str) -> str:
    return f"include {_quoted(os.path.abspath(path))};"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
