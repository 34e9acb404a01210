-- ngx.pipe: processes, with their stdin, stdout and stderr as streams that only the reading or writing thread waits
-- for. https://github.com/openresty/lua-resty-core/blob/master/lib/ngx/pipe.md
--
-- What the script holds (proc) and what the events know (its state) are two tables: a proc that nobody holds any more
-- is collected, and its process killed, although events may still come.
local S, host = ...
local ffi, C, mono = S.ffi, S.C, S.mono
local type, tostring, tonumber, getmetatable = type, tostring, tonumber, getmetatable
local SIGKILL = 9
local TIMEOUT, SIZE, MAX = 10000, 4096, 0xffffffff
local waits, close = S.still_waits, S.close_stream

ffi.cdef [[
int hr_kill(int pid, int signal) __asm__("kill");
]]

local running = {} -- number -> state, until the process has ended
local last = 0
local orphans = {} -- states whose proc was collected
local living = 0 -- states whose proc is not collected yet
local sweeping = false

local function close_all(state)
    local why = state.reason and "closed" or "aborted"
    close(state.stdin, why)
    close(state.stdout, why)
    close(state.stderr, why)
end

-- More may be collected while this runs: the list is taken away first.
local function clear()
    local batch = orphans
    if #batch > 0 then
        orphans = {}
        for i = 1, #batch do
            close_all(batch[i])
            living = living - 1
        end
    end
end

-- As long as scripts have processes, what was collected is cleared now and then.
local function sweep()
    clear()
    if living == 0 then
        sweeping = false
    else
        S.at(mono() + 1000, sweep)
    end
end

-- The proc, checked, with its state; the phase must be one that waits.
local function enter(proc)
    local state = type(proc) == "table" and getmetatable(proc) and rawget(proc, "state")
    if not state then
        return S.raise("not a process instance")
    end
    return state
end

local function may_wait()
    local R = S.R
    if not R then
        return S.raise("no request found")
    end
    if not S.may_wait[R.phase] or not S.cur then
        return S.disabled()
    end
end

local function limit(timeout)
    return timeout > 0 and timeout or math.huge
end

local function read(proc, name, kind, amount)
    local state = enter(proc)
    may_wait()
    if state.closed then
        return nil, "closed"
    elseif name == "stderr" and state.merged then
        return nil, "merged to stdout"
    end
    local stream = state[name]
    if stream.closed then
        return nil, "closed"
    elseif waits(stream.rwait, stream.rseq) then
        return nil, "pipe busy reading"
    end
    return S.read_stream(stream, kind, amount, state.buffer_size, limit(state[name .. "_read_timeout"]))
end

-- methods

local methods = {}
local meta = { __index = methods }

for _, name in ipairs { "stdout", "stderr" } do
    methods[name .. "_read_all"] = function(proc)
        return read(proc, name, "all")
    end
    methods[name .. "_read_line"] = function(proc)
        return read(proc, name, "line")
    end
    methods[name .. "_read_bytes"] = function(proc, len)
        if len <= 0 then
            return len < 0 and S.raise("bad len argument") or ""
        end
        return read(proc, name, "bytes", len)
    end
    methods[name .. "_read_any"] = function(proc, max)
        max = tonumber(max)
        if not max or max <= 0 then
            return S.raise("bad max argument")
        end
        return read(proc, name, "any", max)
    end
end

function methods.write(proc, data)
    local state = enter(proc)
    if not S.R then
        return S.raise("no request found")
    end
    local kind = type(data)
    if kind == "table" then
        data = table.concat(data)
    elseif kind == "number" then
        data = tostring(data)
    elseif kind ~= "string" then
        return S.raise("bad data arg: string, number, or table expected, got " .. kind)
    end
    may_wait()
    local stream = state.stdin
    if state.closed or stream.closed then
        return nil, "closed"
    elseif waits(stream.wwait, stream.wseq) then
        return nil, "pipe busy writing"
    end
    return S.write_stream(stream, data, limit(state.write_timeout))
end

local directions = { stdin = true, stdout = true, stderr = true }

function methods.shutdown(proc, direction)
    local state = enter(proc)
    if not directions[direction] then
        return S.raise("bad shutdown arg: " .. tostring(direction))
    elseif state.closed then
        return nil, "closed"
    elseif direction == "stderr" and state.merged then
        return nil, "merged to stdout"
    end
    close(state[direction], state.reason and "closed" or "aborted")
    return true
end

