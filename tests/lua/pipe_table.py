"""ngx.pipe, case by case: code, and its output."""

PIPE = 'local pipe = require "ngx.pipe" '
SAY = 'local function say(...) local t = {} for i = 1, select("#", ...) do t[i] = tostring((select(i, ...))) end ngx.say(table.concat(t, " ")) end '

TABLE = [
    ("output", 'local p = pipe.spawn({"echo", "hello"}) say(p:stdout_read_line()) say(p:stdout_read_line())', "hello\nnil closed \n"),
    ("a shell", 'local p = pipe.spawn("echo $((1+2)); exit 3") say(p:stdout_read_all()) say(p:wait())', "3\n\nfalse exit 3\n"),
    ("wait", 'local p = pipe.spawn({"true"}) say(p:wait()) say(p:wait())', "true exit 0\nnil exited\n"),
    ("a signal", 'local p = pipe.spawn({"sleep", "9"}) say(p:kill(9)) say(p:wait()) say(p:kill(9))', "true\nfalse signal 9\nnil exited\n"),
    ("kill: what cannot be", 'local p = pipe.spawn({"sleep", "9"}) say(p:kill(12345)) say(pcall(p.kill, p, "9")) p:kill(9)',
     "nil invalid signal\nfalse bad signal arg: number expected, got 9\n"),
    ("wait: timeout", 'local p = pipe.spawn({"sleep", "9"}, {wait_timeout = 10}) say(p:wait()) p:set_timeouts(nil, nil, nil, 9000) p:kill(15) say(p:wait())', "nil timeout\nfalse signal 15\n"),
    ("through cat", 'local p = pipe.spawn({"cat"}) say(p:write("abc")) say(p:write({"d", "e"})) say(p:write(12)) say(p:shutdown("stdin")) say(p:stdout_read_all()) say(p:wait())',
     "3\n2\n2\ntrue\nabcde12\ntrue exit 0\n"),
    ("much", 'local p = pipe.spawn({"wc", "-c"}) say(p:write(("x"):rep(1000000))) p:shutdown("stdin") say(p:stdout_read_line())', "1000000\n1000000\n"),
    ("lines", 'local p = pipe.spawn({"printf", "a\\r\\nbb\\nccc"}) for i = 1, 4 do say(p:stdout_read_line()) end', "a\nbb\nnil closed ccc\nnil closed \n"),
    ("long lines", 'local p = pipe.spawn("head -c 100000 /dev/zero | tr \'\\\\0\' x; echo; echo y") say(#p:stdout_read_line(), p:stdout_read_line())', "100000 y\n"),
    ("bytes", 'local p = pipe.spawn({"printf", "abcde"}) say(p:stdout_read_bytes(2)) say(p:stdout_read_bytes(0)) say(p:stdout_read_bytes(9)) say(p:stdout_read_bytes(1))',
     "ab\n\nnil closed cde\nnil closed \n"),
    ("any", 'local p = pipe.spawn({"printf", "abcde"}) say(p:stdout_read_any(2)) say(p:stdout_read_any(1024)) say(p:stdout_read_any(1))', "ab\ncde\nnil closed \n"),
    ("bad amounts", 'local p = pipe.spawn({"true"}) say(pcall(p.stdout_read_any, p, 0)) say(pcall(p.stdout_read_bytes, p, -1)) say(pcall(p.stdout_read_any, p, "x"))',
     "false bad max argument\nfalse bad len argument\nfalse bad max argument\n"),
    ("stderr", 'local p = pipe.spawn("echo out; echo err >&2") say(p:stderr_read_all()) say(p:stdout_read_all())', "err\n\nout\n\n"),
    ("stderr merged", 'local p = pipe.spawn("echo out; echo err >&2", {merge_stderr = true}) say(p:stdout_read_all()) say(p:stderr_read_all()) say(p:shutdown("stderr"))',
     "out\nerr\n\nnil merged to stdout\nnil merged to stdout\n"),
    ("the environment", 'local p = pipe.spawn("echo $A-$HOME", {environ = {"A=b=c"}}) say(p:stdout_read_line())', "b=c-\n"),
    ("bad environments", 'say(pcall(pipe.spawn, "x", {environ = 1})) say(pcall(pipe.spawn, "x", {environ = {1}})) say(pcall(pipe.spawn, "x", {environ = {"=b"}}))',
     ("false bad environ option: table expected, got number\nfalse bad value at index 1 of environ option: string expected, got number\n"
     "false bad value at index 1 of environ option: 'name=[value]' format expected, got '=b'\n")),
    ("bad arguments", 'say(pcall(pipe.spawn)) say(pcall(pipe.spawn, {})) say(pcall(pipe.spawn, "x", {buffer_size = 0})) say(pcall(pipe.spawn, "x", {wait_timeout = -1}))',
     "false bad args arg: table expected, got nil\nfalse bad args arg: non-empty table expected\nfalse bad buffer_size option\nfalse bad wait_timeout option\n"),
    ("numbers are words", 'local p = pipe.spawn({"echo", 1, 2.5}) say(p:stdout_read_line())', "1 2.5\n"),
    ("read: timeout", 'local p = pipe.spawn("printf ab; sleep 9") say(p:stdout_read_bytes(2)) p:set_timeouts(nil, 50) say(p:stdout_read_all()) p:kill(9)', "ab\nnil timeout \n"),
    ("read: a timeout with a part", 'local p = pipe.spawn("printf ab; sleep 9") p:set_timeouts(nil, 1000) say(p:stdout_read_line()) p:kill(9)', "nil timeout ab\n"),
    ("write: timeout", 'local p = pipe.spawn({"sleep", "9"}, {write_timeout = 10}) say(p:write(("x"):rep(1000000))) p:kill(9)', "nil timeout\n"),
    ("write: nobody reads", 'local p = pipe.spawn("exec <&-; echo ready; sleep 9") p:stdout_read_line() say(p:write("x")) p:kill(9)', "nil closed\n"),
    ("after wait all is closed", 'local p = pipe.spawn({"echo", "x"}) p:wait() say(p:stdout_read_all()) say(p:write("x")) say(p:shutdown("stdin"))', "nil closed\nnil closed\nnil closed\n"),
    ("after its end output is still there", 'local p = pipe.spawn({"echo", "x"}) ngx.sleep(0.1) say(p:stdout_read_all()) say(p:wait())', "x\n\ntrue exit 0\n"),
    ("shut twice", 'local p = pipe.spawn({"cat"}) say(p:shutdown("stdin")) say(p:shutdown("stdin")) say(p:write("x")) say(p:wait())', "true\ntrue\nnil closed\ntrue exit 0\n"),
    ("no such direction", 'local p = pipe.spawn({"true"}) say(pcall(p.shutdown, p, "all"))', "false bad shutdown arg: all\n"),
    ("busy and aborted", """
     local p = pipe.spawn({"sleep", "9"})
     local function start(fn, ...) return ngx.thread.spawn(fn, p, ...) end
     local a, b, c = start(p.stdout_read_line), start(p.stderr_read_any, 1), start(p.wait)
     local d = start(p.write, ("x"):rep(1000000))
     say(p:stdout_read_all()) say(p:stderr_read_line()) say(p:wait()) say(p:write("x"))
     say(p:shutdown("stdout")) say(p:shutdown("stderr")) say(p:shutdown("stdin"))
     say(ngx.thread.wait(a)) say(ngx.thread.wait(b)) say(ngx.thread.wait(d))
     p:kill(15)
     say(ngx.thread.wait(c))""",
     ("nil pipe busy reading\nnil pipe busy reading\nnil pipe busy waiting\nnil pipe busy writing\ntrue\ntrue\ntrue\n"
     "true nil aborted \ntrue nil aborted \ntrue nil aborted\ntrue false signal 15\n")),
    ("a reader that was killed", """
     local p = pipe.spawn("sleep 0.05; echo x")
     local t = ngx.thread.spawn(p.stdout_read_line, p)
     ngx.thread.kill(t)
     say(p:stdout_read_line())""", "x\n"),
    ("no such program", 'local p = pipe.spawn({"/no/such/program"}) say(p:wait())', "false exit 1\n"),
    ("pid", 'local p = pipe.spawn("echo $$") say(p:pid() == tonumber((p:stdout_read_line())))', "true\n"),
    ("another self", 'say(pcall(pipe.spawn({"true"}).pid, 1)) say(pcall(pipe.spawn({"true"}).wait, {}))', "false not a process instance\nfalse not a process instance\n"),
    ("a timer", 'local out ngx.timer.at(0, function() local p = pipe.spawn({"echo", "t"}) out = p:stdout_read_line() end) for _ = 1, 500 do if out then break end ngx.sleep(0.01) end say(out)', "t\n"),
]  # fmt: skip
