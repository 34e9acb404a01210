-- ngx.socket.udp: datagrams to one peer, over a connected socket (udp, unix).
--
-- One owner, as for tcp: the handler run that made the socket. A datagram is sent whole or not at all, so there is
-- nothing unsent to keep; a receive that finds none parks until readiness.
local S, host = ...
local ffi, C, ngx = S.ffi, S.C, S.ngx
local type, tonumber, tostring, select = type, tonumber, tostring, select
local AF_UNIX, DGRAM = 1, 2
local NONBLOCK_CLOEXEC = 2048 + 524288
local EINTR, EAGAIN, MSG_NOSIGNAL = 4, 11, 0x4000
local LARGEST = 65536 -- bytes of a datagram that receive() takes, as in nginx

local methods = {}
local meta = { __index = methods, __name = "ngx.socket.udp" }
local room = ffi.new("char[?]", LARGEST)

local function checked(sock)
    local R = S.R
    if not R then
        return S.raise("no request found")
    end
    if sock.rid ~= R.id or sock.gen ~= R.gen then
        return S.raise("bad request")
    end
    local T = sock.connecting or sock.reader
    if T and not T.dead then
        return "socket busy"
    end
    return nil
end

local function report(level, text)
    local R = S.R
    if R.conf.log_errors then
        host.log(R.id, level, text)
    end
end

local function open(sock, address, size, family)
    local fd = C.hr_socket(family, DGRAM + NONBLOCK_CLOEXEC, 0)
    if fd < 0 then
        return nil, S.strerror(ffi.errno())
    end
    local ok = true
    if family == AF_UNIX then
        -- An address of its own, chosen by the kernel: without one the peer cannot answer (unix(7), autobind).
        local own = ffi.new("struct hr_sockaddr_un")
        own.family = AF_UNIX
        ok = C.hr_bind(fd, own, 2) == 0
    elseif sock.bound then
        local own, own_size, own_family = S.ip_address(sock.bound, 0)
        ok = own_family == family and C.hr_bind(fd, own, own_size) == 0
    end
    if not ok or C.hr_connect(fd, address, size) ~= 0 then
        local number = ffi.errno()
        C.hr_close(fd)
        return nil, S.strerror(number), number
    end
    return fd
end

local function addresses(sock, name, port)
    local address, size, family = S.ip_address(name, port)
    if address then
        return address, size, family
    end
    if name == "" or name:find("[%z\1-\32/]") then
        return nil, 'failed to parse host name "' .. name .. '": ' .. (name == "" and "no host" or "invalid host")
    end
    sock.connecting = S.cur
    local list, why = S.resolve_name(name, sock.read_timeout)
    sock.connecting = nil
    if not list then
        return nil, why
    end
    return S.ip_address(list[1], port)
end

--- setpeername(host, port) or setpeername("unix:/path")
function methods.setpeername(sock, ...)
    local n = select("#", ...)
    if type(sock) ~= "table" then
        return S.bad_self(sock, "setpeername")
    end
    if n ~= 1 and n ~= 2 then
        return S.raise("ngx.socket.udp setpeername: expecting 2 or 3 arguments (including the object), but seen "
            .. n + 1)
    end
    local name, port = ...
    name = S.check_string(name, 2, "setpeername")
    if not S.R or not S.cur then
        return S.disabled()
    end
    local path = name:match("^unix:(.*)$")
    if not path then
        if n == 1 then
            return S.raise("ngx.socket.udp setpeername: expecting 3 arguments (including the object), but seen 2")
        end
        port = S.check_number(port, 3, "setpeername")
        if not (port >= 0 and port <= 65535) then
            return nil, "bad port number: " .. tostring(port)
        end
    end
    local why = checked(sock)
    if why then
        return nil, why
    end
    if sock.fd then
        S.discard(sock)
    end
    local address, size, family
    if path then
        address, size, family = S.unix_address(path)
        if not address then
            return nil, 'failed to parse host name "' .. name .. '": too long path in the unix domain socket'
        end
    else
        address, size, family = addresses(sock, name, port)
        if not address then
            return nil, size
        end
    end
    local fd, number
    fd, why, number = open(sock, address, size, family)
    if not fd then
        if number then
            report(ngx.CRIT,
                "connect() failed (" .. number .. ": " .. S.error_words(number) .. ")")
        end
        return nil, why
    end
    sock.fd = fd
    S.stats.opened = S.stats.opened + 1
    S.own(S.R, sock)
    return 1
