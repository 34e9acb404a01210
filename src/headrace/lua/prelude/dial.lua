-- Opening descriptors: addresses, non-blocking connect, options. Names are resolved by Python's loop.
local S, host = ...
local ffi, C = S.ffi, S.C
local AF_UNIX, AF_INET, AF_INET6, STREAM = 1, 2, 10, 1
local NONBLOCK_CLOEXEC = 2048 + 524288
local EINPROGRESS, EAGAIN, EINTR = 115, 11, 4

ffi.cdef [[
struct hr_sockaddr_un { unsigned short family; char path[108]; };
struct hr_sockaddr_in { unsigned short family; unsigned char port[2]; unsigned char address[4]; char zero[8]; };
struct hr_sockaddr_in6 { unsigned short family; unsigned char port[2]; unsigned int flow;
                         unsigned char address[16]; unsigned int scope; };
]]

local int1 = ffi.typeof("int[1]")
local value, length = int1(), ffi.new("unsigned int[1]")

local function unix_address(path)
    if #path > 107 then
        return nil
    end
    local address = ffi.new("struct hr_sockaddr_un")
    address.family = AF_UNIX
    ffi.copy(address.path, path, #path)
    return address, 2 + #path + 1, AF_UNIX
end

--- A numeric IPv4 or IPv6 address (brackets allowed) as sockaddr, its size and family; nil for anything else.
local function ip_address(host_name, port)
    local first = host_name:byte()
    if first and first >= 48 and first <= 57 and not host_name:find(":", 1, true) then
        local address = ffi.new("struct hr_sockaddr_in")
        if C.hr_inet_pton(AF_INET, host_name, address.address) == 1 then
            address.family = AF_INET
            address.port[0], address.port[1] = math.floor(port / 256), port % 256
            return address, 16, AF_INET
        end
    elseif host_name:find(":", 1, true) then
        local bare = host_name:match("^%[(.*)%]$") or host_name
        local address = ffi.new("struct hr_sockaddr_in6")
        if C.hr_inet_pton(AF_INET6, bare, address.address) == 1 then
            address.family = AF_INET6
            address.port[0], address.port[1] = math.floor(port / 256), port % 256
            return address, 28, AF_INET6
        end
    end
    return nil
end

--- Whether a text is a numeric address.
function S.is_ip(text)
    return ip_address(text, 0) ~= nil
end

S.ip_address, S.unix_address = ip_address, unix_address

local waits = {} -- lookups under way: number -> {T, seq}
local lookups = 0

--- Python: a lookup has ended; addresses is a string of numeric addresses separated by spaces, or nil and why.
function S.resolved(number, addresses, why)
    S.turn = 0
    S.wall = nil
    local lookup = waits[number]
    waits[number] = nil
    if lookup then
        S.wake(lookup[1], lookup[2], addresses, why)
        S.drain()
    end
end

local function lookup_timeout(number)
    local lookup = waits[number]
    if lookup then
        waits[number] = nil
        S.wake(lookup[1], lookup[2], nil, "timeout")
    end
end

-- All addresses of a name, or nil and the words of the error.
local function resolve(name, timeout)
    lookups = lookups + 1
    local number, T = lookups, S.cur
    waits[number] = { T, S.mark(T) }
    local conf = S.R.conf
    if conf.resolver >= 0 then
        timeout = conf.resolver_timeout
    end
    local entry = S.at(S.mono() + timeout, lookup_timeout, number)
    host.resolve(number, name, conf.resolver)
    local addresses, why = S.wait()
    S.cancel(entry)
    if not addresses then
        return nil, why == "timeout" and name .. " could not be resolved (110: Operation timed out)"
            or name .. " could not be resolved (" .. why .. ")"
    end
    local list = {}
    for address in addresses:gmatch("%S+") do
        list[#list + 1] = address
    end
    return list
end

S.resolve_name = resolve

local function open(sock, address, size, family, timeout)
    local fd = C.hr_socket(family, STREAM + NONBLOCK_CLOEXEC, 0)
    if fd < 0 then
        return nil, S.strerror(ffi.errno())
    end
    if sock.bound and family ~= AF_UNIX then
        local local_address, local_size, local_family = ip_address(sock.bound[1], sock.bound[2])
        if local_family ~= family or C.hr_bind(fd, local_address, local_size) ~= 0 then
            C.hr_close(fd)
            return nil, local_family ~= family and "bad address" or S.strerror(ffi.errno())
        end
    end
    local number = 0
    if C.hr_connect(fd, address, size) ~= 0 then
        number = ffi.errno()
    end
    local later = number == EINPROGRESS or number == EINTR
    if later then
        sock.fd = fd
        local why = S.wait_writable(sock, timeout)
        S.forget_fd(sock)
        sock.fd = nil
        if why then
            C.hr_close(fd)
            return nil, why
        end
        length[0] = 4
        C.hr_getsockopt(fd, 1, 4, value, length) -- SOL_SOCKET, SO_ERROR
        number = value[0]
    elseif number == EAGAIN then
        -- A unix listener whose backlog is full: there is no event to wait for.
        C.hr_close(fd)
        return nil, S.strerror(EAGAIN)
    end
    if number ~= 0 then
        C.hr_close(fd)
        return nil, S.strerror(number), number, later
    end
    if family ~= AF_UNIX then
        value[0] = 1
        C.hr_setsockopt(fd, 6, 1, value, 4) -- IPPROTO_TCP, TCP_NODELAY
        S.note("lua socket tcp_nodelay")
    end
    return fd
end

--- Open a connection. path (unix) or name and port; returns the descriptor, or nil, error, errno, and whether it came
--- only after a wait.
--- A name's addresses are tried one after another within the timeout (ms).
function S.dial(sock, path, name, port, timeout)
    if path then
        local address, size, family = unix_address(path)
        if not address then
            return nil, "failed to parse host name \"unix:" .. path .. "\": too long path in the unix domain socket"
        end
        return open(sock, address, size, family, timeout)
    end
    if name:find("^[^%[]*:.*:") then
        return nil, "failed to parse host name \"" .. name .. "\": invalid port"
    end
    local address, size, family = ip_address(name, port)
    if address then
        return open(sock, address, size, family, timeout)
    end
    if name == "" then
        return nil, "failed to parse host name \"\": no host"
    end
    if name:find("[%z\1-\32/]") then
        return nil, "failed to parse host name \"" .. name .. "\": invalid host"
    end
    local limit = S.mono() + timeout
    local list, why = resolve(name, timeout)
    if not list then
        return nil, why
    end
    local fd, number, later
    for i = 1, #list do
        address, size, family = ip_address(list[i], port)
        local left = limit - S.mono()
        if left <= 0 then
            return nil, "timeout"
        end
        fd, why, number, later = open(sock, address, size, family, left)
        if fd then
            return fd
        end
    end
    return nil, why, number, later
end

local options = {
    keepalive = { 1, 9 }, reuseaddr = { 1, 2 }, sndbuf = { 1, 7 }, rcvbuf = { 1, 8 }, ["tcp-nodelay"] = { 6, 1 },
}

--- tcpsock:setoption: returns true, or nil and the words of the error.
function S.set_option(fd, name, setting)
    local option = options[name]
    if not option then
        return nil, "unsupported option " .. tostring(name)
    end
    value[0] = setting == true and 1 or tonumber(setting) or 0
    if C.hr_setsockopt(fd, option[1], option[2], value, 4) ~= 0 then
        return nil, S.strerror(ffi.errno())
    end
    return true
end

function S.get_option(fd, name)
    local option = options[name]
    if not option then
        return nil, "unsupported option " .. tostring(name)
    end
    length[0] = 4
    if C.hr_getsockopt(fd, option[1], option[2], value, length) ~= 0 then
        return nil, S.strerror(ffi.errno())
    end
    return value[0]
end
