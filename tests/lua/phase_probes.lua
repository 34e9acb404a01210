-- A call of everything that the reference gives a list of contexts, as harmless as it can be. `probe(phase, number)`
-- makes one, and writes what became of it to the report; without a second line for a call it did not return.
local report = assert(io.open(REPORT, "a"))
report:setvbuf("no")

local function nothing() end

local function request(name, ...)
    local arguments = {...}
    return "ngx.req." .. name, function() return ngx.req[name](unpack(arguments)) end
end

local function module(name, call, ...)
    local arguments = {...}
    return name .. "." .. call, function() return require(name)[call](unpack(arguments)) end
end

local function socket(kind, method, ...)
    local arguments = {...}
    return kind .. "sock:" .. method, function()
        local sock = ngx.socket[kind]()
        return sock[method](sock, unpack(arguments))
    end
end

-- The thread object of a semaphore or a dictionary is made where that may be done: in init.
local PROBES, NAMES = {}, {}
local function add(name, call)
    NAMES[#NAMES + 1] = name
    PROBES[#PROBES + 1] = call
end

add("ngx.arg[1]", function() return ngx.arg[1] end)
add("ngx.arg[1]=", function() ngx.arg[1] = "x" end)
add("ngx.var.x", function() return ngx.var.uri end)
add("ngx.var.x=", function() ngx.var.kept = "x" end)
add("ngx.ctx", function() return ngx.ctx.x end)
add("ngx.ctx.x=", function() ngx.ctx.x = 1 end)
add("ngx.location.capture", function() return ngx.location.capture("/sub") end)
add("ngx.location.capture_multi", function() return ngx.location.capture_multi({{"/sub"}}) end)
add("ngx.status", function() return ngx.status end)
add("ngx.status=", function() ngx.status = 200 end)
add("ngx.header.X", function() return ngx.header.X end)
add("ngx.header.X=", function() ngx.header.X = "x" end)
add("ngx.headers_sent", function() return ngx.headers_sent end)
add("ngx.is_subrequest", function() return ngx.is_subrequest end)
add("ngx.resp.get_headers", function() return ngx.resp.get_headers() end)
add(request("is_internal"))
add(request("start_time"))
add(request("http_version"))
add(request("raw_header"))
add(request("get_method"))
add(request("set_method", 2))
add(request("set_uri", "/other"))
add("ngx.req.set_uri(_, true)", function() return ngx.req.set_uri("/other", true) end)
add(request("set_uri_args", "a=1"))
add(request("get_uri_args"))
add("ngx.req.get_post_args", function() return ngx.req.get_post_args() end)
add(request("get_headers"))
add(request("set_header", "X-A", "1"))
add(request("clear_header", "X-A"))
add(request("read_body"))
add(request("discard_body"))
add(request("get_body_data"))
add(request("get_body_file"))
add(request("set_body_data", "x"))
add(request("set_body_file", "/nowhere/body"))
add(request("init_body"))
add(request("append_body", "x"))
add(request("finish_body"))
add(request("socket"))
add("ngx.exec", function() return ngx.exec("/sub") end)
add("ngx.redirect", function() return ngx.redirect("/sub") end)
add("ngx.send_headers", function() return ngx.send_headers() end)
add("ngx.print", function() return ngx.print("x") end)
add("ngx.say", function() return ngx.say("x") end)
add("ngx.log", function() return ngx.log(ngx.DEBUG, "x") end)
add("print", function() return print("x") end)
add("ngx.flush", function() return ngx.flush() end)
add("ngx.flush(true)", function() return ngx.flush(true) end)
add("ngx.exit", function() return ngx.exit(0) end)
add("ngx.eof", function() return ngx.eof() end)
add("ngx.sleep", function() return ngx.sleep(0.001) end)
for name, argument in pairs {
    escape_uri = "a", unescape_uri = "a", encode_args = {}, decode_args = "a=1", encode_base64 = "a",
    decode_base64 = "YQ==", crc32_short = "a", crc32_long = "a", md5 = "a", md5_bin = "a", sha1_bin = "a",
    quote_sql_str = "a", http_time = 0, cookie_time = 0, parse_http_time = "Thu, 18 Nov 2010 11:27:35 GMT",
    today = 0, time = 0, now = 0, localtime = 0, utctime = 0, update_time = 0,
} do
    add("ngx." .. name, function()
        if argument == 0 and name ~= "http_time" and name ~= "cookie_time" then return ngx[name]() end
        return ngx[name](argument)
    end)
end
add("ngx.hmac_sha1", function() return ngx.hmac_sha1("a", "b") end)
add("ngx.re.match", function() return ngx.re.match("a", "a", "jo") end)
add("ngx.re.find", function() return ngx.re.find("a", "a", "jo") end)
add("ngx.re.gmatch", function() return ngx.re.gmatch("a", "a")() end)
add("ngx.re.sub", function() return (ngx.re.sub("a", "a", "b")) end)
add("ngx.re.gsub", function() return (ngx.re.gsub("a", "a", "b")) end)
for _, name in ipairs {"get", "incr", "delete", "llen", "ttl", "flush_expired"} do
    add("ngx.shared.D:" .. name, function() return (ngx.shared.d[name](ngx.shared.d, "nobody", 1, 0)) end)
end
add("ngx.shared.D:set", function() return ngx.shared.d:set("a", 1) end)
add("ngx.shared.D:lpush", function() return ngx.shared.d:lpush("l", 1) end)
add("ngx.shared.D:get_keys", function() return ngx.shared.d:get_keys() end)
add("ngx.socket.tcp", function() return ngx.socket.tcp() end)
add("ngx.socket.stream", function() return ngx.socket.stream() end)
add("ngx.socket.udp", function() return ngx.socket.udp() end)
add("ngx.socket.connect", function() return ngx.socket.connect("unix:/nowhere/socket") end)
add(socket("tcp", "connect", "unix:/nowhere/socket"))
add(socket("tcp", "setclientcert"))
add(socket("tcp", "sslhandshake"))
add(socket("tcp", "send", "x"))
add(socket("tcp", "receive"))
add(socket("tcp", "receiveany", 1))
add(socket("tcp", "receiveuntil", "x"))
add(socket("tcp", "close"))
add(socket("tcp", "settimeout", 10))
add(socket("tcp", "settimeouts", 10, 10, 10))
add(socket("tcp", "setoption", "keepalive", true))
add(socket("tcp", "setkeepalive"))
add(socket("tcp", "getreusedtimes"))
add(socket("udp", "setpeername", "unix:/nowhere/socket"))
add(socket("udp", "send", "x"))
add(socket("udp", "receive"))
add(socket("udp", "close"))
add(socket("udp", "settimeout", 10))
add("ngx.get_phase", function() return ngx.get_phase() end)
add("ngx.thread.spawn", function() return ngx.thread.spawn(nothing) end)
add("ngx.thread.wait", function() return ngx.thread.wait(ngx.thread.spawn(nothing)) end)
add("ngx.thread.kill", function() return ngx.thread.kill(ngx.thread.spawn(function() ngx.sleep(1) end)) end)
add("ngx.on_abort", function() return ngx.on_abort(nothing) end)
add("ngx.timer.at", function() return ngx.timer.at(0, nothing) end)
add("ngx.timer.every", function() return ngx.timer.every(3600, nothing) end)
add("ngx.timer.running_count", function() return ngx.timer.running_count() end)
add("ngx.timer.pending_count", function() return ngx.timer.pending_count() end)
add("ngx.config.prefix", function() return ngx.config.prefix() end)
add("ngx.worker.exiting", function() return ngx.worker.exiting() end)
add("ngx.worker.pid", function() return ngx.worker.pid() end)
add("ngx.worker.pids", function() return ngx.worker.pids() end)
add("ngx.worker.count", function() return ngx.worker.count() end)
add("ngx.worker.id", function() return ngx.worker.id() end)
add("ngx.run_worker_thread", function() return ngx.run_worker_thread("nobody", "m", "f") end)
add("ndk.set_var.X", function() return ndk.set_var.set_escape_uri("a b") end)
add("coroutine.create", function() return coroutine.create(nothing) end)
add("coroutine.resume", function() return coroutine.resume(coroutine.create(nothing)) end)
add("coroutine.yield", function() return coroutine.wrap(function() coroutine.yield(1) end)() end)
add("coroutine.status", function() return coroutine.status(coroutine.create(nothing)) end)
add("ngx.semaphore.new", function() return require("ngx.semaphore").new(1) end)
add("ngx.semaphore:post", function() return require("ngx.semaphore").new(1):post(1) end)
add("ngx.semaphore:wait", function() return require("ngx.semaphore").new(0):wait(0.001) end)
add("ngx.semaphore:wait(0)", function() return require("ngx.semaphore").new(1):wait(0) end)
add("ngx.semaphore:count", function() return require("ngx.semaphore").new(1):count() end)
add(module("ngx.balancer", "set_current_peer", "127.0.0.1", 1))
add(module("ngx.balancer", "set_more_tries", 1))
add(module("ngx.balancer", "get_last_failure"))
add(module("ngx.balancer", "set_timeouts", 1, 1, 1))
add(module("ngx.balancer", "recreate_request"))
add(module("ngx.ssl", "clear_certs"))
add(module("ngx.ssl", "server_name"))
add(module("ngx.ssl", "raw_server_addr"))
add(module("ngx.ssl", "raw_client_addr"))
add(module("ngx.ssl", "get_tls1_version"))
add(module("ngx.ssl", "set_der_cert", "x"))
add(module("ngx.ssl", "set_der_priv_key", "x"))
add(module("ngx.ssl", "parse_pem_cert", "x"))
add(module("ngx.ssl", "parse_pem_priv_key", "x"))
add(module("ngx.ssl", "cert_pem_to_der", "x"))
add(module("ngx.ssl", "verify_client"))
add(module("ngx.ssl.session", "get_session_id"))
add(module("ngx.ssl.session", "get_serialized_session"))
add(module("ngx.ssl.session", "set_serialized_session", "x"))
add(module("ngx.ssl.clienthello", "get_client_hello_server_name"))
add(module("ngx.ssl.clienthello", "get_client_hello_ext", 0))
add(module("ngx.ssl.clienthello", "set_protocols", {"TLSv1.2"}))
add(module("ngx.ocsp", "set_ocsp_status_resp", "x"))
add(module("ngx.errlog", "set_filter_level", 4))
add(module("ngx.errlog", "get_logs"))
add(module("ngx.errlog", "raw_log", 8, "x"))
add(module("ngx.errlog", "get_sys_filter_level"))
add(module("ngx.process", "type"))
add(module("ngx.process", "get_master_pid"))
add(module("ngx.pipe", "spawn", {"true"}))
add(module("ngx.base64", "encode_base64url", "a"))
add(module("ngx.re", "split", "a,b", ","))
add(module("ngx.req", "add_header", "X-B", "1"))
add(module("ngx.resp", "add_header", "X-B", "1"))

local function line(...)
    report:write(table.concat({...}, "\t"):gsub("\n.*", ""), "\n")
end

local function outcome(ok, first, second)
    if ok and type(second) == "string" then
        return second
    end
    return ok and "" or tostring(first):gsub("^[^ ]+:%d+: ", "")
end

function probe(phase, number)
    if (SKIPPED or ""):find("|" .. phase .. " " .. NAMES[number] .. "|", 1, true) then
        return
    end
    line(phase, NAMES[number], "calls")
    line(phase, NAMES[number], "returns", outcome(pcall(PROBES[number])))
end

function probe_all(phase)
    for number = 1, #PROBES do
        probe(phase, number)
    end
end

function probe_in_timers()
    for number = 1, #PROBES do
        assert(ngx.timer.at(0, function() probe("timer", number) end))
    end
end

-- A handshake has no way to say which: they take turns.
local turns = {}
function probe_next(phase)
    turns[phase] = (turns[phase] or 0) + 1
    if turns[phase] <= #PROBES then
        probe(phase, turns[phase])
    end
end

PROBE_COUNT = #PROBES
