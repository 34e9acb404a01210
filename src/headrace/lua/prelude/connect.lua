-- tcpsock:connect, bind and sslhandshake: from an address to an open connection, through the pool.
local S, host = ...
local stats, ngx = S.stats, S.ngx
local type, tonumber, tostring, select = type, tonumber, tostring, select
local methods, discard = S.socket_methods, S.discard
local ffi = S.ffi

local function positive(options, name, minimum, n)
    local value = options[name]
    if value == nil then
        return nil
    end
    if type(value) ~= "number" then
        return S.bad_method_argument(n, "connect", 'bad "' .. name .. '" option type: ' .. type(value))
    end
    if value < minimum then
        return S.bad_method_argument(n, "connect", 'bad "' .. name .. '" option value: ' .. tostring(value))
    end
    return value
end

local function pool_options(sock, options, n, key)
    if type(options) ~= "table" then
        return key, nil
    end
    local backlog = positive(options, "backlog", 0, n)
    local size = positive(options, "pool_size", 1, n)
    local name = options.pool
    if name ~= nil then
        if type(name) ~= "string" and type(name) ~= "number" then
            return S.bad_method_argument(n, "connect", 'bad "pool" option type: ' .. type(name))
        end
        key = tostring(name)
    end
    if (backlog or size) and not S.pools[key] then
        S.pool_for(key, size or sock.conf.pool_size, backlog)
    end
    return key, options
end

-- What a connect may end with that is the other side's matter (ECONNREFUSED and its relatives), as nginx sees it.
local ERRORS = { [100] = true, [101] = true, [104] = true, [110] = true, [111] = true, [112] = true, [113] = true }

local function failed(sock, where, why, number, later)
    sock.connecting = nil
    local R = S.R
    if R.conf.log_errors then
        if number then
            local level = ERRORS[number] and ngx.ERR or ngx.CRIT
            host.log(R.id, level, (later and "connect()" or "connect() to " .. where)
                .. " failed (" .. number .. ": " .. S.error_words(number) .. ")")
        elseif why == "timeout" then
            host.log(R.id, ngx.ERR, S.says .. "tcp socket connect timed out, when connecting to " .. where)
        end
    end
    local pool = sock.pool
    if pool then
        sock.pool = nil
        S.leave_pool(pool)
    end
    return nil, why
end

local paths, path_count = {}, 0 -- names that were connected to: path of a unix socket, or false

local function path_of(name)
    local path = name:match("^unix:(.*)$") or false
    if path_count >= 512 then
        paths, path_count = {}, 0
    end
    paths[name] = path
    path_count = path_count + 1
    return path
end

--- connect(host, port, options?) or connect("unix:/path", options?)
function methods.connect(sock, ...)
    if type(sock) ~= "table" then
        return S.bad_self(sock, "connect")
    end
    local n = select("#", ...)
    if n < 1 or n > 3 then
        return S.raise("ngx.socket connect: expecting 2, 3, or 4 arguments (including the object), but seen "
            .. (n == 0 and type(sock) == "table" and 1 or n + 1))
    end
    local name, port, options = ...
    name = S.check_string(name, 1, "connect")
    local R = S.R
    if not R or not S.cur then
        return S.disabled()
    end
    if sock.rid ~= R.id or sock.gen ~= R.gen then
        S.refused(sock)
    end
    local path = paths[name]
    if path == nil then
        path = path_of(name)
    end
    local key = name
    if path then
        options = type(port) == "table" and port or options
    else
        if n == 1 then
            return nil, "missing the port number"
        end
        local given = port
        port = tonumber(port)
        if not port then
            return nil, "missing the port number"
        end
        if not (port >= 0 and port <= 65535) then
            return nil, "bad port number: " .. given
        end
        key = name .. ":" .. port
    end
    local why = S.refused(sock, true, true)
    if why then
        return nil, why
    end
    key = pool_options(sock, options, n + 1, key)
    if sock.key then
        S.note("lua reuse socket upstream ctx")
    end
    if sock.fd then
        S.note("lua tcp socket reconnect without shutting down")
        discard(sock)
    end
    sock.rclosed, sock.wclosed, sock.timed_out, sock.reused, sock.key = nil, nil, nil, 0, key
    sock.client_cert = nil
    -- From here on the handler owns what the socket has: its thread may end in any of the waits below.
    S.own(R, sock)

    local pool = S.pools[key]
    if pool then
        local limited = pool.backlog ~= nil
        if not S.take_idle(pool, sock) and limited and pool.connections >= pool.size then
            sock.connecting = S.cur
            local ok
            ok, why = S.wait_place(pool, sock.connect_timeout)
            sock.connecting = nil
            if not ok then
                return nil, why
            end
            S.take_idle(pool, sock)
        end
        sock.pool = pool
        if not sock.fd then
            pool.connections = pool.connections + 1
        end
    end
    if not sock.fd then
        sock.connecting = S.cur
        S.note("lua tcp socket connect timeout: ", sock.connect_timeout)
        local number, later
        local fd
        fd, why, number, later = S.dial(sock, path, name, port, sock.connect_timeout)
        if not fd then
            return failed(sock, path and name or name .. ":" .. port, why, number, later)
        end
        sock.fd = fd
        sock.connecting = nil
        stats.opened = stats.opened + 1
        if sock.pool then
            sock.pool.opened = sock.pool.opened + 1
        end
    end
    S.take_credit(sock)
    return 1
