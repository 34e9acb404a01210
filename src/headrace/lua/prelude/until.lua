-- Reading up to a mark: receive("*l") and receiveuntil, over the one buffer of unread bytes.
--
-- Nothing is taken from the buffer before it is known what it is, so readers of all kinds can be mixed: bytes
-- that may begin the pattern stay where they are until more has come.
local S = ...
local ffi, C = S.ffi, S.C
local type, select, tonumber = type, select, tonumber
local fill, read_failed = S.fill, S.read_failed
local methods = S.socket_methods
local cast = ffi.cast
local char_ptr = ffi.typeof("const char *")

-- Position (from 0) of a pattern in the buffer at or behind `from`, or nil.
local function find(rb, pattern, from)
    local ptr, size = rb:ref()
    if size - from < #pattern then
        return nil
    end
    local at = C.hr_memmem(ptr + from, size - from, pattern, #pattern)
    if at == nil then
        return nil
    end
    return tonumber(cast(char_ptr, at) - cast(char_ptr, ptr))
end

--- A line without its end; all CR are dropped, as OpenResty does.
function S.read_line(sock)
    local rb = sock.rb
    local from = 0
    while true do
        local at = find(rb, "\n", from)
        if at then
            local line = rb:get(at)
            rb:skip(1)
            if line:find("\r", 1, true) then
                line = line:gsub("\r", "")
            end
            return line
        end
        from = #rb
        local got, why = fill(sock, 1)
        if not got then
            local partial = rb:get():gsub("\r", "")
            return nil, read_failed(sock, why), partial
        end
    end
end

-- How many bytes at the end of the buffer may be the beginning of the pattern.
local function ambiguous(rb, pattern)
    local ptr, size = rb:ref()
    local most = #pattern - 1
    if most > size then
        most = size
    end
    for n = most, 1, -1 do
        local same = true
        for i = 1, n do
            if ptr[size - n + i - 1] ~= pattern:byte(i) then
                same = false
                break
            end
        end
        if same then
            return n
        end
    end
    return 0
end

local function read_until(sock, state, pattern, inclusive, size)
    local rb = sock.rb
    local from = 0
    while true do
        local at = find(rb, pattern, from)
        -- A piece of exactly `size` before the pattern leaves the pattern to the next call, as it must when the
        -- pattern has not arrived yet: what the calls give does not depend on how the stream was cut.
        if at and (size == 0 or at == 0 or at < size) then
            if size > 0 then
                state.ended = true
            end
            local data = rb:get(at)
            rb:skip(#pattern)
            return inclusive and data .. pattern or data
        end
        if size > 0 and (at or #rb - ambiguous(rb, pattern) >= size) then
            return (rb:get(size))
        end
        from = #rb - #pattern + 1
        if from < 0 then
            from = 0
        end
        local got, why = fill(sock, 1)
        if not got then
            local partial = rb:get()
            return nil, read_failed(sock, why), partial
        end
    end
end

--- receiveuntil(pattern, {inclusive}): an iterator over the stream up to the pattern.
function methods.receiveuntil(sock, ...)
    if type(sock) ~= "table" then
        return S.bad_self(sock, "receiveuntil")
    end
    local n = select("#", ...)
    if n < 1 or n > 2 then
        return S.raise("expecting 2 or 3 arguments (including the object), but got " .. n + 1)
    end
    local pattern, options = ...
    pattern = S.check_string(pattern, 1, "receiveuntil")
    local inclusive = false
    if options ~= nil then
        if type(options) ~= "table" then
            return S.bad_method_argument(2, "receiveuntil", "table expected, got " .. type(options))
        end
        inclusive = options.inclusive
        if inclusive ~= nil and type(inclusive) ~= "boolean" then
            return S.raise('bad "inclusive" option value type: ' .. type(inclusive))
        end
    end
    if pattern == "" then
        return nil, "pattern is empty"
    end
    local state = {}
    return function(...)
        if select("#", ...) > 1 then
            return S.raise("expecting 0 or 1 argument, but seen " .. select("#", ...))
        end
        local size = ...
        size = size == nil and 0 or S.check_number(size, 1, "?")
        if not sock.fd or sock.rclosed then
            return nil, "closed"
        end
        local why = S.refused(sock, true, false)
        if why then
            return nil, why
        end
        if state.ended then
            state.ended = nil
            return nil, nil, nil
        end
        return read_until(sock, state, pattern, inclusive, size > 0 and math.floor(size) or 0)
    end
end
