"""headrace-resty: Lua from the command line."""

from __future__ import annotations

import socket
import threading

from headrace.commands.resty import lua_string


def test_code_of_e(headrace):
    done = headrace.run("resty", "-e", 'print("a", 1)', "-e", 'ngx.say({"b", {"c", 2}}, nil)')
    assert (done.returncode, done.stdout) == (0, "a\t1\nbc2nil\n"), done.stderr


def test_a_script_with_arguments_and_standard_input(prefix, headrace):
    (prefix / "s.lua").write_text('print(arg[0], #arg, arg[1], ...) ngx.sleep(0.001) io.write(io.read("*a"))')
    done = headrace.run("resty", "s.lua", "x y", "-z", stdin="input")
    assert (done.returncode, done.stdout) == (0, "s.lua\t2\tx y\tx y\t-z\ninput"), done.stderr


def test_exit_status_and_errors(headrace):
    assert headrace.run("resty", "-e", "os.exit(7)").returncode == 7
    failed = headrace.run("resty", "-e", 'error("boom")')
    assert failed.returncode == 1
    assert failed.stderr.startswith("ERROR: (command line -e):1: boom\nstack traceback:\n")
    assert headrace.run("resty", "-e", "x = = 1").returncode == 1
    assert headrace.run("resty").returncode == 2


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
