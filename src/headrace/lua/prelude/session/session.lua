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

local function begin()
    local R = S.R
    if not R then
        return S.raise("no request object found")
    end
    if not S.may_output[R.phase] or not S.cur then
        return S.disabled()
    end
    if host.client_kind(R.id) == 2 then
        return S.raise("API disabled in the current context")
    end
    return R
end

local function checked(write)
    return function(...)
        begin()
        return write(...)
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
    if type(code) ~= "number" then
        return S.bad_argument(1, "exit", "number expected, got " .. type(code))
    end
    if code == ngx.AGAIN or code == ngx.DONE then
        return S.raise("bad argument to 'ngx.exit': does not accept NGX_AGAIN or NGX_DONE")
    end
    if R.phase == S.BALANCER then
        R.code = code
        return
    end
    if not S.cur then
        return S.disabled()
    end
    return S.exit_now(R, code)
end

-- The status is that of the session, 0 while it lasts.
function S.get_status(R)
    return host.client_status(R.id)
end

S.getters.status = function()
    return S.get_status(S.request())
end

S.setters.status = function()
    return S.raise("the status of a session is not changeable")
end
