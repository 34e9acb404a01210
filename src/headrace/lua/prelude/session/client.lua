-- ngx.req.socket of stream {}: the client's connection, or the datagram that began the session.
--
-- Its bytes come from the session, which owns the descriptor and what is unsent; nothing is taken that is not used:
-- what is left in the buffer when the phase ends goes back (S.client_rest).
local S, host = ...
local ffi, C, ngx = S.ffi, S.C, S.ngx
local select, tonumber, type = select, tonumber, type
local SHUT_WR = 1

ffi.cdef [[int hr_shutdown(int fd, int how) __asm__("shutdown");]]

local clients = {} -- id of a session -> the socket that it has given out
local reads, sends = {}, {} -- id of a session -> the thread that waits, and its mark
local all = S.socket_methods

--- Python: bytes of a client, or nil and why there are none.
function S.client_bytes(id, bytes, why)
    S.turn = 0
    S.wall = nil
    local waiter = reads[id]
    reads[id] = nil
    local T = waiter and waiter[1]
    if T and not T.dead and T.seq == waiter[2] then
        S.wake(T, T.seq, bytes, why)
        S.drain()
    elseif bytes and clients[id] then
        clients[id].rb:put(bytes) -- the thread that wanted them was killed
    end
end

--- Python: what a script has sent is in the kernel, or why not.
function S.client_sent(id, why)
    S.turn = 0
    S.wall = nil
    local waiter = sends[id]
    sends[id] = nil
    if waiter then
        S.wake(waiter[1], waiter[2], why or "sent")
        S.drain()
    end
end

--- Python: what was read of a client and not used, when a phase has ended.
function S.client_rest(id)
    local sock = clients[id]
    return sock and sock.rb:get() or ""
end

--- Python: the session has ended.
function S.forget_client(id)
    local sock = clients[id]
    clients[id], reads[id], sends[id] = nil, nil, nil
    S.forget_session(id)
    if sock then
        sock.fd, sock.via = nil, nil
    end
end

local fill = S.fill_from_host(reads, host.client_next, host.client_stop)

local function send(sock, data)
    local id = sock.rid
    S.pass_output(S.R)
    local state, why = host.client_send(id, data, sock.send_timeout * 1e-3)
    if not state then
        return nil, why
    end
    if state == 0 then
        sock.writer = S.cur
        sends[id] = { S.cur, S.mark(S.cur) }
        why = S.wait()
        sock.writer = nil
        if why ~= "sent" then
            return nil, why
        end
    end
    S.count_op()
    return #data
end

local way = {
    fill = fill,
    send = send,
    close = function()
        return true -- the session closes it
    end,
}

local tcp = {}
S.client_methods = tcp
local tcp_meta = { __index = tcp, __name = "ngx.req.socket" }
for _, name in ipairs { "receive", "receiveany", "receiveuntil" } do
    local method = all[name]
    tcp[name] = function(sock, ...)
        if type(sock) == "table" then
            sock.consumed = true
        end
        return method(sock, ...)
    end
end
tcp.send, tcp.settimeout, tcp.settimeouts = all.send, all.settimeout, all.settimeouts

function tcp.getfd(sock)
    if not sock.fd then
        return nil, "closed"
    end
    return host.client_fd(sock.rid)
end

--- Look at the first `size` bytes of the client without taking them.
function tcp.peek(sock, ...)
    local R = S.R
    if not R or R.phase ~= S.PREREAD or not S.cur then
        return S.disabled()
    end
    if select("#", ...) ~= 1 then
        return S.raise("expecting 2 arguments (including the object), but got " .. select("#", ...) + 1)
    end
    if type(sock) ~= "table" then
        return S.bad_self(sock, "peek")
    end
    if not sock.fd then
        return S.on_closed(sock, "peek")
    end
    if sock.consumed then
        return S.raise("attempt to peek on a consumed socket")
    end
    local why = S.refused(sock, true, false)
    if why then
        return nil, why
    end
    local size = tonumber((...))
    if not size then
        return S.raise("argument must be a number")
    elseif size < 0 then
        return S.bad_method_argument(2, "peek", "bytes can not be negative")
    elseif size == 0 then
        return ""
    end
    local most = host.preread_limits(R.id)
    while #sock.rb < size or size > most do
        if #sock.rb >= most then
            host.log(R.id, ngx.ERR, "preread buffer full")
            return S.exit_now(R, 400)
        end
        local _, left = host.preread_limits(R.id)
        local got
        got, why = fill(sock, 1, left)
        if not got then
            if why == "timeout" then
                host.log(R.id, ngx.INFO, "client timed out (110: Connection timed out)")
            end
            return S.exit_now(R, 200)
        end
    end
    local text = sock.rb:tostring()
    return text:sub(1, size)
