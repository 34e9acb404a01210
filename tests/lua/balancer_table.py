"""ngx.balancer, case by case: the code of a group's script, and what the client gets, here and in nginx.

BACK stands for the address of a server that answers "port host header-of-x"; BAD for one that answers 503; NONE for a
place where nobody listens.
"""

BACKENDS = """
    server {{ listen unix:{folder}/back.sock;
        location / {{ content_by_lua_block {{
            ngx.print("back ", ngx.var.uri, " ", ngx.var.http_x_try or "-", " ", ngx.var.http_host)
        }} }}
    }}
    server {{ listen unix:{folder}/bad.sock; location / {{ return 503; }} location /404 {{ return 404; }} }}
    server {{ listen unix:{folder}/slow.sock;
        location / {{ content_by_lua_block {{ ngx.sleep(20) }} }}
    }}
"""

PEER = 'local b = require "ngx.balancer" '

TABLE = [
    ("a peer", PEER + "assert(b.set_current_peer(BACK))", "", 200, "back /t - group0"),
    ("nobody is chosen: the servers of the group", "local x = 1", "server BACK;", 200, "back /t - group1"),
    ("exit", "ngx.exit(403)", "", 403, None),
    ("exit with OK goes on", PEER + "b.set_current_peer(BACK) ngx.exit(ngx.OK)", "", 200, "back /t - group3"),
    ("exit with ERROR", "ngx.exit(ngx.ERROR)", "", 500, None),
    ("exit goes on to the end", PEER + "ngx.exit(ngx.OK) b.set_current_peer(BACK)", "", 200, "back /t - group5"),
    ("a fault", "error('no')", "", 500, None),
    ("no sleep", "ngx.sleep(0.1)", "", 500, None),
    ("no socket", "ngx.socket.tcp()", "", 500, None),
    ("no output", "ngx.say('x')", "", 500, None),
    ("no capture", "ngx.location.capture('/x')", "", 500, None),
    ("no redirect", "ngx.redirect('/x')", "", 500, None),
    ("no name", PEER + "ngx.var.note = select(2, b.set_current_peer('localhost', 80)) ngx.exit(404)", "", 404, "no host allowed"),
    ("an address without a port", PEER + "ngx.var.note = tostring(b.set_current_peer('127.0.0.1')) ngx.exit(404)", "", 404, "true"),
    ("no port", PEER + "ngx.var.note = tostring(select(2, b.set_current_peer('127.0.0.1:x'))) ngx.exit(404)", "", 404, "invalid port"),
    ("first: no failure", PEER + "ngx.var.note = tostring((b.get_last_failure())) ngx.exit(404)", "", 404, "nil"),
    (
        "more tries and what failed",
        PEER + """
        local state, status = b.get_last_failure()
        ngx.ctx.seen = (ngx.ctx.seen or "") .. tostring(state) .. "," .. tostring(status) .. ";"
        ngx.ctx.n = (ngx.ctx.n or 0) + 1
        if ngx.ctx.n == 1 then
            ngx.ctx.seen = ngx.ctx.seen .. tostring(b.set_more_tries(2)) .. ";"
            return b.set_current_peer(BAD)
        elseif ngx.ctx.n == 2 then
            return b.set_current_peer(NONE)
        end
        ngx.var.note = ngx.ctx.seen
        ngx.exit(404)
        """,
        "",
        404,
        "nil,nil;true;failed,503;failed,502;",
    ),
    (
        "a 404 is next, not failed",
        PEER + """
        ngx.ctx.n = (ngx.ctx.n or 0) + 1
        if ngx.ctx.n == 1 then b.set_more_tries(1) return b.set_current_peer(BAD) end
        local state, status = b.get_last_failure()
        ngx.var.note = state .. status
        ngx.exit(403)
        """,
        "",
        403,
        "next404",
    ),
    (
        "tries end",
        PEER + "ngx.ctx.n = (ngx.ctx.n or 0) + 1 ngx.var.note = ngx.ctx.n b.set_more_tries(2) b.set_current_peer(BAD)",
        "",
        503,
        "5",
    ),
    (
        "the limit of tries",
        PEER + """
        ngx.ctx.n = (ngx.ctx.n or 0) + 1
        local ok, why = b.set_more_tries(2)
        ngx.ctx.why = ngx.ctx.why or why
        ngx.var.note = ngx.ctx.n .. tostring(ngx.ctx.why)
        b.set_current_peer(BAD)
        """,
        "",
        503,
        "5reduced tries due to limit",
    ),
    (
        "the request is made anew",
        PEER + """
        ngx.ctx.n = (ngx.ctx.n or 0) + 1
        ngx.var.try = ngx.ctx.n
        if ngx.ctx.n == 1 then b.set_more_tries(1) return b.set_current_peer(BAD) end
        assert(b.recreate_request())
        b.set_current_peer(BACK)
        """,
        "",
        200,
        "back /t 2 group20",
    ),
    (
        "timeouts",
        PEER + "ngx.var.note = tostring(b.set_timeouts(nil, nil, 0.05)) b.set_current_peer(SLOW)",
        "",
        504,
        "true",
    ),
    ("a bad timeout", PEER + "ngx.var.note = select(2, pcall(b.set_timeouts, 0)) ngx.exit(404)", "", 404, "bad connect timeout"),
    ("get_phase", "ngx.var.note = ngx.get_phase() ngx.exit(404)", "", 404, "balancer"),
    ("headers, arguments, variables", "ngx.var.note = ngx.req.get_headers().host .. ngx.req.get_uri_args().a .. ngx.req.get_method() ngx.exit(404)", "", 404, "localhost1GET"),
]  # fmt: skip

