-- coroutine.* and ngx.thread.*: inner coroutines that may wait, and light threads.
--
-- A coroutine of the user runs inside its resumer as in plain Lua. When it waits (its yield carries a token of
-- the scheduler), the resumer yields the token on, and passes what it is woken with down again.
local S = ...
local ngx = S.ngx
local WAIT, EXIT = S.WAIT, S.EXIT
local raw = {}
for name, fn in pairs(coroutine) do
    raw[name] = fn
end
S.raw_coroutine = raw
local co_create, co_resume, co_yield, co_status = raw.create, raw.resume, raw.yield, raw.status
local error, type, select = error, type, select
local waiting = setmetatable({}, { __mode = "k" }) -- coroutines inside whose call somebody waits
local collected = setmetatable({}, { __mode = "k" }) -- light threads that were waited for or killed

local pass

local function resumed(co, ok, ...)
    local token = ...
    if ok and (token == WAIT or token == EXIT) then
        waiting[co] = true
        return pass(co, co_yield(token))
    end
    if not ok then
        S.inner_failure = { err = token, trace = S.coroutine_trace(co) }
    end
    return ok, ...
end

pass = function(co, ...)
    waiting[co] = nil
    return resumed(co, co_resume(co, ...))
end

function coroutine.resume(co, ...)
    if type(co) ~= "thread" then
        return S.bad_argument(1, "resume", "coroutine expected")
    end
    if waiting[co] then
        return false, "cannot resume normal coroutine"
    end
    local T = S.thread_of[co]
    if T then
        return false, "cannot resume " .. (T.dead and "dead" or "running") .. " coroutine"
    end
    return resumed(co, co_resume(co, ...))
end
local resume = coroutine.resume

local function unwrap(ok, ...)
    if ok then
        return ...
    end
    local message = ...
    return error(message, 0)
end

function coroutine.create(fn)
    if type(fn) ~= "function" then
        return S.bad_argument(1, "create", "function expected")
    end
    return co_create(fn)
end

function coroutine.wrap(fn)
    if type(fn) ~= "function" then
        return S.bad_argument(1, "wrap", "function expected")
    end
    local co = co_create(fn)
    return function(...)
        return unwrap(resume(co, ...))
    end
end

function coroutine.status(co)
    if type(co) ~= "thread" then
        return S.bad_argument(1, "status", "coroutine expected")
    end
    local T = S.thread_of[co]
    if T then
        return T.dead and "zombie" or "running"
    end
    return collected[co] and "dead" or waiting[co] and "normal" or co_status(co)
end

local function thread_argument(value, n, name)
    if type(value) ~= "thread" then
        return S.bad_argument(n, name, "lua thread expected")
    end
    local T = S.thread_of[value]
    if T or collected[value] then
        return T
    end
    return S.raise("no co ctx found")
end

local function may_wait()
    local R = S.R
    if not R or not S.cur then
        return S.disabled()
    end
    return R
end

ngx.thread = {}

function ngx.thread.spawn(fn, ...)
    local R = may_wait()
    if type(fn) ~= "function" then
        return S.bad_argument(1, "spawn", "function expected, got " .. type(fn))
    end
    return S.spawn(R, fn, ...).co
end

local function forget(T)
    collected[T.co] = true
    S.thread_of[T.co] = nil
    if T.R then
        T.R.threads[T] = nil
    end
end

local function collect(T)
    local results = T.results
    T.results = nil
    forget(T)
    return unpack(results, 1, results.n)
end

function ngx.thread.wait(...)
    may_wait()
    local me = S.cur
    local n = select("#", ...)
    if n < 1 then
        return S.raise("at least one coroutine should be specified")
    end
    local threads = { ... }
    for i = 1, n do
        local T = thread_argument(threads[i], i, "wait")
        if not T then
            return nil, "already waited or killed"
        end
        if T.parent ~= me then
            return S.raise("only the parent coroutine can wait on the thread")
        end
        threads[i] = T
        if T.dead then
            return collect(T)
        end
    end
    local seq = S.mark(me)
    for i = 1, n do
        threads[i].waiter, threads[i].waiter_seq = me, seq
    end
    local T = S.wait()
    for i = 1, n do
        threads[i].waiter = nil
    end
    return collect(T)
end

function ngx.thread.kill(co)
    local R = may_wait()
    local T = thread_argument(co, 1, "kill")
    if not T then
        return nil, "already waited or killed"
    end
    if T.parent ~= S.cur then
        return nil, "killer not parent"
    end
    if T.dead then
        return nil, "already terminated"
    end
    forget(T)
    T.dead, T.R = true, nil
    T.seq = T.seq + 1
    R.live = R.live - 1
    return 1
end
