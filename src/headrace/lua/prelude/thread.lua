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
local co_create, co_resume, co_yield, co_status = raw.create, raw.resume, raw.yield, raw.status
local co_running = raw.running
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
        local inner = S.inner_failure
        local traces = inner and inner.err == token and inner.traces or {} -- a coroutine within this one has failed first
        traces[#traces + 1] = S.coroutine_trace(co)
        S.inner_failure = { err = token, traces = traces }
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
    local status = co_status(co)
    if status ~= "suspended" then
        return false, "cannot resume " .. status .. " coroutine"
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
        return T.dead and "zombie" or T == S.cur and co ~= co_running() and "normal" or "running"
    end
    return collected[co] and "dead" or waiting[co] and "normal" or co_status(co)
end

local spawned = nil -- starts the light thread whose parent has just yielded for it

-- Run the threads that spawn() calls asked for; each runs before those that were posted earlier.
local function start_spawned()
    while spawned do
        local start = spawned
        spawned = nil
        start()
    end
end

--- Start a light thread of R running fn(...); the caller's thread is its parent, and goes on after those that are
--- posted already.
function S.spawn(R, fn, ...)
    local parent = S.cur
    local T = { co = co_create(S.loop), seq = 0, R = R, parent = parent, by = co_running(), dead = false }
    S.thread_of[T.co] = T
    R.threads = R.threads or {}
    R.threads[T] = true
    R.live = R.live + 1
    if not parent then
        S.resume(T, fn, ...)
        start_spawned()
        return T
    end
    local n, args = select("#", ...), { ... }
    spawned = function()
        if not T.dead then
            return S.resume(T, fn, unpack(args, 1, n))
        end
    end
    S.post(parent, S.mark(parent))
    co_yield(WAIT)
    return T
end
S.start_spawned = start_spawned

local function thread_argument(value, n, name)
    if type(value) ~= "thread" then
        return S.bad_argument(n, name, "lua thread expected")
    end
    local T = S.thread_of[value]
    if T or collected[value] then
        return T
    end
    if S.cur and value == S.cur.co then
        return nil, "not user thread"
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
        if T.by ~= co_running() then
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
    local T, why = thread_argument(co, 1, "kill")
    if not T then
        return nil, why or "already waited or killed"
    end
    if T.by ~= co_running() then
        return nil, "killer not parent"
    end
    if T.pending then
        return nil, "pending subrequests"
    end
    if T.dead then
        return nil, "already terminated"
    end
    forget(T)
    S.kill(T, R)
    R.live = R.live - 1
    return 1
end
