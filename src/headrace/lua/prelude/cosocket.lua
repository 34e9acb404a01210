-- ngx.socket.tcp: the socket object and its methods.
--
-- One owner: the handler run that made the socket (rid, the record's id and generation). Any other user of it
-- gets the Lua error "bad request". The object's fields: fd (nil when there is no connection), rb (bytes read and
-- not yet taken), reader, writer, connecting (the thread that is inside such an operation), rclosed, wclosed
-- (after a fatal error in that direction), pool, reused, tls (handle of a TLS session), read_timeout,
-- send_timeout, connect_timeout in ms. What is said of errors: README of lua-nginx-module, "ngx.socket.tcp".
local S, host = ...
local ffi, C, stats, ngx = S.ffi, S.C, S.stats, S.ngx
local buffer = require "string.buffer"
local type, tonumber, tostring, select, setmetatable = type, tonumber, tostring, select, setmetatable
local drain_out = S.drain_out

local methods = {}
local meta = { __index = methods, __name = "ngx.socket.tcp" }
S.socket_methods = methods

--- Close a descriptor, its TLS session and its place in the loop.
function S.close_fd(sock)
    S.forget_fd(sock)
    local via = sock.via
    if via then
        local closed = via.close(sock) -- true: the descriptor too, or it was none
        sock.via, sock.tls = nil, nil
        if closed then
            sock.fd = nil
            return
        end
    end
    C.hr_close(sock.fd)
    sock.fd = nil
    stats.closed = stats.closed + 1
end

--- End the connection of a socket, from whatever state.
function S.discard(sock)
    local kept = sock.kept
    if kept then
        sock.kept = nil
        if kept.timer then
            S.cancel(kept.timer)
            kept.timer = nil
        end
    end
    if sock.fd then
        S.close_fd(sock)
    end
    if sock.credit then
        S.keep_credit(sock)
    end
    local R = sock.R
    if R then
        sock.R = nil
        if R.socks then
            R.socks[sock] = nil
        end
    end
    sock.rb:reset()
    sock.reader, sock.writer, sock.connecting = nil, nil, nil
    local pool = sock.pool
    if pool then
        sock.pool = nil
        S.leave_pool(pool)
    end
end
local discard = S.discard

local function busy(T)
    return T and not T.dead
end

local function foreign(sock)
    return S.raise("bad request: this socket belongs to the handler that made it, at " .. sock.made)
end

-- The checks of every operation on an open connection: nil when all is well, else the error's words.
local function refused(sock, reading, writing)
    local R = S.R
    if not R then
        return S.raise("no request found")
    end
    if sock.rid ~= R.id or sock.gen ~= R.gen then
        return foreign(sock)
    end
    if sock.connecting and busy(sock.connecting) then
        return "socket busy connecting"
    end
    if reading and sock.reader and busy(sock.reader) then
        return "socket busy reading"
    end
    if writing and sock.writer and busy(sock.writer) then
        return "socket busy writing"
    end
    return nil
end
S.refused = refused

local function log_error(R, text)
    if R.conf.log_errors then
        host.log(R.id, ngx.ERR, text)
    end
end

-- In nginx these are addresses; scripts look for the shape of the line.
local NEVER, OPENED = "0000000000000000", "0000000000000001"

local function on_closed(sock, what)
    local R = S.R
    if R then
        log_error(R, "attempt to " .. what .. " data on a closed socket: u:" .. (sock.key and OPENED or NEVER)
            .. ", c:" .. NEVER .. ", ft:0 eof:0")
    end
    return nil, "closed"
end

-- A failed read: a timeout leaves the connection open, anything else closes it for reading.
local function read_failed(sock, why)
    if why == "timeout" then
        sock.timed_out = true
        log_error(S.R, S.says .. "tcp socket read timed out")
        return why
    end
    sock.rclosed = true
    if sock.wclosed or why ~= "closed" then
        discard(sock)
    end
    return why
end
S.read_failed, S.on_closed = read_failed, on_closed

local function send_text(value)
    local kind = type(value)
    if kind == "string" then
        return value
    elseif kind == "number" or kind == "nil" or kind == "boolean" then
        return tostring(value)
    elseif kind == "table" then
        return S.flatten(value, 2, "send")
    end
    return S.bad_method_argument(2, "send",
        "string, number, boolean, nil, or array table expected, got " .. kind)
end

--- Send a string, number, boolean, nil or nested table of them; returns the number of bytes sent.
function methods.send(sock, ...)
    local data = ...
    if select("#", ...) ~= 1 then
        return S.raise("expecting 2 arguments (including the object), but got " .. select("#", ...) + 1)
    end
    if type(sock) ~= "table" then
        return S.bad_self(sock, "send")
    end
    if not sock.fd or sock.wclosed then
        return on_closed(sock, "send")
    end
    local why = refused(sock, false, true)
    if why then
        return nil, why
    end
    if type(data) ~= "string" then
        data = send_text(data)
    end
    if data == "" then
        return 0
    end
    local sent
    sent, why = drain_out(sock, data)
    if sent then
        return sent
    end
    if why == "timeout" then
        log_error(S.R, S.says .. "tcp socket write timed out")
    end
    discard(sock)
    return nil, why == "broken pipe" and "closed" or why
end

--- Close the connection.
function methods.close(sock)
    if type(sock) ~= "table" then
        return S.bad_self(sock, "close")
    end
    if not sock.fd or (sock.rclosed and sock.wclosed) then
        return nil, "closed"
    end
    local why = refused(sock, true, true)
    if why then
        return nil, why
    end
    discard(sock)
    return 1