# What Debian's lua-resty-core has not.
NEWER = [
    ("a bad name", PEER + "ngx.var.note = select(2, pcall(b.set_current_peer, 'a', 1, 2)) ngx.exit(404)", "", 404, "bad argument #3"),
    ("a local address", PEER + "ngx.var.note = tostring(b.bind_to_local_addr('127.0.0.2')) ngx.exit(404)", "", 404, "true"),
    ("no local address", PEER + "ngx.var.note = tostring(b.bind_to_local_addr('x')) ngx.exit(404)", "", 404, "nil"),
    ("a kept connection", PEER + "assert(b.set_current_peer(BACK)) assert(b.enable_keepalive(5, 10))", "", 200, "back /t - group3"),
    ("a bad idle time", PEER + "ngx.var.note = select(2, pcall(b.enable_keepalive, -1)) ngx.exit(404)", "", 404, "bad argument #1 to 'enable_keepalive' (expected >= 0)"),
    ("a bad number", PEER + "ngx.var.note = select(2, pcall(b.enable_keepalive, 1, 'x')) ngx.exit(404)", "", 404, "bad argument #2 to 'enable_keepalive' (number expected, got string)"),
    ("TLS cannot be had", PEER + "ngx.var.note = select(2, b.set_upstream_tls(true)) ngx.exit(404)", "", 404, "no upstream ssl settings found"),
]  # fmt: skip


def configuration(folder: str, table: list) -> tuple[str, str]:
    """The http part and the server part for a table."""
    http, server = BACKENDS.format(folder=folder), 'set $note ""; set $try 1; add_header X-Note $note always;'
    names = {"BACK": "back", "BAD": "bad", "NONE": "none", "SLOW": "slow"}
    for i, (_, script, listed, _, _) in enumerate(table):
        code, servers = script, listed
        for word, name in names.items():
            code = code.replace(f"({word})", f'("unix:{folder}/{name}.sock")')
            servers = servers.replace(word, f"unix:{folder}/{name}.sock")
        http += f"upstream group{i} {{ {servers or 'server 0.0.0.1:1;'} balancer_by_lua_block {{\n{code}\n}} }}\n"
        path = "/404" if "404 is next" in table[i][0] else "/t"
        limit = "5" if "limit of tries" in table[i][0] else "0"
        if table[i][0] == "tries end":
            limit = "5"
        server += f"""location = /case{i} {{
            proxy_next_upstream error timeout http_503 http_404; proxy_next_upstream_tries {limit};
            proxy_set_header X-Try {"$try" if "anew" in table[i][0] else '""'};
            proxy_pass http://group{i}{path};
        }}
        """
    return http, server
