"""Libraries that no package brings, unmodified: a test for each, from the checkouts in HEADRACE_LUA_LIBRARIES."""

from __future__ import annotations

import os

import pytest
from libs_rig import LIBRARIES, library_paths

pytestmark = [pytest.mark.peer, pytest.mark.checkouts]


@pytest.fixture
def http():
    """Directives of the http block: where the checkouts are."""
    return f'lua_package_path "{library_paths()};;"; lua_shared_dict store 1m;'


def checkout(*names: str) -> None:
    for name in names:
        if not os.path.isdir(os.path.join(os.environ[LIBRARIES], name)):
            pytest.skip(f"{name} is not in {LIBRARIES}")


async def test_lock(gateway, http):
    checkout("lua-resty-lock")
    await gateway.content(
        """
        local lock = require "resty.lock"
        local one, two = lock:new("store", {timeout = 0}), lock:new("store", {timeout = 5, step = 0.001})
        ngx.say(one:lock("k"))
        ngx.say(lock:new("store", {timeout = 0}):lock("k"))
        local waiter = ngx.thread.spawn(function() return (two:lock("k")) > 0, two:unlock() end)
        ngx.sleep(0.005)
        ngx.say(one:unlock())
        ngx.say(ngx.thread.wait(waiter))
        ngx.say(one:unlock())
        ngx.say(one:expire(1))
        """,
        http=http,
    )
    assert (await gateway.get()).text.splitlines() == [
        "0", "niltimeout", "1", "truetrue1", "nilunlocked", "nilunlocked",
    ], gateway.log()  # fmt: skip


async def test_limit_traffic(gateway, http):
    checkout("lua-resty-limit-traffic")
    await gateway.content(
        """
        local req = require "resty.limit.req".new("store", 1, 1)
        ngx.say(req:incoming("a", true))
        local delay, excess = req:incoming("a", true)
        ngx.say(delay > 0.9 and delay <= 1, excess > 0.9)
        ngx.say(req:incoming("a", true))
        local conn = require "resty.limit.conn".new("store", 1, 1, 0.5)
        ngx.say(conn:incoming("b", true), conn:incoming("b", true))
        ngx.say(conn:incoming("b", true))
        ngx.say(conn:leaving("b", 0.5))
        local count = require "resty.limit.count".new("store", 2, 10)
        for _ = 1, 3 do
            ngx.say(count:incoming("c", true))
        end
        local limit = require "resty.limit.traffic"
        ngx.say(limit.combine({req, conn}, {"x", "y"}, {}))
        """,
        http=http,
    )
    assert (await gateway.get()).text.splitlines() == [
        "00", "truetrue", "nilrejected", "00.52", "nilrejected", "1", "01", "00", "nilrejected", "0",
    ], gateway.log()  # fmt: skip


async def test_upload(gateway, http):
    checkout("lua-resty-upload")
    await gateway.content(
        """
        local form = assert(require "resty.upload":new(7))
        form:set_timeout(5000)
        while true do
            local kind, res = form:read()
            ngx.say(kind, " ", require "cjson".encode(res))
            if kind == "eof" then break end
        end
        """,
        http=http,
    )
    body = (
        b'--xyz\r\nContent-Disposition: form-data; name="a"\r\n\r\nshort\r\n'
        b'--xyz\r\nContent-Disposition: form-data; name="f"; filename="f"\r\nContent-Type: text/plain\r\n\r\n'
        b"longer than one\r\n--xyz--\r\n"
    )
    answer = await gateway.get("/", "Content-Type: multipart/form-data; boundary=xyz", method="POST", body=body)
    kinds = [line.split(" ", 1) for line in answer.text.splitlines()]
    text = "".join(value.strip('"') for kind, value in kinds if kind == "body")
    assert text == "shortlonger than one", gateway.log()
    assert [kind for kind, _ in kinds] == [
        "header",
        "body",
        "part_end",
        "header",
        "header",
        "body",
        "body",
        "body",
        "part_end",
        "eof",
    ]


