-- tcpsock:receive and receiveany: so many bytes, a line, everything, or what has arrived.
local S = ...
local type, tonumber, select = type, tonumber, select
local fill, read_failed, refused, on_closed = S.fill, S.read_failed, S.refused, S.on_closed
local methods = S.socket_methods

local function partial(sock, why)
    local bytes = sock.rb:get()
    return nil, read_failed(sock, why), bytes
end

-- receive(n) that needs more than one read: apart, so that a loop around receive() has no loop within it and compiles.
local function receive_more(sock, size)
    local rb = sock.rb
    while #rb < size do
        local got, why = fill(sock, size - #rb)
        if not got then
            return partial(sock, why)
        end
    end
    return (rb:get(size))
end

local function receive_all(sock)
    while true do
        local got, why = fill(sock, 1)
        if not got then
            if why == "closed" then
                sock.rclosed = true
                return (sock.rb:get())
            end
            return partial(sock, why)
        end
    end
end

--- receive(n), receive("*l"), receive("*a"), receive()
function methods.receive(sock, ...)
    if type(sock) ~= "table" then
        return S.bad_self(sock, "receive")
    end
    local n = select("#", ...)
    if n > 1 then
        return S.raise("expecting 1 or 2 arguments (including the object), but got " .. n + 1)
    end
    if not sock.fd or sock.rclosed then
        return on_closed(sock, "receive")
    end
    local why = refused(sock, true, false)
    if why then
        return nil, why
    end
    local what = ...
    local size = n == 0 and -1 or tonumber(what)
    local rb = sock.rb
    if size and size >= 0 then
        size = math.floor(size)
        local have = #rb
        if have < size then
            local got
            got, why = fill(sock, size - have)
            if not got then
                return partial(sock, why)
            end
            if got + have < size then
                return receive_more(sock, size)
            end
        end
        if size == 0 then
            return ""
        end
        return (rb:get(size))
    elseif size == -1 and n == 0 or what == "*l" then
        return S.read_line(sock)
    elseif what == "*a" then
        return receive_all(sock)
    elseif size then
        return S.bad_method_argument(2, "receive", "bad number argument")
    elseif type(what) == "string" then
        if #what ~= 2 or what:byte() ~= 42 then
            return S.bad_method_argument(2, "receive", "bad pattern argument: " .. what)
        end
        return S.bad_method_argument(2, "receive", "bad pattern argument")
    end
    return S.bad_method_argument(2, "receive", "bad argument")
end

--- At most max bytes, whatever has arrived.
function methods.receiveany(sock, ...)
    if type(sock) ~= "table" then
        return S.bad_self(sock, "receiveany")
    end
    local n = select("#", ...)
    if n ~= 1 then
        return S.raise("expecting 2 arguments (including the object), but got " .. n + 1)
    end
    if not sock.fd or sock.rclosed then
        return on_closed(sock, "receive")
    end
    local why = refused(sock, true, false)
    if why then
        return nil, why
    end
    local max = tonumber((...))
    if not max or max < 1 then
        return S.bad_method_argument(2, "receiveany", "bad max argument")
    end
    local rb = sock.rb
    S.note("lua tcp socket calling receiveany() method to read at most ", max, " bytes")
    if #rb == 0 then
        local got
        got, why = fill(sock, 1)
        if not got then
            return nil, read_failed(sock, why)
        end
    end
    S.note("lua tcp socket read any")
    return (rb:get(math.floor(max)))
end