end

-- The checks of shutdown(): nil when all is well, else the error's words.
local function not_to_shut(sock, ...)
    if select("#", ...) ~= 1 then
        return S.raise("expecting 2 arguments (including the object) but seen " .. select("#", ...) + 1)
    end
    if type(sock) ~= "table" then
        return S.bad_self(sock, "shutdown")
    end
    if not sock.fd or (sock.rclosed and sock.wclosed) then
        return "closed"
    end
    if sock.wclosed then
        return "already shutdown"
    end
    return S.refused(sock, false, true)
end

local function not_a_side(direction)
    if type(direction) ~= "string" then
        return S.bad_argument(1, "shutdown", "string expected, got " .. type(direction))
    elseif direction == "" then
        return "pattern is empty"
    elseif direction ~= "send" then
        return S.bad_method_argument(2, "shutdown", "bad shutdown argument: " .. direction)
    end
end

--- No more bytes for the client, while its own still come.
function tcp.shutdown(sock, ...)
    local why = not_to_shut(sock, ...)
    if why then
        return nil, why
    end
    local R = S.R
    if R.phase ~= S.CONTENT then
        return S.disabled()
    end
    if R.eof then
        return nil, "seen eof"
    end
    why = not_a_side((...))
    if why then
        return nil, why
    end
    S.pass_output(R)
    if host.client_shutdown(R.id) == 0 then
        return nil, "socket busy writing"
    end
    R.eof = true
    sock.wclosed = true
    return 1
end

--- The same for a cosocket.
function all.shutdown(sock, ...)
    local why = not_to_shut(sock, ...) or not_a_side((...))
    if why then
        return nil, why
    end
    if C.hr_shutdown(sock.fd, SHUT_WR) ~= 0 then
        return nil, S.strerror(ffi.errno())
    end
    sock.wclosed = true
    return 1
end

-- the datagram

local udp = {}
local udp_meta = { __index = udp, __name = "ngx.req.socket" }

local function own(sock)
    local R = S.R
    if not R then
        return S.raise("no request found")
    end
    if sock.rid ~= R.id or sock.gen ~= R.gen then
        return S.raise("bad request")
    end
    return R
end

--- So many bytes of the datagram at most.
function udp.receive(sock, ...)
    local n = select("#", ...)
    if n > 1 then
        return S.raise("expecting 1 or 2 arguments (including the object), but got " .. n + 1)
    end
    own(sock)
    local size = n == 1 and math.floor(S.check_number((...), 2, "receive")) or 65536
    if size < 1 then
        return S.bad_method_argument(2, "receive", "bad number argument")
    end
    if #sock.rb == 0 then
        local bytes, why = host.client_next(sock.rid)
        if not bytes then
            return nil, why
        end
        sock.rb:put(bytes)
    end
    return (sock.rb:get(size))
end

--- Send one datagram.
function udp.send(sock, ...)
    if select("#", ...) ~= 1 then
        return S.raise("expecting 2 arguments (including the object), but got " .. select("#", ...) + 1)
    end
    own(sock)
    local data = ...
    local kind = type(data)
    if kind == "table" then
        data = S.flatten(data, 2, "send")
    elseif kind == "number" or kind == "nil" or kind == "boolean" then
        data = tostring(data)
    elseif kind ~= "string" then
        return S.bad_method_argument(2, "send", "string, number, boolean, nil, or array table expected, got " .. kind)
    end
    local state, why = host.client_send(sock.rid, data, 0)
    if not state then
        return nil, why
    end
    return 1
end

udp.settimeout = all.settimeout

function ngx.req.start_time()
    return host.client_since(S.request().id)
end

function ngx.req.socket(...)
    local n = select("#", ...)
    if n > 1 then
        return S.raise("expecting zero arguments, but got " .. n)
    end
    local R = S.R
    if not R then
        return S.raise("no request found")
    end
    if not S.may_output[R.phase] or not S.cur then
        return S.disabled()
    end
    S.pass_output(R)
    local kind = host.client_kind(R.id)
    if kind == 0 then
        return nil, "pending data to write"
    end
    if clients[R.id] then
        return nil, "duplicate call"
    end
    local sock = S.new_socket(R, kind == 2 and udp_meta or tcp_meta)
    sock.fd, sock.via, sock.key = -1, way, "client"
    clients[R.id] = sock
    return sock
end