MYSQL = """
    local mysql = require "resty.mysql"
    local function open(options)
        local db = assert(mysql:new())
        db:set_timeout(10000)
        options.database, options.max_packet_size = "db", 32 * 1024 * 1024
        local ok, err, number, state = db:connect(options)
        if not ok then return nil, err, number, state end
        return db
    end
    local db = assert(open{host = "127.0.0.1", port = %(port)d, user = "native", password = "secret"})
    ngx.say(db:query("drop table if exists t").affected_rows)
    db:query("create table t (id int primary key auto_increment, name varchar(20), n decimal(5, 2), b longblob, e text)")
    local res = db:query("insert into t (name, n, b) values ('a', 1.5, 'x'), (" .. ngx.quote_sql_str("o'b\\n") .. ", -2, null)")
    ngx.say(res.affected_rows, " ", res.insert_id)
    for _, row in ipairs(db:query("select id, name, n, e from t order by id")) do
        ngx.say(row.id, " ", (row.name:gsub("\\n", "N")), " ", row.n, " ", row.e == ngx.null)
    end
    local big = ("0123456789abcdef"):rep(1024 * 600)
    ngx.say(db:query("insert into t (b) values ('" .. big .. "')").affected_rows)
    ngx.say(db:query("select b from t where id = 3")[1].b == big)
    ngx.say(db:query("select nothing from nowhere"))
    local many, err = db:query("select 1 as a; select 2 as b; select 3 as c")
    ngx.say(many[1].a, err)
    many, err = db:read_result() ngx.say(many[1].b, err)
    many, err = db:read_result() ngx.say(many[1].c, err)
    ngx.say(#db:query("with recursive s as (select 1 n union all select n + 1 from s where n < 900) select n from s"))
    ngx.say(db:set_keepalive(10000, 10))
    db = assert(open{path = "%(path)s", user = "modern", password = "secret"})
    ngx.say(db:get_reused_times(), db:query("select 'ed25519' as a")[1].a, db:close())
    ngx.say(open{path = "%(path)s", user = "native", password = "wrong"})
    db = assert(open{host = "127.0.0.1", port = %(port)d, user = "native", password = "secret"})
    ngx.say(db:get_reused_times())
"""


async def test_mysql(gateway, http, mariadb):
    checkout("lua-resty-mysql")
    port, path = mariadb
    await gateway.content(MYSQL % {"port": port, "path": path}, http=http)
    lines = (await gateway.get()).text.splitlines()
    assert lines[:6] == ["0", "2 1", "1 a 1.5 true", "2 o'bN -2 true", "1", "true"], gateway.log()
    assert lines[6] == "nilTable 'db.nowhere' doesn't exist114642S02"
    assert lines[7:12] == ["1again", "2again", "3nil", "900", "1"]
    assert lines[12] == "0ed255191"
    assert lines[13].startswith("nilAccess denied for user 'native'@'localhost'")
    assert lines[14] == "1"


PGMOON = """
    local function open(user, more)
        local options = {host = "127.0.0.1", port = %(port)d, database = "db", user = user, password = "secret"}
        for key, value in pairs(more or {}) do options[key] = value end
        local pg = require "pgmoon".new(options)
        pg:settimeout(10000)
        local ok, err = pg:connect()
        if not ok then return nil, err end
        return pg
    end
    local pg = assert(open "md5")
    assert(pg:query "create table if not exists t (id serial primary key, name text, at timestamptz, list int[], data jsonb)")
    ngx.say(pg:query("insert into t (name, list, data) values (" .. pg:escape_literal "o'b" .. ", '{1,2}', '{\\"a\\": [1]}')").affected_rows)
    local row = pg:query "select * from t"[1]
    ngx.say(row.id, row.name, row.list[2], row.data.a[1], row.at)
    ngx.say(pg:query("select $1::text as a, $2::int + 1 as b", "x", 41)[1].b)
    ngx.say((select(2, pg:query "select nothing")))
    ngx.say(pg:query("select repeat('x', 3000000) as big")[1].big == ("x"):rep(3000000))
    ngx.say(#pg:query "select generate_series(1, 5000) as n")
    ngx.say(pg:keepalive())
    local listener, sender = assert(open "scram"), assert(open "md5")
    listener:query "listen news"
    sender:query "notify news, 'hello'"
    local note = listener:wait_for_notification()
    ngx.say(note.channel, note.payload)
    ngx.say(open("scram", {password = "wrong"}))
    ngx.say(open("md5", {password = "wrong"}))
    local tls = assert(open("md5", {ssl = true, ssl_required = true}))
    local plus = assert(open("tls", {ssl = true, ssl_required = true}))
    ngx.say(plus:query "select current_user as who"[1].who)
    ngx.say(tls:query "select ssl from pg_stat_ssl where pid = pg_backend_pid()"[1].ssl)
"""


