-- Modules that belong to the runtime: ours win over files of the same name on package.path, which are made for
-- nginx's own symbols. What is not built says so when it is required.
local S = ...
local ngx = S.ngx
local preload = package.preload

local base = S.core_base

local function give(module)
    return function()
        return module
    end
end

preload["resty.core"] = give { version = base.version }
preload["resty.core.base"] = give(base)
for _, name in ipairs {
    "base64", "coroutine", "exit", "hash", "misc", "phase", "request", "response", "socket", "uri", "var", "worker", "param", "shdict",
} do
    preload["resty.core." .. name] = give { version = base.version }
end

local math = math

preload["resty.core.time"] = give {
    version = base.version,
    monotonic_msec = function()
        return math.floor(S.mono())
    end,
    monotonic_time = function()
        return math.floor(S.mono()) / 1000
    end,
}
preload["resty.core.utils"] = give {
    version = base.version,
    str_replace_char = function(text, find, replace)
        return (text:gsub(find:sub(1, 1):gsub("%W", "%%%0"), (replace:sub(1, 1):gsub("%%", "%%%%"))))
    end,
}
preload["resty.core.ctx"] = give {
    version = base.version,
    --- ngx.ctx; made of this table when there is none yet.
    get_ctx_table = function(made)
        local R = S.R
        if R and made and not R.ctx then
            ngx.ctx = made
        end
        return ngx.ctx
    end,
}

for _, name in ipairs {
    "resty.core.ndk",
} do
    preload[name] = function()
        return S.raise("module '" .. name .. "' is not supported by this runtime")
    end
end

preload["ngx.base64"] = function()
    local urls = { ["+"] = "-", ["/"] = "_" }
    local plain = { ["-"] = "+", ["_"] = "/" }
    return {
        version = base.version,
        encode_base64url = function(text)
            if type(text) ~= "string" then
                return nil, "must provide a string"
            end
            return (ngx.encode_base64(text, true):gsub("[+/]", urls))
        end,
        decode_base64url = function(text)
            if type(text) ~= "string" then
                return nil, "must provide a string"
            end
            local decoded = not text:find("[+/]") and ngx.decode_base64((text:gsub("[-_]", plain)))
            if not decoded then
                return nil, "invalid input"
            end
            return decoded
        end,
    }
end

-- A semaphore: units that threads of any request wait for (the API of lua-resty-core's ngx.semaphore).
preload["ngx.semaphore"] = function()
    local methods = {}
    local meta = { __index = methods }

    local function waits(item)
        return not item.T.dead and item.T.seq == item.seq
    end

    function methods.wait(sem, timeout)
        if type(timeout) ~= "number" or timeout < 0 then
            return S.raise("timeout must be greater than or equal to 0")
        end
        local R = S.R
        if not R or not S.may_wait[R.phase] or not S.cur then
            return S.disabled()
        end
        if sem.units > 0 then
            sem.units = sem.units - 1
            return true
        end
        if timeout == 0 or S.exiting then
            return false, "timeout"
        end
        local T = S.cur
        local item = { T = T, seq = S.mark(T) }
        item.entry = S.at(S.mono() + timeout * 1000, S.expire, T, item.seq)
        sem.last = sem.last + 1
        sem.waiting[sem.last] = item
        if S.wait() then
            return true
        end
        return false, "timeout"
    end

    function methods.post(sem, n)
        n = n == nil and 1 or n
        if type(n) ~= "number" or n < 1 then
            return S.raise("no positive number of units")
        end
        sem.units = sem.units + n
        while sem.units > 0 and sem.first <= sem.last do
            local item = sem.waiting[sem.first]
            sem.waiting[sem.first] = nil
            sem.first = sem.first + 1
            if waits(item) then
                sem.units = sem.units - 1
                S.cancel(item.entry)
                S.post(item.T, item.seq, true)
                S.soon()
            end
        end
        return true
    end

    function methods.count(sem)
        local count = sem.units
        for i = sem.first, sem.last do
            if waits(sem.waiting[i]) then
                count = count - 1
            end
        end
        return count
    end

    return {
        version = base.version,
        new = function(n)
            n = tonumber(n) or 0 -- `semaphore:new(1)` is written too
            if n < 0 then
                return S.raise("no number of units")
            end
            return setmetatable({ units = n, waiting = {}, first = 1, last = 0 }, meta)
        end,
    }
end
