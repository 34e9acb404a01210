"""headrace-resty: Lua from the command line."""

from __future__ import annotations

import re
import signal
import socket
import threading

import pytest

from headrace.commands.resty import main
from headrace.commands.resty_flags import lua_string


def test_code_of_e(headrace):
    done = headrace.run("resty", "-e", 'local a = 1 print("a", nil, a, nil)', "-e=ngx.say({'b', {'c', a, ngx.null}})")
    assert (done.returncode, done.stdout) == (0, "anil1\nbc1null\n"), done.stderr


def test_a_script_with_arguments_and_standard_input(prefix, headrace):
    (prefix / "s.lua").write_text("#!/usr/bin/env resty\nprint(arg[0], #arg, arg[1], arg[2]) io.write(io.read('*a'))")
    done = headrace.run("resty", "s.lua", "x y", "--help", stdin="input")
    assert (done.returncode, done.stdout) == (0, "s.lua2x y--help\ninput"), done.stderr
    done = headrace.run("resty", "--", "-", "-e", stdin="print(arg[1])")
    assert (done.returncode, done.stdout) == (0, "-e\n"), done.stderr


def test_exit_status_and_errors(headrace):
    assert headrace.run("resty", "-e", "os.exit(7)").returncode == 7
    assert headrace.run("resty", "-e", "ngx.exit(3)").returncode == 3
    failed = headrace.run("resty", "-e", 'error("boom")')
    assert failed.returncode == 1
    assert failed.stderr.startswith("ERROR: (command line -e):1: boom\nstack traceback:\n")
    assert headrace.run("resty", "-e", "x = = 1").returncode == 1


def test_what_the_code_began_may_end(headrace):
    code = """
        ngx.thread.spawn(function() ngx.sleep(0.01) ngx.say("thread") end)
        ngx.timer.at(0, function() ngx.sleep(0.02) ngx.say("timer") end)
        ngx.timer.at(3600, function(premature) ngx.say("later ", premature) end)
    """
    done = headrace.run("resty", "-e", code)
    assert (done.returncode, sorted(done.stdout.split("\n"))) == (0, ["", "later true", "thread", "timer"]), done.stderr


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ([], 255, 'ERROR: Neither Lua input file nor -e "" option specified.'),
        (["--nonsense"], 255, "ERROR: unknown option --nonsense (--help lists what there is)"),
        (["-e"], 255, "ERROR: option -e takes an argument but found none."),
        (["-c", "many", "-e", ""], 255, "ERROR: option -c value must be a number but found 'many'."),
        (["--shdict=dogs", "-e", ""], 255, "ERROR: invalid --shdict option value: dogs\n  (expecting NAME SIZE)"),
        (["--ns", "there", "-e", ""], 255, "ERROR: Invalid --ns option value: there\n  (expecting an IP address)"),
        (["--gdb", "x.lua"], 255, "ERROR: option --gdb is about nginx's own process, and there is none here."),
        (["--stap-opts=-v", "x.lua"], 255, "ERROR: option --stap-opts is about nginx's own process, and"),
        (["-j", "dump", "-e", ""], 255, "ERROR: option -j dump needs LuaJIT's jit.dump of the very version that runs"),
        (["--http-include", "gone", "-e", ""], 2, "ERROR: could not find http include file 'gone'"),
        (["gone.lua"], 2, "Lua input file gone.lua not found."),
        (["--main-conf", "lua_shared_dict a 1m;", "-e", ""], 1, 'nginx: [emerg] "lua_shared_dict" directive is not'),
        (["--errlog-level", "1", "-e", ""], 255, "ERROR: bad --errlog-level option value: 1."),
    ],
)
def test_what_is_wrong_is_told(words, status, message, capfd):
    assert main(words) == status
    assert capfd.readouterr().err.startswith(message)


