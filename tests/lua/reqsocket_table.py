"""ngx.req.socket, snippet by snippet: the code of /case, the bytes of a client, and what it must get back.

The same here and in nginx with its Lua module.
"""

LOCATIONS = """
location = /sub { content_by_lua_block { ngx.print(pcall(ngx.req.socket)) } }
"""

SHOW = """
    local sock, err = ngx.req.socket(%s)
    if not sock then ngx.say("none: ", err) return end
"""
BODY = SHOW % ""
RAW = """
    local sock, err = ngx.req.socket(true)
    if not sock then ngx.log(ngx.ERR, "none: ", err) return end
"""
POST = "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 11\r\n\r\nhello world"
CHUNKED = (
    "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    "3\r\nabc\r\n5\r\nd\r\nef\r\n0\r\n\r\n"
)
GET = "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
SWITCH = "ngx.status = 101 ngx.send_headers() ngx.flush(true)"

TABLE: list[tuple[str, str, str, str]] = [
    (
        "receive",
        BODY + "for _ = 1, 4 do ngx.say(sock:receive(5)) end",
        POST,
        "hello\n worl\nnilclosedd\nnilclosed\n",
    ),
    ("all", BODY + "ngx.say(sock:receive('*a'))", POST, "hello world\n"),
    ("until", BODY + "local r = sock:receiveuntil('o') ngx.say(r(), r(), r())", POST, "hell wnilclosedrld\n"),
    ("any", BODY + "ngx.say(sock:receiveany(4), sock:receiveany(100))", POST, "hello world\n"),
    ("methods", BODY + "ngx.say(sock.send, sock.close, sock.connect, sock.setkeepalive)", POST, "nilnilnilnil\n"),
    ("twice", BODY + "ngx.say(ngx.req.socket())", POST, "nilrequest body already exists\n"),
    ("after read_body", "ngx.req.read_body()" + BODY, POST, "none: request body already exists\n"),
    ("after discard_body", "ngx.req.discard_body() ngx.say(ngx.req.socket())", POST, "nilno body\n"),
    (
        "read_body after it",
        BODY + "ngx.req.read_body() ngx.say(ngx.req.get_body_data())",
        POST,
        "nil\n",
    ),
    ("no body", BODY, GET, "none: no body\n"),
    ("chunked", BODY, CHUNKED, "none: chunked request bodies not supported yet\n"),
    ("arguments", "ngx.say(pcall(ngx.req.socket, 1, 2))", GET, "falseexpecting zero arguments, but got 2\n"),
    (
        "in a subrequest",
        "ngx.print(ngx.location.capture('/sub').body)",
        GET,
        "falseattempt to read the request body in a subrequest",
    ),
    (
        "raw: the body comes first",
        RAW + "local data = sock:receive(5) sock:send('HTTP/1.1 200 OK\\r\\n\\r\\n<' .. data .. '>')",
        POST,
        "<hello>",
    ),
    (
        "raw: chunks as they stand on the wire",
        RAW
        + "local lines = {} for i = 1, 8 do lines[i] = sock:receive() or 'nil' end "
        + "sock:send('HTTP/1.1 200 OK\\r\\n\\r\\n' .. table.concat(lines, ','))",
        CHUNKED,
        "3,abc,5,d,ef,0,,nil",
    ),
    (
        "raw: after the header",
        SWITCH + RAW + "sock:send('1') sock:send({'2', {3}}) ngx.say(sock:receive(3))",
        GET + "abc",
        "123",
    ),
    (
        "raw: both ways at once",
        SWITCH
        + RAW
        + """
        local t = ngx.thread.spawn(function() local d = sock:receive("*a") sock:send("[" .. d .. "]") end)
        for i = 1, 3 do sock:send(i) end
        ngx.thread.wait(t)
        """,
        GET + "abc",
        "[abc]123",
    ),
    (
        "raw: no output beside it",
        SWITCH
        + RAW
        + """
        local out = {}
        for _, name in ipairs{"say", "print", "flush", "eof"} do
            local ok, why = ngx[name]()
            out[#out + 1] = tostring(ok) .. ":" .. tostring(why)
        end
        sock:send(table.concat(out, ","))
        """,
        GET,
        ",".join(["nil:raw request socket acquired"] * 4),
    ),
    (
        "raw: once",
        SWITCH + RAW + "local again, why = ngx.req.socket(true) sock:send(tostring(again) .. why)",
        GET,
        "nilduplicate call",
    ),
    (
        "raw: methods",
        SWITCH + RAW + "sock:send(tostring(sock.close) .. tostring(sock.connect))",
        GET,
        "nilnil",
    ),
    (
        "raw: a read that times out",
        SWITCH
        + RAW
        + "sock:settimeout(20) local a, b, c = sock:receive(5) sock:send(tostring(a) .. b .. c) "
        + "sock:settimeout(5000) sock:send((select(2, sock:receive(9))))",
        GET + "abc",
        "niltimeoutabcclosed",
    ),
]