function methods.wait(proc)
    local state = enter(proc)
    may_wait()
    if state.closed then
        return nil, "exited"
    elseif waits(state.waiter, state.waiter_seq) then
        return nil, "pipe busy waiting"
    end
    if not state.reason then
        local T = S.cur
        local seq = S.mark(T)
        state.waiter, state.waiter_seq = T, seq
        local entry = S.at(mono() + limit(state.wait_timeout), S.expire, T, seq)
        local ended = S.wait()
        state.waiter = nil
        if not ended then
            return nil, "timeout"
        end
        S.cancel(entry)
    end
    state.closed = true
    close_all(state)
    return state.status == 0, state.reason, state.status
end

function methods.kill(proc, signal)
    local state = enter(proc)
    if type(signal) ~= "number" then
        return S.raise("bad signal arg: number expected, got " .. tostring(signal))
    elseif state.reason then
        return nil, "exited"
    end
    if C.hr_kill(state.pid, signal) == 0 then
        return true
    end
    local number = ffi.errno()
    return nil, number == 22 and "invalid signal" or number == 3 and "exited" or S.error_words(number)
end

function methods.pid(proc)
    return enter(proc).pid
end

local timeouts = { "write_timeout", "stdout_read_timeout", "stderr_read_timeout", "wait_timeout" }

local function set_timeouts(state, ...)
    for i = 1, #timeouts do
        local value = select(i, ...)
        if value then
            if value < 0 or value > MAX then
                return S.raise("bad " .. timeouts[i] .. " option")
            end
            state[timeouts[i]] = value
        end
    end
end

function methods.set_timeouts(proc, write, out, err, wait)
    set_timeouts(enter(proc), write, out, err, wait)
end

-- spawn

local function command(args)
    local kind = type(args)
    if kind == "string" then
        return "/bin/sh\0-c\0" .. args .. "\0"
    elseif kind ~= "table" then
        return S.raise("bad args arg: table expected, got " .. kind)
    end
    local words = {}
    for i, word in ipairs(args) do
        words[i] = tostring(word) .. "\0"
    end
    if #words == 0 then
        return S.raise("bad args arg: non-empty table expected")
    end
    return table.concat(words)
end

local function environment(environ)
    if not environ then
        return nil
    elseif type(environ) ~= "table" then
        return S.raise("bad environ option: table expected, got " .. type(environ))
    end
    local words = {}
    for i, word in ipairs(environ) do
        if type(word) ~= "string" then
            return S.raise("bad value at index " .. i .. " of environ option: string expected, got " .. type(word))
        elseif not word:find("=", 2, true) then
            return S.raise("bad value at index " .. i .. " of environ option: 'name=[value]' format expected, got '"
                .. word .. "'")
        end
        words[i] = word .. "\0"
    end
    return #words > 0 and table.concat(words) or nil
end

--- Kill the process when the proc is collected, and let its streams be closed soon.
local function guard(state)
    local watch = newproxy(true)
    getmetatable(watch).__gc = function()
        if not state.reason then
            C.hr_kill(state.pid, SIGKILL)
        end
        orphans[#orphans + 1] = state
    end
    return watch
end

local function spawn(args, opts)
    local R = S.R
    if not R or R.phase == S.INIT then
        return S.raise("API disabled in the current context")
    end
    local words = command(args)
    local state = { buffer_size = SIZE }
    opts = opts or {}
    if opts.buffer_size then
        local size = tonumber(opts.buffer_size)
        if not size or size < 1 then
            return S.raise("bad buffer_size option")
        end
        state.buffer_size = size
    end
    local environ = environment(opts.environ)
    set_timeouts(state, opts.write_timeout or TIMEOUT, opts.stdout_read_timeout or TIMEOUT,
        opts.stderr_read_timeout or TIMEOUT, opts.wait_timeout or TIMEOUT)
    state.merged = opts.merge_stderr and true or false
    clear()
    last = last + 1
    local pid, stdin, stdout, stderr = host.pipe_spawn(last, words, environ, state.merged and 1 or 0)
    if not pid then
        return nil, stdin
    end
    state.pid = pid
    state.stdin, state.stdout = S.stream(stdin), S.stream(stdout)
    state.stderr = stderr >= 0 and S.stream(stderr) or nil
    running[last] = state
    living = living + 1
    if not sweeping then
        sweeping = true
        S.at(mono() + 1000, sweep)
    end
    return setmetatable({ state = state, guard = guard(state) }, meta)
end

--- Python: a process has ended.
function S.pipe_exited(number, reason, status)
    S.turn = 0
    S.wall = nil
    local state = running[number]
    running[number] = nil
    state.reason, state.status = reason, status
    local T, seq = state.waiter, state.waiter_seq
    if T then
        S.wake(T, seq, true)
    end
    S.drain()
end

package.preload["ngx.pipe"] = function()
    return { version = S.core_version, spawn = spawn }
end
