"""Subrequests, snippet by snippet: the code of /case, and its output here and in nginx with its Lua module."""

LOCATIONS = r"""
location = /hello { content_by_lua_block { ngx.print("hello") } }
location = /args { content_by_lua_block { ngx.print(ngx.var.uri, "?", ngx.var.args) } }
location = /method { content_by_lua_block { ngx.print(ngx.req.get_method(), " ", ngx.var.request_method) } }
location = /body { content_by_lua_block {
    ngx.req.read_body() ngx.print(ngx.req.get_body_data() or "none", ",", ngx.var.http_content_length or "-") } }
location = /status { content_by_lua_block { ngx.status = 404 ngx.print("mine") } }
location = /exit404 { content_by_lua_block { return ngx.exit(404) } }
location = /exit500 { return 500; }
location = /moved { return 302 /hello; }
location = /twice { content_by_lua_block { ngx.header["X-A"] = {"1", "2"} ngx.header.x_b = "b" ngx.print("") } }
location = /type { default_type text/css; content_by_lua_block { ngx.print("a{}") } }
location = /sub { content_by_lua_block { ngx.print(tostring(ngx.is_subrequest), tostring(ngx.req.is_internal())) } }
location = /ctx { content_by_lua_block { ngx.ctx.n = (ngx.ctx.n or 0) + 1 ngx.print(ngx.ctx.n) } }
location = /vars { set $a ""; set $b ""; content_by_lua_block { ngx.print(ngx.var.a, "-", ngx.var.b) ngx.var.b = "changed" } }
location = /clear { set $a a; set $b "b"; content_by_lua_block { ngx.print(ngx.var.b) ngx.var.b = nil ngx.print(tostring(ngx.var.b)) } }
location = /nested { content_by_lua_block { ngx.print("<", ngx.location.capture("/hello").body, ">") } }
location = /redirected { rewrite ^ /hello last; }
location = /exec { content_by_lua_block { return ngx.exec("/hello") } }
location = /header { content_by_lua_block { ngx.print(ngx.var.http_x_some, ngx.req.get_headers()["X-Some"]) } }
location = /internal { internal; content_by_lua_block { ngx.print("inner") } }
location = /filtered { header_filter_by_lua_block { ngx.header.x_f = "f" } body_filter_by_lua_block { ngx.arg[1] = ngx.arg[1]:upper() }
    content_by_lua_block { ngx.print("abc") } }
location = /fault { content_by_lua_block { error("x") } }
location = /late { content_by_lua_block { ngx.sleep(0.02) ngx.print("late") } }
location = /eof { content_by_lua_block { ngx.print("a") ngx.eof() } }
location = /abc.txt { root html; }
"""

