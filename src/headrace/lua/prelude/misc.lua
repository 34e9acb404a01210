-- The process and the phase: ngx.get_phase, ngx.worker, ngx.config, timers, and the guard of global variables.
local S, host = ...
local ngx, stats = S.ngx, S.stats
local type, select, tostring, rawset = type, select, tostring, rawset
local settings = S.settings

function ngx.get_phase()
    local R = S.R
    return S.phases[R and R.phase or S.INIT]
end

ngx.worker = {
    pid = function()
        return host.pid()
    end,
    pids = function()
        local R = S.R
        if not R or R.phase == S.INIT then
            return S.raise("API disabled in the current context")
        end
        local found = {}
        for pid in host.worker_pids():gmatch("%d+") do
            found[#found + 1] = tonumber(pid)
        end
        return found
    end,
    id = function()
        return S.worker_id
    end,
    count = function()
        return settings.worker_count
    end,
    exiting = function()
        return S.exiting == true
    end,
}

-- ndk.set_var.DIRECTIVE(value): the functions of the set-misc module.
_G.ndk = {
    set_var = setmetatable({}, {
        __index = function(_, name)
            if type(name) ~= "string" or host.ndk_function(name) == 0 then
                return S.raise("ndk.set_var: directive \"" .. tostring(name)
                    .. "\" not found or does not use ndk_set_var_value")
            end
            return function(value)
                local made = host.ndk_call(name, S.check_string(value, 1, name))
                return made or S.raise("calling directive " .. name .. " failed with code -1")
            end
        end,
    }),
}
package.loaded.ndk = _G.ndk

ngx.config = {
    subsystem = settings.subsystem,
    debug = true, -- as --with-debug among the arguments of configure says: there are messages of level debug
    nginx_version = 1026003,
    ngx_lua_version = 10026,
    is_console = false,
    prefix = function()
        return settings.prefix
    end,
    nginx_configure = function()
        return settings.configure
    end,
}

-- timers

local pending, running = 0, 0
local timers = {} -- those that have not fired: entry -> true

local start

local function fire(timer, premature)
    timers[timer] = nil
    pending = pending - 1
    if running >= settings.max_running_timers then
        host.log(0, ngx.ALERT, settings.max_running_timers .. " lua_max_running_timers are not enough")
        return
    end
    local conf = timer.conf
    S.note_for(nil, conf, "lua ngx.timer expired")
    running = running + 1
    if timer.every and not premature and not S.exiting then
        start(timer.every, timer)
    end
    local args = timer.args
    S.run_task(S.TIMER, timer.conf, function()
        running = running - 1
        S.note_for(nil, conf, settings.subsystem, " lua close fake ", settings.subsystem, " connection")
    end, timer.fn, premature, unpack(args, 1, args.n))
end

start = function(delay, timer)
    pending = pending + 1
    timers[timer] = S.at(S.mono() + delay * 1000, fire, timer, false)
end

local function create(name, every, n, delay, fn, ...)
    local R = S.R
    if not R or R.phase == S.INIT then
        return S.raise("no request")
    elseif R.phase == S.EXIT_WORKER then
        return S.disabled()
    end
    if n < 2 then
        return S.raise("expecting at least 2 arguments but got " .. n)
    end
    delay = S.check_number(delay, 1, name)
    if type(fn) ~= "function" then
        return S.bad_argument(2, name, "function expected, got " .. (fn == nil and "nil" or type(fn)))
    end
    if every and not (delay >= 0.001) then -- whole milliseconds; what is not a number neither
        return S.raise("delay cannot be zero")
    elseif not (delay >= 0) then
        return S.raise("delay cannot be negative")
    end
    if S.exiting and delay > 0 then
        return nil, "process exiting"
    end
    if pending >= settings.max_pending_timers then
        return nil, "too many pending timers"
    end
    local timer = { fn = fn, every = every and delay or nil, args = { n = select("#", ...), ... }, conf = R.conf }
    start(delay, timer)
    stats.timers = stats.timers + 1
    return 1
end

ngx.timer = {}

function ngx.timer.at(...)
    return create("at", false, select("#", ...), ...)
end

function ngx.timer.every(...)
    return create("every", true, select("#", ...), ...)
end

function ngx.timer.pending_count()
    return pending
end

function ngx.timer.running_count()
    return running
end

--- Python: the worker begins to end. Every pending timer fires once, as premature; idle connections close.
function S.exit()
    S.exiting = true
    S.turn = 0
    S.wall = nil
    local due = {}
    for timer, entry in pairs(timers) do
        due[#due + 1] = timer
        S.cancel(entry)
    end
    if #due > 0 then
        S.note_for(nil, nil, "lua abort pending timers")
        S.note_for(nil, nil, "lua found ", pending, " pending timers")
    end
    for i = 1, #due do
        fire(due[i], true)
    end
    S.close_pools()
    S.drain()
end

--- Python: how many timers wait and run.
function S.timer_counts()
    return pending, running
end

-- Globals written by handlers are shared by all requests: allowed, and said in the log.
local function guard(_, key, value)
    rawset(_G, key, value)
    local R = S.R
    if not R or R.phase <= S.INIT_WORKER then
        return
    end
    host.log(R.id, ngx.WARN, "[lua] _G write guard:12: __newindex(): writing a global Lua variable ('" .. tostring(key)
        .. "') which may lead to race conditions between concurrent requests, so prefer the use of 'local' variables"
        .. " \nstack traceback:\n" .. S.running_trace(2))
end

function S.guard_globals()
    setmetatable(_G, { __newindex = guard })
end