async def test_pgmoon(gateway, http, postgres):
    checkout("pgmoon", "lua-resty-openssl")
    await gateway.content(PGMOON % {"port": postgres}, http=http)
    lines = (await gateway.get()).text.splitlines()
    assert lines == [
        "1", "1o'b21nil", "42", 'ERROR: column "nothing" does not exist (8)', "true", "5000", "1", "newshello",
        "nilauthentication exchange unsuccessful",
        'nilFATAL: password authentication failed for user "md5"', "tls", "true",
    ], gateway.log()  # fmt: skip


async def test_http(gateway, http):
    checkout("lua-resty-http")
    path = gateway.path
    await gateway.start(
        f"""
        location /get {{ content_by_lua_block {{
            ngx.header["X-Seen"] = ngx.var.http_x_asked
            ngx.say(ngx.req.get_method(), " ", ngx.var.args)
        }} }}
        location /echo {{ client_body_buffer_size 128k; content_by_lua_block {{ ngx.req.read_body() ngx.print(ngx.req.get_body_data()) }} }}
        location /chunked {{ content_by_lua_block {{ for i = 1, 3 do ngx.print(("x"):rep(i)) ngx.flush(true) end }} }}
        location / {{ content_by_lua_block {{
            local function open()
                local http = require("resty.http").new()
                assert(http:connect {{host = "unix:{path}"}})
                return http
            end
            local http = open()
            local res = assert(http:request {{path = "/get?a=1", headers = {{Host = "x", ["X-Asked"] = "yes"}}}})
            ngx.say(res.status, res.headers["x-seen"], " ", res:read_body())
            res = assert(http:request {{path = "/echo", method = "POST", body = ("b"):rep(100000), headers = {{Host = "x"}}}})
            ngx.say(#res:read_body(), http:set_keepalive())
            http = open()
            res = assert(http:request {{path = "/chunked", headers = {{Host = "x"}}}})
            local sizes = {{}}
            while true do
                local chunk = res.body_reader(2)
                if not chunk then break end
                sizes[#sizes + 1] = #chunk
            end
            ngx.say(http:get_reused_times(), " ", table.concat(sizes, ","))
            local all = http:request_pipeline {{{{path = "/get?1", headers = {{Host = "x"}}}}, {{path = "/get?2", headers = {{Host = "x"}}}}}}
            for _, one in ipairs(all) do ngx.say(one.status, (one:read_body())) end
        }} }}
        """,
        http=http,
    )
    answer = await gateway.get()
    assert answer.text.split() == [
        "200yes", "GET", "a=1", "1000001", "1", "1,2,2,1", "200GET", "1", "200GET", "2",
    ], gateway.log()  # fmt: skip


async def test_jwt(gateway, http):
    checkout("lua-resty-jwt", "lua-resty-openssl")
    await gateway.content(
        """
        local jwt = require "resty.jwt"
        local token = jwt:sign("key", {header = {typ = "JWT", alg = "HS256"}, payload = {foo = "bar"}})
        ngx.say(token)
        local seen = jwt:verify("key", token)
        ngx.say(seen.verified, seen.payload.foo)
        ngx.say(jwt:verify("other", token).reason)
        local key = require("resty.openssl.pkey").new{type = "RSA", bits = 2048}
        token = jwt:sign(key:to_PEM("private"), {header = {alg = "RS256"}, payload = {a = 1}})
        ngx.say(jwt:verify(key:to_PEM("public"), token).verified)
        """,
        http=http,
    )
    lines = (await gateway.get()).text.splitlines()
    assert lines[1:] == ["truebar", "signature mismatch: " + lines[0].rpartition(".")[2], "true"], gateway.log()


async def test_openssl(gateway, http):
    checkout("lua-resty-openssl")
    await gateway.content(
        """
        local openssl = require "resty.openssl"
        local to_hex = require("resty.openssl.auxiliary.compat") and function(s)
            return (s:gsub(".", function(c) return ("%02x"):format(c:byte()) end))
        end
        ngx.say(to_hex(require("resty.openssl.digest").new("sha256"):final("hello")):sub(1, 16))
        ngx.say(to_hex(require("resty.openssl.hmac").new("key", "sha1"):final("hello")):sub(1, 16))
        local cipher = require("resty.openssl.cipher")
        local sealed = cipher.new("aes-256-cbc"):encrypt(("k"):rep(32), ("i"):rep(16), "hello")
        ngx.say(cipher.new("aes-256-cbc"):decrypt(("k"):rep(32), ("i"):rep(16), sealed))
        ngx.say(#require("resty.openssl.rand").bytes(9))
        local key = require("resty.openssl.pkey").new{type = "EC", curve = "prime256v1"}
        ngx.say((key:verify(key:sign("text"), "text")))
        """,
        http=http,
    )
    assert (await gateway.get()).text.split() == [
        "2cf24dba5fb0a30e", "b34ceac4516ff23a", "hello", "9", "true",
    ], gateway.log()  # fmt: skip


