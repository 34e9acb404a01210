"""Lua snippets and what they print, the same here and in nginx with its Lua module. Each is a content handler.

A row is a name, the code, and the output.
"""

TABLE: list[tuple[str, str, str]] = [
    ("say", 'ngx.say("a", 1, 1.5, true, nil, ngx.null, {"x", {2, "y"}, "z"})', "a11.5truenilnullx2yz\n"),
    ("say nothing", "ngx.say()", "\n"),
    ("print", 'ngx.print("a", "b") ngx.print() ngx.print(3)', "ab3"),
    ("numbers", "ngx.say(1e15, ' ', 2^31, ' ', 0.1, ' ', 1e100, ' ', -7)", "1e+15 2147483648 0.1 1e+100 -7\n"),
    ("sparse tables", "ngx.say({1, nil, 3})", "1nil3\n"),
    (
        "say a hash",
        "local ok, err = pcall(function() ngx.say({a = 1}) end) ngx.say(err:match('%([^()]*%)$'))",
        "(non-array table found)\n",
    ),
    (
        "say a function",
        "local ok, err = pcall(function() ngx.say(print) end) ngx.say(err:match('%([^()]*%)$'))",
        "(string, number, boolean, nil, ngx.null, or array table expected, but got function)\n",
    ),
    ("say returns", "ngx.say(ngx.say('a'))", "a\n1\n"),
    ("eof", "ngx.say('a') ngx.eof() local ok, err = ngx.say('b')", "a\n"),
    ("flush", "ngx.say('a') ngx.say(ngx.flush(true)) ngx.say(ngx.flush())", "a\n1\n1\n"),
    ("headers_sent", "local before = ngx.headers_sent ngx.say(before, ngx.headers_sent)", "falsefalse\n"),
    ("headers_sent after", "ngx.print('') ngx.say(ngx.headers_sent)", "true\n"),
    ("phase", "ngx.say(ngx.get_phase())", "content\n"),
    ("null", "ngx.say(tostring(ngx.null), type(ngx.null), ngx.null == nil)", "userdata: NULLuserdatafalse\n"),
    ("cjson", "local c = require 'cjson' ngx.say(c.null == ngx.null, c.encode({a = ngx.null}))", 'true{"a":null}\n'),
    ("constants", "ngx.say(ngx.OK, ngx.ERROR, ngx.AGAIN, ngx.DONE, ngx.DECLINED)", "0-1-2-4-5\n"),
    ("methods", "ngx.say(ngx.HTTP_GET, ' ', ngx.HTTP_POST, ' ', ngx.HTTP_TRACE)", "2 8 32768\n"),
    ("levels", "ngx.say(ngx.STDERR, ngx.EMERG, ngx.ERR, ngx.WARN, ngx.DEBUG)", "01458\n"),
    ("escape_uri", 'ngx.say(ngx.escape_uri("a b&c=d/é!\'()*~-._+"))', "a%20b%26c%3Dd%2F%C3%A9!'()*~-._%2B\n"),
    ("escape_uri 0", "ngx.say(ngx.escape_uri('/a b?c#d%', 0))", "/a%20b%3Fc%23d%25\n"),
    (
        "unescape_uri",
        "ngx.say(ngx.unescape_uri('b%20r56+7'), ngx.unescape_uri('try %search%%20%again%'))",
        "b r56 7try %search% %again%\n",
    ),
    (
        "encode_args",
        (
            "ngx.say(ngx.encode_args({foo = 3}), '|', ngx.encode_args({['b r'] = 'hello world'}), '|', "
            "ngx.encode_args({baz = {32, 'hello'}}), '|', ngx.encode_args({a = true}), '|', ngx.encode_args({a = false}))"
        ),
        "foo=3|b%20r=hello%20world|baz=32&baz=hello|a|\n",
    ),
    (
        "decode_args",
        (
            "local a = ngx.decode_args('a=1&b&c=%20&a=2&=x&&d=')\n"
            "ngx.say(a.a[1], a.a[2], tostring(a.b), a.c, '|', a.d, '|', tostring(a['']))"
        ),
        "12true ||nil\n",
    ),
    (
        "decode_args limit",
        "local a, err = ngx.decode_args('a=1&b=2&c=3', 2) ngx.say(a.a, a.b, tostring(a.c), err)",
        "12niltruncated\n",
    ),
    (
        "base64",
        (
            "ngx.say(ngx.encode_base64('hello'), ngx.encode_base64('hello', true), ngx.decode_base64('aGVsbG8='), "
            "ngx.decode_base64('aGVsbG8'), tostring(ngx.decode_base64('a')), tostring(ngx.decode_base64('!!!!')))"
        ),
        "aGVsbG8=aGVsbG8hellohellonilnil\n",
    ),
    (
        "md5",
        "ngx.say(ngx.md5('hello'), ngx.md5(''))",
        "5d41402abc4b2a76b9719d911017c592d41d8cd98f00b204e9800998ecf8427e\n",
    ),
    (
        "md5_bin",
        "ngx.say(#ngx.md5_bin('a'), ngx.encode_base64(ngx.sha1_bin('hello')))",
        "16qvTGHdzF6KLavt4PO0gs2a6pQ00=\n",
    ),
    (
        "hmac_sha1",
        "ngx.say(ngx.encode_base64(ngx.hmac_sha1('thisisverysecretstuff', 'some string we want to sign')))",
        "R/pvxzHC4NLtj7S+kXFg/NePTmk=\n",
    ),
    ("crc32", "ngx.say(ngx.crc32_short('hello'), ' ', ngx.crc32_long('hello'))", "907060870 907060870\n"),
    ("quote_sql_str", r"ngx.say(ngx.quote_sql_str('a\'b\nc\\d\0\"'))", "'a\\'b\\nc\\\\d\\0\\\"'\n"),
    (
        "http_time",
        "ngx.say(ngx.http_time(1290079655), ngx.cookie_time(1290079655))",
        "Thu, 18 Nov 2010 11:27:35 GMTThu, 18-Nov-10 11:27:35 GMT\n",
    ),
    (
        "parse_http_time",
        "ngx.say(ngx.parse_http_time('Thu, 18 Nov 2010 11:27:35 GMT'), tostring(ngx.parse_http_time('x')))",
        "1290079655nil\n",
    ),
    (
        "times",
        "ngx.say(type(ngx.now()), type(ngx.time()), #ngx.today(), #ngx.localtime(), #ngx.utctime())",
        "numbernumber101919\n",
    ),
    ("sleep", "local t = ngx.now() ngx.sleep(0.02) ngx.update_time() ngx.say(ngx.now() - t >= 0.019)", "true\n"),
    ("status", "ngx.status = 201 ngx.say(ngx.status)", "201\n"),
    (
        "header",
        "ngx.header['X-A'] = 'b' ngx.header.x_c = {'1', '2'} ngx.say(ngx.header.x_a, #ngx.header['x-c'])",
        "b2\n",
    ),
    ("header cleared", "ngx.header.X = 'b' ngx.header.X = nil ngx.say(tostring(ngx.header.X))", "nil\n"),
    ("content type", "ngx.header.content_type = 'text/html' ngx.say(ngx.header['Content-Type'])", "text/html\n"),
    (
        "var",
        "ngx.say(ngx.var.uri:sub(1, 1), ngx.var.arg_a, ngx.var.request_method, tostring(ngx.var.nope))",
        "/GETnil\n",
    ),
    ("var args", "ngx.say(ngx.var.args, ngx.var.is_args)", "a=&b=1%202&a=3?\n"),
    ("method", "ngx.say(ngx.req.get_method(), ngx.req.http_version(), ngx.req.is_internal())", "GET1.1false\n"),
    ("uri args", "local a = ngx.req.get_uri_args() ngx.say(a.a[1], a.a[2], a.b)", "31 2\n"),
    ("set uri args", "ngx.req.set_uri_args({x = 'y z'}) ngx.say(ngx.var.args)", "x=y%20z\n"),
    (
        "req headers",
        "local h = ngx.req.get_headers() ngx.say(h.host, h.X_Some, h['x-some'], #h['x-two'])",
        "localhostvaluevalue2\n",
    ),
    (
        "req header set",
        (
            "ngx.req.set_header('X-Some', 'new') ngx.req.clear_header('X-Two') "
            "local h = ngx.req.get_headers() ngx.say(h['x-some'], tostring(h['x-two']), ngx.var.http_x_some)"
        ),
        "newnilnew\n",
    ),
    (
        "raw header",
        "ngx.print(ngx.req.raw_header():match('^GET /%S+'):sub(-12), '|', ngx.req.raw_header(true):sub(1, 4))",
        "&b=1%202&a=3|Host",
    ),
    ("no body", "ngx.req.read_body() ngx.say(tostring(ngx.req.get_body_data()))", "nil\n"),
    ("ctx", "ngx.ctx.a = 1 ngx.ctx.b = {} ngx.say(ngx.ctx.a, type(ngx.ctx.b), tostring(ngx.ctx.c))", "1tablenil\n"),
    (
        "coroutines",
        (
            "local co = coroutine.wrap(function(a) local b = coroutine.yield(a + 1) return b * 2 end) "
            "ngx.say(co(1), co(21))"
        ),
        "242\n",
    ),
    (
        "coroutine status",
        (
            "local co co = coroutine.create(function() ngx.print(coroutine.status(co)) end) "
            "ngx.print(coroutine.status(co)) coroutine.resume(co) ngx.say(coroutine.status(co))"
        ),
        "suspendedrunningdead\n",
    ),
    (
        "coroutine error",
        "local co = coroutine.create(function() error('x', 0) end) ngx.say(coroutine.resume(co))",
        "falsex\n",
    ),
    (
        "sleep in a coroutine",
        (
            "local co = coroutine.create(function(a) ngx.sleep(0.001) local b = coroutine.yield(a) "
            "ngx.sleep(0.001) return b end) ngx.say(coroutine.resume(co, 1)) ngx.say(coroutine.resume(co, 2)) "
            "ngx.say(coroutine.resume(co))"
        ),
        "true1\ntrue2\nfalsecannot resume dead coroutine\n",
    ),
    (
        "threads",
        (
            "local function f(n) ngx.sleep(0.06 * n) ngx.say('f', n) return n end\n"
            "local a, b = ngx.thread.spawn(f, 2), ngx.thread.spawn(f, 1)\n"
            "ngx.say(coroutine.status(a)) ngx.say(ngx.thread.wait(a, b)) ngx.say(ngx.thread.wait(a))"
        ),
        "running\nf1\ntrue1\nf2\ntrue2\n",
    ),
    (
        "thread ended",
        (
            "local t = ngx.thread.spawn(function() return 1, 2 end) ngx.say(coroutine.status(t))\n"
            "ngx.say(ngx.thread.wait(t)) ngx.say(coroutine.status(t)) ngx.say(ngx.thread.wait(t))"
        ),
        "zombie\ntrue12\ndead\nnilalready waited or killed\n",
    ),
    (
        "thread killed",
        (
            "local t = ngx.thread.spawn(function() ngx.sleep(60) end) ngx.say(ngx.thread.kill(t)) "
            "ngx.say(ngx.thread.kill(t))"
        ),
        "1\nnilalready waited or killed\n",
    ),
    (
        "thread yields",
        (
            "local t = ngx.thread.spawn(function() ngx.say('a') coroutine.yield() ngx.say('c') end) "
            "ngx.say('b') ngx.thread.wait(t) ngx.say('d')"
        ),
        "a\nb\nc\nd\n",
    ),
    (
        "thread failing",
        "local t = ngx.thread.spawn(function() error('oops', 0) end) ngx.say(ngx.thread.wait(t))",
        "falseoops\n",
    ),
    ("exit in a thread", "ngx.thread.spawn(function() ngx.say('a') ngx.exit(0) end) ngx.say('never')", "a\n"),
    ("exit", "ngx.say('a') ngx.exit(200) ngx.say('never')", "a\n"),
    (
        "timer",
        (
            "local done ngx.timer.at(0, function(premature, a, b) done = {premature, a, b} end, 'x', nil) "
            "ngx.sleep(0.02) ngx.say(done[1], done[2])"
        ),
        "falsex\n",
    ),
    ("worker", "ngx.say(type(ngx.worker.pid()), ngx.worker.count(), ngx.worker.exiting())", "number1false\n"),
    (
        "config",
        "ngx.say(ngx.config.subsystem, type(ngx.config.debug), type(ngx.config.prefix()))",
        "httpbooleanstring\n",
    ),
    ("resty.core", "require 'resty.core' require 'resty.core.base' ngx.say('ok')", "ok\n"),
    (
        "resty.core.base",
        (
            "local b, ffi = require 'resty.core.base', require 'ffi' "
            "local one, own = b.get_string_buf(10), b.get_string_buf(10, true) "
            "ngx.say(one == b.get_string_buf(20), one == own, ffi.sizeof(own), b.get_string_buf_size()) "
            "b.set_string_buf_size(8192) ngx.say(ffi.sizeof(b.get_string_buf(1)), #ffi.string(b.get_string_buf(9000), 9000)) "
            "b.set_string_buf_size(4096) b.get_size_ptr()[0] = 7 ngx.say(tonumber(b.get_size_ptr()[0]), b.get_errmsg_ptr() ~= nil) "
            "local t = {} ngx.say(b.ref_in_table(t, 'a'), b.ref_in_table(t, nil), b.ref_in_table(t, 'b'), t[1]) "
            "ngx.say(b.allows_subsystem('http', 'stream'), select(2, pcall(function() b.allows_subsystem('stream') end)):match('unsupp.*'))"
        ),
        "truefalse104096\n81929000\n7true\n1-12a\nnilunsupported subsystem: http\n",
    ),
    (
        "semaphore",
        (
            "local s = require('ngx.semaphore').new(1) ngx.say(s:wait(0)) ngx.say(s:wait(0.001)) "
            "ngx.thread.spawn(function() ngx.sleep(0.005) s:post(1) end) ngx.say(s:wait(5), s:count())"
        ),
        "true\nfalsetimeout\ntrue0\n",
    ),
    (
        "redirect unsafe",
        "local ok, err = pcall(function() ngx.redirect('/\\r\\nB: c') end) ngx.say(err:match('unsafe byte .*'))",
        'unsafe byte "0x0d" in redirect uri "/\\x0D\\x0AB: c"\n',
    ),
    (
        "set_uri unsafe",
        (
            "local ok, err = pcall(function() ngx.req.set_uri('/ HTTP/1.1\\r\\nB: c') end) "
            "ngx.say(err:match('unsafe byte \"0x..\"'))"
        ),
        'unsafe byte "0x0d"\n',
    ),
    (
        "closed socket",
        (
            "local s = ngx.socket.tcp() ngx.say(s:send('a')) ngx.say(s:receive()) ngx.say(s:close()) "
            "ngx.say(s:setkeepalive()) ngx.say(s:getreusedtimes())"
        ),
        "nilclosed\n" * 5,
    ),
    (
        "connect errors",
        (
            "local s = ngx.socket.tcp() ngx.say(s:connect('127.0.0.1')) ngx.say(s:connect('127.0.0.1', 70000)) "
            "ngx.say(s:connect('unix:/nonexistent'))"
        ),
        "nilmissing the port number\nnilbad port number: 70000\nnilno such file or directory\n",
    ),
]
