-- The answer's body: ngx.say, print, flush, eof, send_headers, and leaving: exit, redirect, exec.
--
-- What say and print write stays in the request's own buffer in Lua until the handler waits or ends, it is
-- flushed, or PASS bytes have gathered; only then it crosses to the request's chain. The header counts as sent
-- with the first of them.
local S, host = ...
local ngx = S.ngx
local null = S.null
local type, select, tostring, rawget = type, select, tostring, rawget
local PASS = 32768

-- How many elements an array table has (its highest positive integer key); nil when it has other keys.
local function array_length(value)
    local n = #value
    local count = 0
    local max = 0
    for key in pairs(value) do
        if type(key) ~= "number" or key < 1 or key % 1 ~= 0 then
            return nil
        end
        count = count + 1
        if key > max then
            max = key
        end
    end
    return count == n and n or max
end

local function put_table(buf, value, argument, name, strict)
    local bad = strict and S.bad_method_argument or S.bad_argument
    local n = array_length(value)
    if not n then
        return bad(argument, name, "non-array table found")
    end
    for i = 1, n do
        local item = rawget(value, i)
        local kind = type(item)
        if kind == "string" or kind == "number" then
            buf:put(item)
        elseif kind == "table" then
            put_table(buf, item, argument, name, strict)
        elseif not strict and (item == nil or kind == "boolean") then
            buf:put(tostring(item))
        elseif item == null and not strict then
            buf:put("null")
        else
            return bad(argument, name, "bad data type " .. kind .. " found")
        end
    end
end

local scratch = require("string.buffer").new()

--- A nested array table of strings and numbers as one string, for sockets; errors are those of an argument of `name`.
function S.flatten(value, argument, name)
    scratch:reset()
    put_table(scratch, value, argument, name, true)
    return scratch:get()
end

local function put_other(buf, value, n, name)
    local kind = type(value)
    if kind == "table" then
        local meta = getmetatable(value)
        if meta and meta.__tostring and not array_length(value) then
            buf:put(tostring(value))
            return
        end
        return put_table(buf, value, n, name, false)
    elseif value == nil or kind == "boolean" then
        buf:put(tostring(value))
    elseif value == null then
        buf:put("null")
    else
        return S.bad_argument(n, name,
            "string, number, boolean, nil, ngx.null, or array table expected, but got " .. kind)
    end
end

-- An answer to a client of HTTP/1.0 stays here until it is whole, so that its length is known (lua_http10_buffering).
local function held(R)
    if R.begun then
        return false
    elseif R.conf.http10_buffering and host.buffering(R.id) == 1 then
        return true
    end
    R.begun = true
    return false
end

local function pass(R)
    local buf = R.buf
    if #buf > 0 and not held(R) then
        host.output(R.id, S.taken(buf))
    end
end

S.pass_output = pass

-- Why nothing may be written after the end of the answer.
local function over(R)
    return nil, R.raw and "raw request socket acquired" or "seen eof"
end

local function begin()
    local R = S.R
    if not R or not S.may_output[R.phase] then
        return S.disabled()
    end
    if R.eof then
        return over(R)
    end
    if R.header_only then
        R.sent = true
        return nil, "header only"
    end
    return R
end

-- A bad argument must leave nothing behind: what is not plain goes through a buffer of its own.
local function put_all(buf, n, name, ...)
    scratch:reset()
    for i = 1, n do
        local value = (select(i, ...))
        local kind = type(value)
        if kind == "string" or kind == "number" then
            scratch:put(value)
        else
            put_other(scratch, value, i, name)
        end
    end
    buf:put(scratch)
    S.empty(scratch)
end

local function write(newline, name, ...)
    local R = S.R
    if not (R and S.may_output[R.phase]) or R.eof or R.header_only then
        local why
        R, why = begin()
        if not R then
            return nil, why
        end
    end
    local buf = R.buf
    local n = select("#", ...)
    local first = ...
    if n == 1 and type(first) == "string" then
        buf:put(first)
    elseif n > 0 then
        put_all(buf, n, name, ...)
    end
    R.sent = true
    if newline then
        buf:put("\n")
    end
    if #buf >= PASS or R.conf.each then
        pass(R)
        S.count_op()
    end
    return 1
end

function ngx.say(...)
    return write(true, "say", ...)
end

function ngx.print(...)
    return write(false, "print", ...)
end

function ngx.send_headers()
    local R, why = begin()
    if S.R.raw then
        return 1
    elseif not R and why ~= "header only" then
        return nil, why
    end
    S.R.sent = true
    host.send_headers(S.R.id)
    return 1
end

--- Python: the flush of a request has ended.
function S.flushed(id, why)
    S.turn = 0
    S.wall = nil
    local R = S.requests[id]
    local waiters = R and R.flushing
    if waiters then
        R.flushing = nil
        for i = 1, #waiters, 2 do
            S.post(waiters[i], waiters[i + 1], why)
        end
        S.drain()
    end
end

