"""The flags of `headrace-resty`: resty's own (openresty/resty-cli, README), read as resty reads them.

Options end at the first word that is none; what follows is the script and its arguments. A value follows its option as
a word of its own, or after `=`; with -e, -I, -l, -j and -c also directly.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

HELP: Final = """\
headrace-resty [options] [LUA-FILE [ARGUMENT ...]]

Run Lua with ngx.*: cosockets, timers, light threads. LUA-FILE - is standard input.

Options:
    -c NUM               most connections at once (64)
    -e CODE              run CODE; several -e are one piece of code
    -I DIR               look for Lua modules and C modules in DIR first
    -l LIB               require LIB
    -j v | off           print a line for each trace that LuaJIT makes; do without the compiler
    --ns IP              a name server (several may be given); else the system's way of finding names is used
    --resolve-ipv6       with --ns: ask for IPv6 addresses too
    --shdict 'NAME SIZE' a lua_shared_dict
    --errlog-level LEVEL least level that ngx.log prints (warn)
    --main-conf CONF     directives for the main level
    --main-include PATH  a file to include there
    --http-conf CONF     directives for the http block
    --http-include PATH  a file to include there
    --stream-conf CONF   directives for a stream block
    --no-stream          no stream block
    --load-module FILE   as load_module
    --dump-nginx-conf    print the configuration that is made, and end
    -V, -v               versions
    -h, --help           this


"""

_VALUES: Final = {
    "-c": "connections", "-e": "code", "-I": "folders", "-l": "module", "-j": "jit", "--ns": "servers",
    "--shdict": "dicts", "--errlog-level": "level", "--main-conf": "main_conf", "--main-include": "main_includes",
    "--http-conf": "http_conf", "--http-include": "http_includes", "--stream-conf": "stream_conf",
    "--load-module": "load_modules",
}  # fmt: skip
_SWITCHES: Final = {
    "--resolve-ipv6": "resolve_ipv6", "--no-stream": "no_stream", "--dump-nginx-conf": "dump", "-V": "version",
    "-v": "version", "-h": "help", "--help": "help",
}  # fmt: skip
_OF_NGINX: Final = frozenset(
    {"--nginx", "--gdb", "--gdb-opts", "--rr", "--stap", "--stap-opts", "--valgrind", "--valgrind-opts"}
    | {"--user-runner"}
)
_IP: Final = re.compile(r"\d{1,3}(\.\d{1,3}){3}|\[[0-9a-fA-F:]+\]")
_DICT: Final = re.compile(r"[_a-zA-Z0-9]+\s+\d+[kKmM]?")


class UsageError(Exception):
    """A command line that resty would not take either, or that asks for what there is not here; str() says why."""


@dataclass(slots=True)
class Flags:
    """What the command line says. code: that of all -e and -l, in their order."""

    code: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    servers: list[str] = field(default_factory=list)
    dicts: list[str] = field(default_factory=list)
    main_conf: list[str] = field(default_factory=list)
    main_includes: list[str] = field(default_factory=list)
    http_conf: list[str] = field(default_factory=list)
    http_includes: list[str] = field(default_factory=list)
    stream_conf: list[str] = field(default_factory=list)
    load_modules: list[str] = field(default_factory=list)
    connections: str = "64"
    level: str = "warn"
    jit: str | None = None
    resolve_ipv6: bool = False
    no_stream: bool = False
    dump: bool = False
    version: bool = False
    help: bool = False
    file: str | None = None
    arguments: list[str] = field(default_factory=list)


def parse(words: Sequence[str]) -> Flags:
    """Read a command line. Raises UsageError."""
    flags = Flags()
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        _option(flags, word, rest)
        if flags.help or flags.version:
            return flags
    if rest:
        flags.file = rest.pop(0)
    flags.arguments = rest
    _check(flags)
    return flags


def _option(flags: Flags, word: str, rest: list[str]) -> None:
    """One option; its value is taken from the rest where it is a word of its own."""
    name, equals, value = word.partition("=")
    if not word.startswith("--") and len(word) > 2:
        name, equals, value = word[:2], "=", word[2:].removeprefix("=")
    if name in _OF_NGINX:
        raise UsageError(f"option {name} is about nginx's own process, and there is none here")
    if name in _SWITCHES and not equals:
        setattr(flags, _SWITCHES[name], True)
        return
    if name not in _VALUES:
        raise UsageError(f"unknown option {word} (--help lists what there is)")
    if not equals:
        if not rest:
            raise UsageError(f"option {name} takes an argument but found none")
        value = rest.pop(0)
    field_name = _VALUES[name]
    if name == "-l":
        flags.code.append(f"require({lua_string(value)})")
    elif isinstance(held := getattr(flags, field_name), list):
        held.append(value)
    elif name == "-j" and flags.jit is not None:
        raise UsageError("duplicate -j option found")
    else:
        setattr(flags, field_name, value)


def _check(flags: Flags) -> None:
    if not re.fullmatch(r"\d+", flags.connections):
        raise UsageError(f"option -c value must be a number but found '{flags.connections}'")
    if not re.fullmatch(r"[a-z]+", flags.level):
        raise UsageError(f"bad --errlog-level option value: {flags.level}")
    for text in flags.servers:
        if not _IP.fullmatch(text):
            raise UsageError(f"Invalid --ns option value: {text}\n  (expecting an IP address)")
    for text in flags.dicts:
        if not _DICT.fullmatch(text):
            raise UsageError(f"invalid --shdict option value: {text}\n  (expecting NAME SIZE)")
    if flags.stream_conf and flags.no_stream:
        raise UsageError("options --stream-conf and --no-stream cannot be specified at the same time")
    if flags.jit == "dump":
        raise UsageError("option -j dump needs LuaJIT's jit.dump of the very version that runs, which is not here")
    if flags.jit not in (None, "v", "off"):
        raise UsageError(f"unknown -j option value: {flags.jit}")
    if flags.file is None and not flags.code and not flags.dump:
        raise UsageError('Neither Lua input file nor -e "" option specified')


def lua_string(text: str) -> str:
    """A text as a Lua literal, whatever bytes it has."""
    plain = "".join(
        chr(byte) if 0x20 <= byte < 0x7F and chr(byte) not in '"\\' else f"\\{byte:03d}"
        for byte in text.encode("utf-8", "surrogateescape")
    )
    return f'"{plain}"'