end

function methods.getreusedtimes(sock)
    if type(sock) ~= "table" then
        return S.bad_self(sock, "getreusedtimes")
    end
    if not sock.fd or (sock.rclosed and sock.wclosed) then
        return nil, "closed"
    end
    return sock.reused
end

function methods.getfd(sock)
    if type(sock) ~= "table" then
        return S.bad_self(sock, "getfd")
    end
    if not sock.fd then
        return nil, "closed"
    end
    return sock.fd
end

--- Put the connection into its pool for `timeout` ms (0: for ever); the object is closed by that. A connection
--- with an unfinished exchange or unread bytes must not reach another user: it is closed instead.
function methods.setkeepalive(sock, ...)
    if type(sock) ~= "table" then
        return S.bad_self(sock, "setkeepalive")
    end
    if select("#", ...) > 2 then
        return S.raise("expecting 1 to 3 arguments (including the object), but got " .. select("#", ...) + 1)
    end
    local timeout, size = ...
    local conf = (S.R or S.raise("no request found")).conf
    timeout = timeout == nil and conf.keepalive_timeout or S.check_number(timeout, 1, "setkeepalive")
    size = size == nil and conf.pool_size or S.check_number(size, 2, "setkeepalive")
    if not sock.fd or sock.rclosed or sock.wclosed then
        return nil, "closed"
    end
    local why = refused(sock, true, true)
    if why then
        return nil, why
    end
    if #sock.rb > 0 then
        why = "unread data in buffer"
    elseif sock.timed_out then
        why = "invalid connection"
    end
    if why then
        discard(sock)
        return nil, why
    end
    local pool = sock.pool or S.pools[sock.key]
    if not pool and size <= 0 then
        return S.bad_method_argument(3, "setkeepalive", 'bad "pool_size" option value: ' .. size)
    end
    if S.exiting then
        S.note("lua tcp socket set keepalive while process exiting, closing connection")
        discard(sock)
        return 1
    end
    pool = pool or S.pool_for(sock.key, size, nil)
    local put
    put, why = S.put_idle(pool, sock, timeout)
    if not put then
        discard(sock)
        return nil, why
    end
    discard(sock)
    return 1
end

local function timeout_value(value)
    local number = tonumber(value) or 0 -- as in nginx, what is no number is 0
    if not (number > -1 and number < 2147483648) then
        return S.raise("bad timeout value")
    end
    return number
end

function methods.settimeout(sock, ...)
    if type(sock) ~= "table" then
        return S.bad_self(sock, "settimeout")
    end
    if select("#", ...) ~= 1 then
        return S.raise("ngx.socket settimeout: expecting 2 arguments (including the object) but seen "
            .. select("#", ...) + 1)
    end
    local value = timeout_value((...))
    sock:settimeouts(value, value, value)
end

function methods.settimeouts(sock, ...)
    if type(sock) ~= "table" then
        return S.bad_self(sock, "settimeouts")
    end
    if select("#", ...) ~= 3 then
        return S.raise("ngx.socket settimeout: expecting 4 arguments (including the object) but seen "
            .. select("#", ...) + 1)
    end
    local connecting, sending, reading = ...
    connecting, sending, reading = timeout_value(connecting), timeout_value(sending), timeout_value(reading)
    -- 0 means: as the directives say
    sock.connect_timeout = connecting > 0 and connecting or sock.conf.connect_timeout
    sock.send_timeout = sending > 0 and sending or sock.conf.send_timeout
    sock.read_timeout = reading > 0 and reading or sock.conf.read_timeout
end

function methods.setoption(sock, name, value)
    if type(sock) ~= "table" then
        return S.bad_self(sock, "setoption")
    end
    if not sock.fd then
        return nil, "closed"
    end
    return S.set_option(sock.fd, name, value)
end

function methods.getoption(sock, name)
    if type(sock) ~= "table" then
        return S.bad_self(sock, "getoption")
    end
    if not sock.fd then
        return nil, "closed"
    end
    return S.get_option(sock.fd, name)
end

ngx.socket = {}

--- A socket object without a connection; the place that made it is kept for error messages.
function S.new_socket(R, kind)
    local conf = R.conf
    return setmetatable({
        rid = R.id, gen = R.gen, conf = conf, rb = buffer.new(), buffer_size = conf.buffer_size, reused = 0,
        connect_timeout = conf.connect_timeout, send_timeout = conf.send_timeout, read_timeout = conf.read_timeout,
        rreg = false, wreg = false,
        made = S.where(3) or "?",
    }, kind)
end

--- The handler of R owns what the socket has: it is closed with it.
function S.own(R, sock)
    sock.R = R
    local socks = R.socks
    if not socks then
        socks = {}
        R.socks = socks
    end
    socks[sock] = true
end

local function tcp()
    local R = S.R
    if not R or not S.cur then
        return S.disabled()
    end
    return S.new_socket(R, meta)
end

function ngx.socket.tcp(...)
    if select("#", ...) > 0 then
        return S.raise("expecting zero arguments, but got " .. select("#", ...))
    end
    return tcp()
end
ngx.socket.stream = ngx.socket.tcp

function ngx.socket.connect(...)
    local sock = tcp()
    local ok, why = sock:connect(...)
    if ok then
        return sock
    end
    return nil, why
end