end

local function datagram(value)
    local kind = type(value)
    if kind == "string" then
        return value
    elseif kind == "number" or kind == "nil" or kind == "boolean" then
        return tostring(value)
    elseif kind == "table" then
        return S.flatten(value, 2, "send")
    end
    return S.bad_method_argument(2, "send", "string, number, boolean, nil, or array table expected, got " .. kind)
end

--- Send one datagram; returns 1, or nil and the words of the error.
function methods.send(sock, ...)
    if type(sock) ~= "table" then
        return S.bad_self(sock, "send")
    end
    if select("#", ...) ~= 1 then
        return S.raise("expecting 2 arguments (including the object), but got " .. select("#", ...) + 1)
    end
    local why = checked(sock)
    if why then
        return nil, why
    end
    if not sock.fd then
        return nil, "closed"
    end
    local data = datagram((...))
    local sent = tonumber(C.hr_send(sock.fd, data, #data, MSG_NOSIGNAL))
    if sent == #data then
        S.count_op()
        return 1
    end
    local number = ffi.errno()
    if sent >= 0 then
        return nil, "partial write"
    end
    report(ngx.ERR, "send() failed (" .. number .. ": " .. S.error_words(number) .. ")")
    return nil, S.strerror(number)
end

--- Receive one datagram, at most `size` bytes of it.
function methods.receive(sock, ...)
    if type(sock) ~= "table" then
        return S.bad_self(sock, "receive")
    end
    local n = select("#", ...)
    if n > 1 then
        return S.raise("expecting 1 or 2 arguments (including the object), but got " .. n + 1)
    end
    if not S.cur then
        return S.disabled()
    end
    local why = checked(sock)
    if why then
        return nil, why
    end
    if not sock.fd then
        report(ngx.ERR, "attempt to receive data on a closed socket: u:0000000000000001, c:0000000000000000")
        return nil, "closed"
    end
    local size = n == 1 and math.floor(S.check_number((...), 2, "receive")) or LARGEST
    if size < 1 then
        return S.bad_method_argument(2, "receive", "bad number argument")
    elseif size > LARGEST then
        size = LARGEST
    end
    S.note("lua udp socket receive buffer size: ", size)
    while true do
        local got = tonumber(C.hr_recv(sock.fd, room, size, 0))
        if got >= 0 then
            local data = ffi.string(room, got)
            S.count_op()
            return data
        end
        local number = ffi.errno()
        if number == EAGAIN then
            sock.reader = S.cur
            why = S.wait_readable(sock, sock.read_timeout)
            sock.reader = nil
            if why then
                if why == "timeout" then
                    report(ngx.ERR, "lua udp socket read timed out")
                end
                return nil, why
            end
        elseif number ~= EINTR then
            report(ngx.ERR, "recv() failed (" .. number .. ": " .. S.error_words(number) .. ")")
            return nil, S.strerror(number)
        end
    end
end

--- Close the socket.
function methods.close(sock, ...)
    if type(sock) ~= "table" then
        return S.bad_self(sock, "close")
    end
    if select("#", ...) ~= 0 then
        return S.raise("expecting 1 argument (including the object) but seen " .. select("#", ...) + 1)
    end
    local why = checked(sock)
    if why then
        return nil, why
    end
    if not sock.fd then
        return nil, "closed"
    end
    S.discard(sock)
    return 1
end

function methods.settimeout(sock, ...)
    if type(sock) ~= "table" then
        return S.bad_self(sock, "settimeout")
    end
    if select("#", ...) ~= 1 then
        return S.raise("ngx.socket settimeout: expecting at least 2 arguments (including the object) but seen "
            .. select("#", ...) + 1)
    end
    local value = tonumber((...)) or 0 -- as in nginx, what is no number is 0
    sock.read_timeout = value > 0 and value or sock.conf.read_timeout
end

--- The local address of later setpeername() calls.
function methods.bind(sock, address)
    if type(sock) ~= "table" then
        return S.bad_self(sock, "bind")
    end
    address = S.check_string(address, 2, "bind")
    if not S.is_ip(address) then
        return nil, "bad address"
    end
    sock.bound = address
    return true
end

function ngx.socket.udp(...)
    if select("#", ...) > 0 then
        return S.raise("expecting zero arguments, but got " .. select("#", ...))
    end
    local R = S.R
    if not R or not S.cur then
        return S.disabled()
    end
    return S.new_socket(R, meta)
end
