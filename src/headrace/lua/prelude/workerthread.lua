-- ngx.run_worker_thread: a function of a module runs beside this worker, in a process with a VM of its own.
--
-- Arguments and results are plain values and tables of them, copied. There is no request over there.
local S, host = ...
local buffer = require "string.buffer"
local ngx = S.ngx
local select, type, pcall = select, type, pcall

local waits = {} -- number of a call -> the thread that waits for it, and its mark
local calls = 0

--- Python: a call has ended; ok: 1 and its values packed, or 0 and the words of the error.
function S.thread_done(number, ok, data)
    S.turn = 0
    S.wall = nil
    local waiter = waits[number]
    waits[number] = nil
    if waiter then
        S.wake(waiter[1], waiter[2], ok, data)
        S.drain()
    end
end

local function pack(...)
    return buffer.encode { n = select("#", ...), ... }
end

local function unpacked(data)
    local values = buffer.decode(data)
    return unpack(values, 1, values.n)
end

function ngx.run_worker_thread(...)
    local n = select("#", ...)
    if n < 3 then
        return S.raise("expecting at least 3 arguments")
    end
    local pool, module, name = ...
    pool = S.check_string(pool, 1, "run_worker_thread")
    module, name = S.check_string(module, 2, "run_worker_thread"), S.check_string(name, 3, "run_worker_thread")
    local R = S.R
    if not R or not S.may_output[R.phase] or not S.cur then
        return S.disabled()
    end
    if host.thread_pool(pool) == 0 then
        return false, "thread pool " .. pool .. " not found"
    end
    local ok, data = pcall(pack, select(4, ...))
    if not ok then
        return S.raise("unsupported argument: " .. data)
    end
    calls = calls + 1
    local number, T = calls, S.cur
    waits[number] = { T, S.mark(T) }
    host.thread_run(number, module, name, data)
    ok, data = S.wait()
    if ok == 1 then
        return true, unpacked(data)
    end
    return false, data
end

--- Python, in a helper: call a function of a module. Returns 1 and its values packed, or 0 and the error.
function S.thread_call(module, name, data)
    local ok, found = pcall(require, module)
    if not ok then
        return 0, tostring(found)
    end
    local fn = type(found) == "table" and found[name]
    if type(fn) ~= "function" then
        return 0, "function " .. name .. " of module " .. module .. " not found"
    end
    local function call()
        return pack(fn(unpacked(data)))
    end
    ok, found = pcall(call)
    return ok and 1 or 0, ok and found or tostring(found)
end
