"""`headrace-resty`: run Lua from the command line, with cosockets, timers and light threads.

    headrace-resty [options] FILE [ARGUMENT ...]
    headrace-resty [options] -e CODE [FILE ...]

It makes a small nginx.conf in a temporary folder, whose first worker runs the code in a timer and then ends the
process (github.com/openresty/resty-cli describes the original). `ngx.say`, `ngx.print` and `print` write to
standard output.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from headrace import errors
from headrace.commands.launch import build, serve
from headrace.topology.options import GatewayOptions, Options
from headrace.version import NGINX_VERSION, NGX_LUA_VERSION, VERSION

_CONF: Final = """\
error_log stderr {level};
pid resty.pid;
{main}
events {{
    worker_connections {connections};
}}
http {{
    access_log off;
    {http}
    init_worker_by_lua_file resty.lua;
}}
"""

_LUA: Final = """\
arg = {arguments}
local function write(...)
    for i = 1, select("#", ...) do
        local value = select(i, ...)
        if type(value) == "table" then
            write(unpack(value))
        else
            io.stdout:write(tostring(value))
        end
    end
end
ngx.print = function(...) write(...) return true end
ngx.say = function(...) write(...) io.stdout:write("\\n") return true end
ngx.flush = function() io.stdout:flush() return true end
ngx.eof = ngx.flush
print = function(...)
    local words = {{}}
    for i = 1, select("#", ...) do
        words[i] = tostring((select(i, ...)))
    end
    io.stdout:write(table.concat(words, "\\t"), "\\n")
end
local finish = os.exit
os.exit = function(code, ...)
    io.stdout:flush()
    return finish(code, ...)
end
ngx.exit = function(code)
    os.exit(code >= 500 and 1 or 0)
end
local codes = {codes}
local function main()
    for _, item in ipairs(codes) do
        local run, failure
        if item.file then
            run, failure = loadfile(item.file)
        else
            run, failure = loadstring(item.code, "=(command line -e)")
        end
        if not run then
            error(failure, 0)
        end
        run(unpack(arg))
    end
end
local ok, failure = ngx.timer.at(0, function(premature)
    if premature then
        return
    end
    local good, trace = xpcall(main, function(message)
        return "ERROR: " .. debug.traceback(tostring(message), 2)
    end)
    if not good then
        io.stdout:flush()
        io.stderr:write(trace, "\\n")
        os.exit(1)
    end
    os.exit(0)
end)
if not ok then
    io.stderr:write("ERROR: ", tostring(failure), "\\n")
    os.exit(1)
end
"""


def parser() -> argparse.ArgumentParser:
    """The flags."""
    made = argparse.ArgumentParser(
        prog="headrace-resty", description="Run Lua with ngx.*: cosockets, timers, light threads.", allow_abbrev=False
    )
    add = made.add_argument
    add("-e", action="append", default=[], dest="codes", metavar="CODE", help="run CODE; may be given several times")
    add("-I", action="append", default=[], dest="folders", metavar="DIR", help="folder to look for modules in")
    add("-l", action="append", default=[], dest="modules", metavar="LIB", help="require LIB first")
    add("-c", type=int, default=64, dest="connections", metavar="NUM", help="most connections at once (64)")
    add("--errlog-level", default="warn", metavar="LEVEL", help="least level that ngx.log prints (warn)")
    add("--http-conf", action="append", default=[], metavar="CONF", help="directives for the http block")
    add("--http-include", action="append", default=[], metavar="PATH", help="file to include in the http block")
    add("--main-conf", action="append", default=[], metavar="CONF", help="directives for the main level")
    add("--main-include", action="append", default=[], metavar="PATH", help="file to include at the main level")
    add("--shdict", action="append", default=[], dest="dicts", metavar="'NAME SIZE'", help="a lua_shared_dict")
    add("--resolve-ipv6", action="store_true", help="look up IPv6 addresses too (always done)")
    add("-V", action="store_true", dest="version", help="show versions")
    add("file", nargs="?", metavar="FILE", help="the script")
    add("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT", help="what the script finds in `arg`")
    return made


def main(argv: list[str]) -> int:
    """Run; the exit status is the script's."""
    flags = parser().parse_args(argv)
    if flags.version:
        sys.stdout.write(
            f"headrace-resty {VERSION}\nnginx version: nginx/{NGINX_VERSION} (ngx_lua {NGX_LUA_VERSION})\n"
        )
        return 0
    if flags.file is None and not flags.codes and not flags.modules:
        parser().print_usage(sys.stderr)
        return 2
    folder = tempfile.mkdtemp(prefix="headrace-resty-")
    try:
        _write(Path(folder), flags)
        # The script ends its process from within Lua; who waits for it cleans up.
        child = os.fork()
        if child == 0:
            os._exit(_serve(folder))
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _serve(folder: str) -> int:
    options = Options(
        GatewayOptions(os.path.join(folder, "nginx.conf"), folder), master=False, user=str(os.geteuid()), watchdog=0.0
    )

    def say(level: str, error: errors.ConfError) -> None:
        if level == "emerg":
            sys.stderr.write(f"headrace-resty: {error}\n")

    try:
        plan = build(options, say)
        return 1 if plan is None else serve(plan, options)
    except errors.Error as error:
        sys.stderr.write(f"headrace-resty: {error}\n")
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _write(folder: Path, flags: argparse.Namespace) -> None:
    http = [*flags.http_conf, *(f"include {_quoted(os.path.abspath(path))};" for path in flags.http_include)]
    http += [f"lua_shared_dict {text};" for text in flags.dicts]
    if flags.folders:
        paths = "".join(f"{os.path.abspath(each)}/?.lua;{os.path.abspath(each)}/?/init.lua;" for each in flags.folders)
        http.append(f"lua_package_path {_quoted(paths + ';')};")
    main_level = [*flags.main_conf, *(f"include {_quoted(os.path.abspath(path))};" for path in flags.main_include)]
    conf = _CONF.format(
        level=flags.errlog_level, connections=flags.connections, main="\n".join(main_level), http="\n    ".join(http)
    )
    (folder / "nginx.conf").write_text(conf, encoding="utf-8", errors="surrogateescape")
    codes = [f"{{code = {lua_string(f'require {lua_string(module)}')}}}" for module in flags.modules]
    codes += [f"{{code = {lua_string(code)}}}" for code in flags.codes]
    if flags.file is not None:
        codes.append(f"{{file = {lua_string(os.path.abspath(flags.file))}}}")
    given = [f"[0] = {lua_string(flags.file or '-e')}", *map(lua_string, flags.arguments)]
    lua = _LUA.format(arguments=f"{{{', '.join(given)}}}", codes=f"{{{', '.join(codes)}}}")
    (folder / "resty.lua").write_text(lua, encoding="utf-8", errors="surrogateescape")


def lua_string(text: str) -> str:
    """A text as a Lua literal, whatever bytes it has."""
    plain = "".join(
        chr(byte) if 0x20 <= byte < 0x7F and chr(byte) not in '"\\' else f"\\{byte:03d}"
        for byte in text.encode("utf-8", "surrogateescape")
    )
    return f'"{plain}"'


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
