-- jit.v: a line for each trace that LuaJIT records or gives up, as its own module of this name prints them. LuaJIT's
-- file must be of the very version that runs, and a wheel brings none; so this one wins over a file on package.path.
-- LuaJIT knows reasons by number only; their texts are in a file that is made with each version.
local jit = require "jit"

package.preload["jit.v"] = function()
    local util = require "jit.util"
    local out, began, parent, exit_number

    local function place(func, pc)
        local info = util.funcinfo(func, pc)
        if info.loc then
            return info.loc
        end
        return info.ffid and "[builtin#" .. info.ffid .. "]" or "[C:" .. tostring(info.addr) .. "]"
    end

    local function origin()
        if not parent then
            return ""
        end
        return exit_number == -1 and "(" .. parent .. "/stitch) " or "(" .. parent .. "/" .. exit_number .. ") "
    end

    local function leads(trace)
        local info = util.traceinfo(trace)
        local kind = info.linktype
        if kind == "loop" or kind == "return" or kind == "interpreter" or kind == "stitch" then
            return kind
        end
        if info.link == trace or info.link == 0 then
            return kind
        end
        return (kind == "root" and "" or kind .. " ") .. "-> " .. info.link
    end

    local function show(what, trace, func, pc, other, detail)
        if what == "start" then
            began, parent, exit_number = place(func, pc), other, detail
        elseif what == "stop" then
            out:write(("[TRACE %3s %s%s %s]\n"):format(trace, origin(), began, leads(trace)))
        elseif what == "abort" then
            local reason = type(other) == "number" and "reason " .. other or tostring(other)
            local about = type(detail) == "function" and place(detail) or detail
            reason = about ~= nil and reason .. " (" .. tostring(about) .. ")" or reason
            out:write(("[TRACE --- %s%s -- %s at %s]\n"):format(origin(), began, reason, place(func, pc)))
        elseif what == "flush" then
            out:write "[TRACE flush]\n"
        end
        out:flush()
    end

    local function off()
        if not out then
            return
        end
        jit.attach(show)
        if out ~= io.stdout and out ~= io.stderr then
            out:close()
        end
        out = nil
    end

    -- path: a file, "-" for standard output; standard error (or what LUAJIT_VERBOSEFILE names) otherwise.
    local function on(path)
        off()
        path = path or os.getenv "LUAJIT_VERBOSEFILE"
        if path == "-" then
            out = io.stdout
        elseif path then
            out = assert(io.open(path, "w"))
        else
            out = io.stderr
        end
        jit.attach(show, "trace")
    end

    return { on = on, off = off, start = on }
end
