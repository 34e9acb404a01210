"""Lua in the gateway: ngx_lua's API on LuaJIT, with cosockets that own their connections.

    directives.py  the family of directives; builds one Runtime for a configuration
    runtime.py     the VM of a worker: chunks, life, figures, and what bounds a handler that never yields
    vm.py          LuaJIT by lupa, and the prelude loaded into it
    handlers.py    request -> run(chunk, handle) -> output or code; a future only when the run waits
    sched.py       what Lua asks of the loop: readiness, one timer, turns, names
    loopfd.py      the loop's own epoll descriptor, for sockets that retry
    paths.py       where modules are found
    api/           what Lua calls in Python, one file a group
    prelude/       the Lua side, where most of the work is: buffers, escaping, the scheduler, cosockets over FFI

A byte of a cosocket: cosocket.lua (send, receive) -> io.lua (send(2), recv(2) by FFI, retry) -> wait.lua (park) ->
sched.py (the loop). A byte of the answer: output.lua (the request's buffer in Lua) -> edge.request (its chain).
"""