C = "local r = ngx.location.capture"
TABLE: list[tuple[str, str, str]] = [
    ("capture", C + "('/hello') ngx.say(r.status, ' ', r.body, ' ', r.truncated)", "200 hello false\n"),
    ("args in the uri", C + "('/args?a=1') ngx.say(r.body)", "/args?a=1\n"),
    ("args table", C + "('/args', {args = {a = 3}}) ngx.say(r.body)", "/args?a=3\n"),
    ("args both", C + "('/args?x=1', {args = 'y=2'}) ngx.say(r.body)", "/args?x=1&y=2\n"),
    ("no args", C + "('/args') ngx.say(r.body)", "/args?nil\n"),
    ("method", C + "('/method', {method = ngx.HTTP_DELETE}) ngx.say(r.body)", "DELETE POST\n"),
    ("default method", C + "('/method') ngx.say(r.body)", "GET POST\n"),
    ("head", C + "('/hello', {method = ngx.HTTP_HEAD}) ngx.say(r.status, '[', r.body, ']')", "200[]\n"),
    ("body", C + "('/body', {method = ngx.HTTP_POST, body = 'data'}) ngx.say(r.body)", "data,4\n"),
    ("own body is not forwarded by GET", "ngx.req.read_body() " + C + "('/body') ngx.say(r.body)", "none,-\n"),
    (
        "own body by POST",
        "ngx.req.read_body() " + C + "('/body', {method = ngx.HTTP_POST}) ngx.say(r.body)",
        "posted,6\n",
    ),
    (
        "own body always",
        "ngx.req.read_body() " + C + "('/body', {always_forward_body = true}) ngx.say(r.body)",
        "posted,6\n",
    ),
    ("status", C + "('/status') ngx.say(r.status, r.body)", "404mine\n"),
    ("exit", C + "('/exit404') ngx.say(r.status, '[', r.body, ']')", "404[]\n"),
    ("return", C + "('/exit500') ngx.say(r.status, '[', r.body, ']')", "500[]\n"),
    ("not there", C + "('/nothing/there') ngx.say(r.status, '[', r.body, ']')", "404[]\n"),
    ("redirect", C + "('/moved') ngx.say(r.status, r.header.Location)", "302/hello\n"),
    ("fault", C + "('/fault') ngx.say(r.status, '[', r.body, ']')", "500[]\n"),
    ("headers", C + "('/twice') ngx.say(table.concat(r.header['X-A'], ','), r.header['x-b'])", "1,2b\n"),
    ("content type", C + "('/type') ngx.say(r.header['Content-Type'])", "text/css\n"),
    ("is_subrequest", C + "('/sub') ngx.say(r.body, ngx.is_subrequest)", "truetruefalse\n"),
    ("ctx is its own", "ngx.ctx.n = 5 " + C + "('/ctx') ngx.say(r.body, ngx.ctx.n)", "15\n"),
    ("ctx given", "local c = {n = 7} " + C + "('/ctx', {ctx = c}) ngx.say(r.body, c.n)", "88\n"),
    ("ctx shared", "ngx.ctx.n = 1 " + C + "('/ctx', {ctx = ngx.ctx}) ngx.say(r.body, ngx.ctx.n)", "22\n"),
    ("vars", C + "('/vars', {vars = {b = 2}}) ngx.say(r.body)", "-\n"),
    ("nested", C + "('/nested') ngx.say(r.body)", "<hello>\n"),
    ("rewrite", C + "('/redirected') ngx.say(r.body)", "hello\n"),
    ("exec", C + "('/exec') ngx.say(r.body)", "hello\n"),
    ("headers of the parent", C + "('/header') ngx.say(r.body)", "valuevalue\n"),
    ("internal", C + "('/internal') ngx.say(r.body)", "inner\n"),
    ("filters", C + "('/filtered') ngx.say(r.body, r.header['x-f'])", "ABCf\n"),
    ("waiting", C + "('/late') ngx.say(r.body)", "late\n"),
    ("eof", C + "('/eof') ngx.say(r.body)", "a\n"),
    (
        "multi",
        "local a, b, c = ngx.location.capture_multi{{'/late'}, {'/hello'}, {'/args', {args = 'x'}}} ngx.say(a.body, b.body, c.body)",
        "latehello/args?x\n",
    ),
    (
        "in a thread",
        "local t = ngx.thread.spawn(function() return ngx.location.capture('/late').body end) ngx.say(ngx.location.capture('/hello').body) ngx.say(ngx.thread.wait(t))",
        "hello\ntruelate\n",
    ),
    (
        "none",
        "ngx.say((select(2, pcall(ngx.location.capture_multi, {}))):match('at least.*'))",
        "at least one subrequest should be specified\n",
    ),
    (
        "bad method",
        "ngx.say((select(2, pcall(ngx.location.capture, '/', {method = 'X'}))):match('Bad.*'))",
        "Bad http request method\n",
    ),
    (
        "bad args",
        "ngx.say((select(2, pcall(ngx.location.capture, '/', {args = 1 == 1}))):match('Bad.*'))",
        "Bad args option value\n",
    ),
    (
        "unsafe",
        "ngx.say((select(2, pcall(ngx.location.capture, '/../x'))):match('unsafe.*'))",
        "unsafe uri in argument #1: /../x\n",
    ),
    (
        "a variable that is nil",
        "local r = ngx.location.capture('/clear') ngx.print(r.body)",
        "bnil",
    ),
    ("output before and after", "ngx.say('a') " + C + "('/hello') ngx.say(r.body)", "a\nhello\n"),
    (
        "no way out while subrequests run",
        """
        local threads = {}
        for i = 1, 2 do threads[i] = ngx.thread.spawn(function() return ngx.location.capture("/late") end) end
        ngx.say((select(2, pcall(ngx.exit, 200)):match("attempt.*")))
        ngx.say((select(2, pcall(ngx.exit, 0)):match("attempt.*")))
        ngx.say((select(2, ngx.thread.kill(threads[1]))))
        for i = 1, 2 do ngx.say((select(2, ngx.thread.wait(threads[i]))).body) end
        ngx.exit(ngx.OK)
        """,
        "attempt to abort with pending subrequests\n" * 2 + "pending subrequests\nlate\nlate\n",
    ),
    (
        "no way elsewhere while subrequests run",
        """
        local thread = ngx.thread.spawn(function() return ngx.location.capture("/late") end)
        local one = select(2, pcall(ngx.exec, "/hello")):match("attempt.*")
        local two = select(2, pcall(ngx.redirect, "/hello")):match("attempt.*")
        local ok, res = ngx.thread.wait(thread)
        ngx.say(one, " ", two, " ", res.body)
        """,
        "attempt to abort with pending subrequests attempt to abort with pending subrequests late\n",
    ),
]
