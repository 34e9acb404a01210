-- Sessions of stream {}: what is said otherwise than for requests of http. https://github.com/openresty/stream-lua-nginx-module
local S, host = ...
local ngx = S.ngx
local type, select = type, select

-- preread_by_lua has the number that rewrite_by_lua has for http.
S.PREREAD = S.REWRITE
S.phases[S.PREREAD], S.context_names[S.PREREAD] = "preread", "preread_by_lua*"

ngx.req = {}
host.buffering = function() -- that is for HTTP/1.0
    return 0
end
S.tell_fields, S.untold_of = function() end, function() end

local datagrams = {} -- id of a session -> whether it has a datagram instead of a connection
local statuses = {} -- id of a session -> what its script has set ngx.status to
local lost = false -- the client was gone when the last output went to it
local output = host.output
host.output = function(id, data)
    lost = output(id, data) == 1
end

--- A session has ended.
function S.forget_session(id)
    datagrams[id], statuses[id] = nil, nil
end

local function begin()
    local R = S.R
    if not R then
        return S.raise("no request object found")
    end
    if not S.may_output[R.phase] or not S.cur then
        return S.disabled()
    end
    local id = R.id
    local datagram = datagrams[id]
    if datagram == nil then
        datagram = host.client_kind(id) == 2
        datagrams[id] = datagram
    end
    if datagram then
        return S.raise("API disabled in the current context")
    end
    return R
end

local function checked(write)
    return function(...)
        begin()
        lost = false
        local ok, why = write(...)
        if lost then
            return nil, "nginx output filter error"
        end
        return ok, why
    end
end
ngx.say, ngx.print = checked(ngx.say), checked(ngx.print)

--- Wait until all that was written is in the kernel; without `wait` nothing is to be done.
function ngx.flush(...)
    local n = select("#", ...)
    if n > 1 then
        return S.raise("attempt to pass " .. n .. " arguments, but accepted 0 or 1")
    end
    local wait = ...
    if n == 1 and type(wait) ~= "boolean" then
        return S.bad_argument(1, "flush", "boolean expected, got " .. type(wait))
    end
    local R = begin()
    if R.eof then
        return nil, "seen eof"
    end
    S.pass_output(R)
    local state, why = host.flush(R.id, R.conf.send_timeout * 1e-3)
    if not state then
        return nil, why
    end
    if state == 1 or not wait then
        return 1
    end
    local waiters = R.flushing or {}
    R.flushing = waiters
    waiters[#waiters + 1] = S.cur
    waiters[#waiters + 1] = S.mark(S.cur)
    why = S.wait()
    if why then
        return nil, why
    end
    return 1
end

--- Nothing may be written any more.
function ngx.eof(...)
    if select("#", ...) ~= 0 then
        return S.raise("no argument is expected")
    end
    local R = begin()
    if R.eof then
        return nil, "seen eof"
    end
    S.pass_output(R)
    R.eof = true
    return 1
end

--- End the handler: in the preread phase 0 goes on, everything else is the status of the session.
function ngx.exit(code)
    local R = S.R
    if not R or R.phase <= S.INIT_WORKER then
        return S.raise("no request found")
    end
    S.check_exit(code)
    if R.phase == S.BALANCER then
        R.code = code
        return
    end
    if not S.cur then
        return S.disabled()
    end
    return S.exit_now(R, code)
end

-- The status is that of the session, 0 while it lasts; what a script sets is told to itself only, as in OpenResty.
function S.get_status(R)
    return statuses[R.id] or host.client_status(R.id)
end

S.getters.status = function()
    return S.get_status(S.request())
end

S.setters.status = function(value)
    statuses[S.request().id] = value
end