end

--- The local address of later connects.
function methods.bind(sock, address, port)
    if type(sock) ~= "table" then
        return S.bad_self(sock, "bind")
    end
    address = S.check_string(address, 1, "bind")
    if not S.is_ip(address) then
        return nil, "bad address"
    end
    sock.bound = { address, port and tonumber(port) or 0 }
    return true
end

local function handshake_step(sock, handle, timeout)
    while true do
        local state, why, line = host.tls_handshake(handle)
        if state == 1 then
            return true
        elseif state == 0 then
            if sock.conf.log_errors then
                host.log(S.R and S.R.id or 0, S.ngx.ERR, line)
            end
            return nil, why
        end
        why = state == 2 and S.wait_readable(sock, timeout) or state == 3 and S.wait_writable(sock, timeout)
        if why then
            return nil, why
        end
    end
end

-- A session that may be resumed is a cdata object for scripts.
ffi.cdef "struct hr_tls_session { double number; };"
local made = ffi.typeof("struct hr_tls_session")

local function session_of(handle)
    return made(host.tls_session(handle))
end

local function number_of(session)
    return type(session) == "cdata" and ffi.istype(made, session) and session.number or 0
end

--- sslhandshake(reused_session?, server_name?, verify?, send_status_req?)
function methods.sslhandshake(sock, ...)
    if not sock or select("#", ...) > 4 then
        return S.raise("ngx.socket sslhandshake: expecting 1 ~ 5 arguments (including the object), but seen "
            .. (sock and select("#", ...) + 1 or 0))
    elseif type(sock) ~= "table" then
        return S.bad_self(sock, "sslhandshake")
    end
    if not sock.fd or sock.rclosed or sock.wclosed then
        return nil, "closed"
    end
    local why = S.refused(sock, true, true)
    if why then
        return nil, why
    end
    local session, name, verify, status = ...
    if sock.tls then
        return session == false or session_of(sock.tls)
    end
    if name then
        S.note('lua ssl server name: "', S.check_string(name, 2, "sslhandshake"), '"')
    end
    local handle
    handle, why = host.tls_open(sock.fd, sock.conf.tls, number_of(session),
        name and tostring(name) or "", verify and 1 or 0, sock.client_cert or "",
        status and 1 or 0)
    if not handle then
        return nil, why
    end
    sock.connecting = S.cur
    sock.tls, sock.via = handle, S.tls_way -- before the wait, in which the thread may end
    local ok
    ok, why = handshake_step(sock, handle, sock.connect_timeout)
    sock.connecting = nil
    if not ok then
        discard(sock)
        return nil, why
    end
    if session == false then
        return true
    end
    return session_of(handle)
end

function methods.getsslsession(sock)
    if type(sock) ~= "table" then
        return S.bad_self(sock, "getsslsession")
    end
    if not sock.fd then
        return nil, "closed"
    end
    if not sock.tls then
        return nil, "not an SSL connection"
    end
    return session_of(sock.tls)
end

--- fill() of a TLS socket.
function S.tls_fill(sock, want)
    sock.reader = S.cur
    local room = sock.buffer_size
    while true do
        local bytes, why = host.tls_read(sock.tls, want > room and want or room)
        if bytes then
            sock.reader = nil
            sock.rb:put(bytes)
            S.count_op()
            return #bytes
        end
        if why == "again" then
            why = S.wait_readable(sock, sock.read_timeout)
        elseif why == "write" then
            why = S.wait_writable(sock, sock.read_timeout)
        end
        if why then
            sock.reader = nil
            return nil, why
        end
    end
end

--- drain_out() of a TLS socket.
function S.tls_send(sock, data)
    sock.writer = S.cur
    local size = #data
    local sent, why = host.tls_write(sock.tls, data)
    while not sent do
        if why == "again" then
            why = S.wait_readable(sock, sock.send_timeout)
        elseif why == "write" then
            why = S.wait_writable(sock, sock.send_timeout)
        end
        if why then
            sock.writer = nil
            return nil, why
        end
        sent, why = host.tls_write(sock.tls, "")
    end
    sock.writer = nil
    return size
end

S.tls_way = {
    fill = S.tls_fill,
    send = S.tls_send,
    close = function(sock)
        host.tls_close(sock.tls)
    end,
}

--- True when an idle TLS connection has neither bytes nor EOF waiting.
function S.tls_quiet(item)
    local _, why = host.tls_read(item.tls, 1)
    return why == "again"
end