def test_help_versions_and_the_configuration(capfd, monkeypatch):
    monkeypatch.setenv("SOME_NAME", "1")
    assert main(["-h"]) == 0
    assert capfd.readouterr().out.startswith("headrace-resty [options]")
    assert main(["-V"]) == 0
    assert capfd.readouterr().err.startswith("resty (headrace ")
    words = ["--dump-nginx-conf", "-c5", "-Ilib", "--ns", "127.0.0.1", "--ns=[::1]", "--shdict", "d 1m", "-e", ""]
    assert main([*words, "--stream-conf", "", "--errlog-level=info"]) == 0
    conf = capfd.readouterr().out
    for line in (
        "worker_connections 5;", "error_log stderr info;", "resolver 127.0.0.1 [::1] ipv6=off;", "env SOME_NAME;",
        "lua_shared_dict d 1m;", 'lua_package_path "lib/?.ljbc;lib/?.lua;', 'lua_package_cpath "lib/?.so;;";',
        "stream {",
    ):  # fmt: skip
        assert line in conf


def test_files_to_include_and_the_environment(prefix, headrace):
    (prefix / "http.conf").write_text("lua_shared_dict dogs 1m;")
    (prefix / "main.conf").write_text("env FOO=32;")
    code = "ngx.shared.dogs:set('a', 7) print(ngx.shared.dogs:get('a'), os.getenv('FOO'), os.getenv('HOME') ~= nil)"
    done = headrace.run("resty", "--http-include=http.conf", "--main-include", "main.conf", "-e", code)
    assert (done.returncode, done.stdout) == (0, "732true\n"), done.stderr


def test_the_traces_of_the_compiler(headrace):
    loop = "for i = 1, 200 do end"
    # The number counts what the runtime's own code has had compiled before.
    assert re.fullmatch(
        r"\[TRACE +\d+ \(command line -e\):1 loop\]\n", headrace.run("resty", "-j", "v", "-e", loop).stderr
    )
    assert headrace.run("resty", "-j", "off", "-e", "require('jit.v').on() " + loop).stderr == ""


@pytest.mark.parametrize(
    ("number", "graceful", "status"), [("INT", False, 130), ("HUP", True, 0), ("QUIT", True, 0), ("TERM", False, 143)]
)
def test_signals_reach_the_script(headrace, number, graceful, status):
    code = "print('begun') ngx.flush() while not ngx.worker.exiting() do ngx.sleep(0.001) end print('left')"
    process = headrace("resty", "-e", code)
    process.wait_for("begun")
    process.send(getattr(signal, "SIG" + number))
    assert process.wait() == status
    assert "left" in process.output or not graceful


def test_modules_of_a_folder_and_a_cosocket(prefix, headrace):
    (prefix / "lib").mkdir()
    (prefix / "lib" / "talk.lua").write_text("""
        return function(port)
            local sock = ngx.socket.tcp()
            assert(sock:connect("127.0.0.1", port))
            assert(sock:send("ping\\n"))
            return sock:receive("*l")
        end
    """)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            peer, _ = server.accept()
            with peer:
                peer.sendall(peer.recv(100).upper())

        thread = threading.Thread(target=answer)
        thread.start()
        (prefix / "s.lua").write_text('print(require("talk")(tonumber(arg[1])))')
        done = headrace.run("resty", "-I", "lib", "s.lua", server.getsockname()[1])
        thread.join()
    assert (done.returncode, done.stdout) == (0, "PING\n"), done.stderr


def test_a_directive_that_is_wrong_is_told(headrace):
    done = headrace.run("resty", "--http-conf", "nonsense on;", "-e", "print(1)")
    assert done.returncode == 1
    assert 'unknown directive "nonsense"' in done.stderr


def test_shared_dictionaries(headrace):
    done = headrace.run(
        "resty", "--shdict", "dogs 1m", "-e", "local d = ngx.shared.dogs d:set('a', 7) print(d:get('a'))"
    )
    assert (done.returncode, done.stdout.strip()) == (0, "7"), done.stderr


def test_lua_string_keeps_every_byte():
    assert lua_string('a"b\\\n\u00e9') == '"a\\034b\\092\\010\\195\\169"'
