-- The last file: what Python calls beside the entries of the other files, and the order of the guard.
local S, host = ...

S.watch = host.watch
S.soon = host.soon

--- Python: compile Lua code. Returns a reference for S.run, or nil and the compiler's message.
local last_ref = 0
function S.load(code, name)
    local fn, why = loadstring(code, name)
    if not fn then
        return nil, why
    end
    last_ref = last_ref + 1
    S.chunks[last_ref] = fn
    return last_ref
end

--- Python: replace the code of a reference (lua_code_cache off). Returns nil or the compiler's message.
function S.reload(ref, code, name)
    local fn, why = loadstring(code, name)
    if not fn then
        return why
    end
    S.chunks[ref] = fn
end

--- Python: another reference for the same code, with settings of its own.
function S.share(ref)
    last_ref = last_ref + 1
    S.chunks[last_ref] = S.chunks[ref]
    return last_ref
end

--- Python: the settings in force where a chunk stands.
function S.set_conf(ref, conf)
    S.confs[ref] = conf
end

local known, globals = {}, {}

--- Python: remember which modules and globals there are before any request; S.forget_modules drops all others.
function S.mark_modules()
    for name in pairs(package.loaded) do
        known[name] = true
    end
    for name, value in pairs(_G) do
        globals[name] = value
    end
end

function S.forget_modules()
    for name in pairs(package.loaded) do
        if not known[name] then
            package.loaded[name] = nil
        end
    end
    for name in pairs(_G) do
        if globals[name] == nil then
            _G[name] = nil
        end
    end
    for name, value in pairs(globals) do
        rawset(_G, name, value)
    end
end

--- Python: how many records and threads exist, for tests and metrics.
function S.sizes()
    local requests, sockets = 0, 0
    for _ in pairs(S.requests) do
        requests = requests + 1
    end
    for _ in pairs(S.sockets) do
        sockets = sockets + 1
    end
    local idle = 0
    for _, pool in pairs(S.pools) do
        idle = idle + #pool.idle
    end
    return requests, sockets, idle, S.pending_entries(), collectgarbage("count")
end

S.guard_globals()
-- The bridge itself is not the users' business.
_G.python = nil
package.loaded.python = nil
require "resty.core" -- is there from the beginning, as in OpenResty
S.mark_modules()
