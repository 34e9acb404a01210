-- ngx.req.socket: the client's own connection as a cosocket.
--
-- Not raw: a reader of the request body. Its bytes come from the connection that owns the descriptor, which also
-- knows where the body ends; here they only wait in the socket's buffer. Raw: the connection gives its descriptor
-- away, with what it had read of the client and not used; from then on it is read and written as any cosocket's,
-- and Python closes it (the client may still be sending).
local S, host = ...
local ffi, C, ngx = S.ffi, S.C, S.ngx
local buffer = require "string.buffer"
local select = select
local MSG_PEEK_DONTWAIT = 0x42

local all = S.socket_methods
local function only(...)
    local methods = {}
    for i = 1, select("#", ...) do
        local name = (select(i, ...))
        methods[name] = all[name]
    end
    return { __index = methods, __name = "ngx.req.socket" }
end
local body_meta = only("receive", "receiveany", "receiveuntil", "settimeout", "settimeouts")
local raw_meta = only("receive", "receiveany", "receiveuntil", "settimeout", "settimeouts", "send")

-- the body

local waits = {} -- id of a request -> the thread that waits for bytes of its body, and its mark

--- Python: bytes of a body, or nil and why there are none.
function S.body_bytes(id, bytes, why)
    S.turn = 0
    S.wall = nil
    local waiter = waits[id]
    waits[id] = nil
    if waiter then
        S.wake(waiter[1], waiter[2], bytes, why)
        S.drain()
    end
end

local body_way = {
    fill = S.fill_from_host(waits, host.body_next, host.body_stop),
    close = function(sock)
        local id = sock.rid
        if waits[id] then
            waits[id] = nil
            host.body_stop(id)
        end
        return true
    end,
}

local function body_socket(R)
    if R.reading then
        return nil, "request body already exists"
    end
    local why = host.body_open(R.id)
    if why then
        return nil, why
    end
    local sock = S.new_socket(R, body_meta)
    sock.fd, sock.via = -1, body_way
    S.own(R, sock)
    return sock
end

-- the raw connection

local function close(sock)
    host.raw_close(sock.rid)
    return true
end

-- A client that ends its side while nobody reads: found by readiness, without taking bytes of it.
local peeked = ffi.new("char[1]")
local function on_idle(sock)
    local R = S.requests[sock.rid]
    if R and sock.fd and R.conf.check_client_abort
        and tonumber(C.hr_recv(sock.fd, peeked, 1, MSG_PEEK_DONTWAIT)) == 0 then
        host.log(R.id, ngx.INFO, "client prematurely closed connection")
        sock.rclosed = true
        S.aborted(R.id)
    end
end

-- The way of a raw socket adds to the plain one only what its end means.
local function ended(sock, why)
    if why == "closed" and sock.conf.check_client_abort then
        return "client aborted"
    end
    return why
end

local plain_way = {
    fill = function(sock, want)
        local n, why = S.fill_plain(sock, want)
        if n then
            return n
        end
        return nil, ended(sock, why)
    end,
    send = function(sock, data)
        return S.send_plain(sock, data)
    end,
    close = close,
}

local tls_way = {
    fill = function(sock, want)
        local n, why = S.tls_fill(sock, want)
        if n then
            return n
        end
        return nil, ended(sock, why)
    end,
    send = S.tls_send,
    close = close,
}

local function raw_socket(R)
    if R.reading then
        return nil, "pending request body reading in some other thread"
    end
    if R.raw then
        return nil, "duplicate call"
    end
    if R.sent and host.http_version(R.id) < 1.1 and host.headers_sent(R.id) == 0 then
        return nil, "http 1.0 buffering"
    end
    S.pass_output(R)
    local fd, tls, bytes = host.raw_open(R.id)
    if fd == 0 then
        -- The connection is still inside of the call that began this handler; what it read is not sorted yet.
        S.give_turn()
        fd, tls, bytes = host.raw_open(R.id)
    end
    if not fd then
        return nil, tls
    end
    R.raw, R.sent, R.eof = true, true, true
    local sock = S.new_socket(R, raw_meta)
    sock.fd, sock.key, sock.on_idle = fd, "client", on_idle
    if tls > 0 then
        sock.tls, sock.via = tls, tls_way
    else
        sock.via = plain_way
    end
    sock.rb:put(bytes)
    S.own(R, sock)
    S.take_credit(sock)
    if R.conf.check_client_abort then
        S.sockets[fd], sock.rreg = sock, true
        S.watch(fd)
    end
    return sock
end

function ngx.req.socket(...)
    local n = select("#", ...)
    if n > 1 then
        return S.raise("expecting zero arguments, but got " .. n)
    end
    local R = S.R
    if not R or not S.may_output[R.phase] or not S.cur then
        return S.disabled()
    end
    if host.is_subrequest(R.id) == 1 then
        return S.raise("attempt to read the request body in a subrequest")
    end
    if host.http_version(R.id) >= 2 then
        return S.raise("http v2 not supported yet")
    end
    if (...) then
        return raw_socket(R)
    end
    return body_socket(R)
end