--- Send what was written so far; wait: until it is in the kernel.
function ngx.flush(wait)
    local R = S.R
    if not R or not S.may_output[R.phase] then
        return S.disabled()
    end
    if R.eof then
        return over(R)
    end
    if R.header_only then
        return nil, "header only"
    end
    if not R.sent then
        return nil, "nothing to flush"
    end
    if held(R) then
        return nil, "buffering"
    end
    pass(R)
    local state, why = host.flush(R.id, wait and 1 or 0)
    if not state then
        return nil, why
    end
    if state == 1 or not wait then
        return 1
    end
    local T = S.cur
    local waiters = R.flushing
    if not waiters then
        waiters = {}
        R.flushing = waiters
    end
    waiters[#waiters + 1] = T
    waiters[#waiters + 1] = S.mark(T)
    why = S.wait()
    if why then
        return nil, why
    end
    return 1
end

--- No more output; the client has the whole answer now, the handler goes on.
function ngx.eof()
    local R = S.R
    if not R or not S.may_output[R.phase] then
        return S.disabled()
    end
    if R.eof then
        return over(R)
    end
    R.sent = true
    R.begun = true
    pass(R)
    R.eof = true
    host.eof(R.id)
    return 1
end

local PENDING = "attempt to abort with pending subrequests"

--- A handler cannot go elsewhere while subrequests of it run.
function S.check_pending(R)
    if R.pending then
        return S.raise(PENDING)
    end
end

-- Statuses that end a request without an answer of their own: also after the header has gone.
local at_any_time = { [408] = true, [444] = true, [499] = true }

--- End the handler: code >= 200 ends the request with it, 0 the phase only.
function ngx.exit(code)
    local R = S.R
    if not R or R.phase <= S.INIT_WORKER then
        return S.disabled()
    end
    S.check_exit(code)
    S.note("lua exit with code ", code)
    if R.phase == S.HEADER_FILTER or R.phase == S.BALANCER or R.phase == S.SSL_SESSION_STORE then
        R.code = code -- the script goes on, as in OpenResty
        return
    end
    if not S.cur then
        return S.disabled()
    end
    if R.pending and not at_any_time[code] and code ~= ngx.ERROR then
        return S.raise(PENDING)
    end
    if R.sent and code >= 200 and R.phase ~= S.TIMER and not at_any_time[code] then
        local status = S.get_status(R)
        if code >= 300 and code ~= status then
            host.log(R.id, ngx.ERR, "attempt to set status " .. code
                .. " via ngx.exit after sending out the response status " .. status)
        end
        code = 200
    end
    return S.exit_now(R, code)
end

--- The first byte that must not stand in a URI or header line, as its hex number and the escaped text.
function S.unsafe_byte(text)
    local at = text:find("[%z\1-\8\10-\31\127]")
    if at then
        return ("0x%02x"):format(text:byte(at)), (text:gsub("[%z\1-\8\10-\31\127\"\\]", function(c)
            return ("\\x%02X"):format(c:byte())
        end))
    end
end

local redirects = { [301] = true, [302] = true, [303] = true, [307] = true, [308] = true }

function ngx.redirect(uri, status)
    local R = S.R
    if not R or not S.may_output[R.phase] then
        return S.disabled()
    end
    uri = S.check_string(uri, 1, "redirect")
    status = status == nil and 302 or S.check_number(status, 2, "redirect")
    if not redirects[status] then
        return S.raise("only ngx.HTTP_MOVED_TEMPORARILY, ngx.HTTP_MOVED_PERMANENTLY, ngx.HTTP_PERMANENT_REDIRECT, "
            .. "ngx.HTTP_SEE_OTHER, and ngx.HTTP_TEMPORARY_REDIRECT are allowed")
    end
    S.check_pending(R)
    if R.sent or host.headers_sent(R.id) == 1 then
        return S.raise("attempt to call ngx.redirect after sending out the headers")
    end
    local byte, text = S.unsafe_byte(uri)
    if byte then
        return S.raise('unsafe byte "' .. byte .. '" in redirect uri "' .. text .. '"')
    end
    S.change_field(R, "Location", uri)
    return S.exit_now(R, status)
end

function ngx.exec(...)
    if select("#", ...) ~= 1 and select("#", ...) ~= 2 then
        return S.raise("expecting one or two arguments, but got " .. select("#", ...))
    end
    local uri, args = ...
    local R = S.R
    if not R or not S.may_output[R.phase] then
        return S.disabled()
    end
    S.check_pending(R)
    uri = S.check_string(uri, 1, "exec")
    if uri == "" then
        return S.raise("The uri argument is empty")
    end
    if S.unsafe_byte(uri) then
        return S.raise("unsafe uri")
    end
    if R.sent or host.headers_sent(R.id) == 1 then
        return S.raise("attempt to call ngx.exec after sending out response headers")
    end
    if type(args) == "table" then
        args = ngx.encode_args(args)
    elseif args ~= nil then
        args = S.check_string(args, 2, "exec")
    end
    local path, query = uri, args
    local at = uri:find("?", 1, true)
    if uri:byte() == 64 then
        path = at and uri:sub(1, at - 1) or uri -- a name keeps the arguments of the request
    else
        if at then
            path, query = uri:sub(1, at - 1), uri:sub(at + 1)
            if args and args ~= "" then
                query = query == "" and args or query .. "&" .. args
            end
        end
        query = query or ""
    end
    local code = host.exec(R.id, path, query) or S.raise("unsafe uri")
    return S.exit_now(R, code)
end

S.getters.headers_sent = function()
    local R = S.request()
    return R.sent == true or host.headers_sent(R.id) == 1
end