async def test_session(gateway, http):
    checkout("lua-resty-session", "lua-resty-openssl")
    await gateway.start(
        """
        location /login { content_by_lua_block {
            local session = require("resty.session").new()
            session:set("user", "ann")
            assert(session:save())
            ngx.say("in")
        } }
        location /who { content_by_lua_block {
            local session, err, exists = require("resty.session").start()
            ngx.say(exists, session:get("user"))
        } }
        """,
        http=http + 'init_by_lua_block { require("resty.session").init({secret = "a secret", cookie_secure = false}) }',
    )
    cookie = (await gateway.get("/login")).headers["set-cookie"].partition(";")[0]
    assert (await gateway.get("/who", f"Cookie: {cookie}")).text == "trueann\n", gateway.log()
    assert (await gateway.get("/who", "Cookie: session=x")).text == "falsenil\n", gateway.log()


async def test_template(gateway, http):
    checkout("lua-resty-template")
    (gateway.folder / "page.html").write_text(
        "<h1>{{title}}</h1>{% for _, n in ipairs(list) do %}<i>{*n*}</i>{% end %}"
    )
    (gateway.folder / "layout.html").write_text("<b>{*view*}</b>{(page.html)}")
    await gateway.start(
        f"""
        root {gateway.folder};
        location / {{ content_by_lua_block {{
            local template = require "resty.template"
            local view = template.new("page.html", "layout.html")
            view.title, view.list = "a < b", {{1, "<2>"}}
            view:render()
            ngx.say(template.process("{{{{x}}}}", {{x = "&"}}))
        }} }}
        """,
        http=http,
    )
    page = "<h1>a &lt; b</h1><i>1</i><i><2></i>"
    assert (await gateway.get()).text == f"<b>{page}</b>{page}&amp;\n", gateway.log()


LAPIS_APP = """
local lapis = require "lapis"
local app = lapis.Application()
app:enable "etlua"
app.layout = false
app:get("home", "/", function(self) return self:url_for("user", {name = "ann"}) end)
app:get("user", "/user/:name", function(self)
    return {json = {name = self.params.name, q = self.params.q}, headers = {["X-A"] = "b"}, status = 201}
end)
app:post("/form", function(self) return self.params.a .. self.session_of() end)
app:get("/fails", function(self) error "oops" end)
app:get("/html", function(self)
    return self:html(function() div(function() text "a<b" end) end)
end)
app:match("/session", function(self)
    self.session.n = (self.session.n or 0) + 1
    return tostring(self.session.n)
end)
app.handle_404 = function(self) return {status = 404, "none of that"} end
app:before_filter(function(self) self.session_of = function() return "!" end end)
return app
"""


async def test_lapis(gateway, http):
    checkout("lapis", "loadkit", "etlua", "date", "pgmoon", "ansicolors.lua")
    (gateway.folder / "app.lua").write_text(LAPIS_APP)
    (gateway.folder / "config.lua").write_text('require("lapis.config")("development", {secret = "a secret"})')
    await gateway.start(
        'location / { default_type text/html; content_by_lua_block { require("lapis").serve("app") } }',
        http=f'lua_package_path "{gateway.folder}/?.lua;{library_paths()};;";',
    )
    assert (await gateway.get()).text == "/user/ann", gateway.log()
    user = await gateway.get("/user/bob?q=1")
    assert (user.status, user.headers["x-a"], user.headers["content-type"]) == (201, "b", "application/json")
    assert '"name":"bob"' in user.text
    form = ("Content-Type: application/x-www-form-urlencoded",)
    assert (await gateway.get("/form", *form, method="POST", body=b"a=1")).text == "1!"
    assert (await gateway.get("/none")).status == 404
    failed = await gateway.get("/fails")
    assert failed.status == 500
    assert "oops" in failed.text
    assert (await gateway.get("/html")).text == "<div>a&lt;b</div>"
    first = await gateway.get("/session")
    cookie = first.headers["set-cookie"].partition(";")[0]
    assert (first.text, (await gateway.get("/session", f"Cookie: {cookie}")).text) == ("1", "2"), gateway.log()
