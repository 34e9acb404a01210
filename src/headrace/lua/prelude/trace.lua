-- The words of an error: tracebacks as OpenResty prints them, one part for each coroutine of the stack.
--
-- Functions of the prelude are C functions in OpenResty, so their frames are shown as such: a run of frames of
-- ours above a user's frame becomes one "[C]: in function 'name'".
local S, host = ...
local getinfo, tostring, type = debug.getinfo, tostring, type
local co_status = coroutine.status
local FIRST, LAST = 12, 10 -- how many frames of a long stack LuaJIT shows

local function is_own(info)
    return info.source:find("^=ngx%.[%w_]+$") ~= nil
end

--- A frame as LuaJIT's traceback has it.
local function line_of(info)
    local text = "\t" .. info.short_src .. ":"
    if info.currentline > 0 then
        text = text .. info.currentline .. ":"
    end
    if info.namewhat ~= "" then
        return text .. " in function '" .. info.name .. "'"
    elseif info.what == "main" then
        return text .. " in main chunk"
    elseif info.what == "C" then
        return text .. " at " .. tostring(info.func):match("0x%x+$")
    end
    return text .. " in function <" .. info.short_src .. ":" .. info.linedefined .. ">"
end

--- The frames of a coroutine from a level on, in the lines that OpenResty prints; nil: of the running one.
local function frames(co, level)
    local lines, run = {}, {}
    local own -- the last frame of ours in a run of C frames and ours

    local function flush()
        if own then
            if own.namewhat ~= "" then
                lines[#lines + 1] = "\t[C]: in function '" .. own.name .. "'"
            end
        else
            for i = 1, #run do
                lines[#lines + 1] = line_of(run[i])
            end
        end
        run, own = {}, nil
    end

    while true do
        local info = co and getinfo(co, level, "Snlf") or not co and getinfo(level + 1, "Snlf")
        if not info then
            flush()
            return lines
        end
        if is_own(info) then
            run[#run + 1], own = info, info
        elseif info.what == "C" then
            if own then
                flush()
            end
            run[#run + 1] = info
        else
            flush()
            lines[#lines + 1] = line_of(info)
        end
        level = level + 1
    end
end

local function trace(co, level)
    local lines = frames(co, level)
    local n = #lines
    if n > FIRST + LAST then
        lines[FIRST + 1] = "\t..."
        for i = 1, LAST do
            lines[FIRST + 1 + i] = lines[n - LAST + i]
        end
        n = FIRST + 1 + LAST
    end
    return table.concat(lines, "\n", 1, n)
end

--- An error value as text. OpenResty knows strings only; __tostring is honoured here because it costs nothing.
function S.error_text(value)
    local kind = type(value)
    if kind == "string" then
        return value:match("^ngx%.[%w_]+:%d+: (attempt to yield across .*)$") or value -- no place of the user's
    elseif kind == "number" then
        return tostring(value)
    end
    local meta = kind == "table" and getmetatable(value)
    if kind == "userdata" or (meta and meta.__tostring) then
        local ok, text = pcall(tostring, value)
        if ok and type(text) == "string" then
            return text
        end
    end
    return "unknown reason"
end

--- Log the failure of a thread: the stacks of the coroutines within it that failed first, its own, that of its parent.
function S.log_failure(T, err)
    local parts, n = { "stack traceback:" }, 0
    local function add(text)
        parts[#parts + 1] = "coroutine " .. n .. ":"
        parts[#parts + 1] = text
        n = n + 1
    end
    local R, inner, parent = T.R, S.inner_failure, T.parent
    S.inner_failure = nil
    if inner and inner.err == err then
        for i = 1, #inner.traces do
            add(inner.traces[i])
        end
    end
    add(trace(T.co, 0))
    if parent and not parent.dead and co_status(parent.co) ~= "dead" then
        add(trace(parent.co, 0))
    end
    host.log(R.id, S.ngx.ERR, "lua " .. (T == R.entry and "entry" or "user") .. " thread aborted: runtime error: "
        .. S.error_text(err) .. "\n" .. table.concat(parts, "\n"))
end

--- The stack of one coroutine, cleaned.
function S.coroutine_trace(co)
    return trace(co, 0)
end

--- The stack of the running coroutine from the caller's frame on (level 1), or a further one.
function S.running_trace(level)
    return trace(nil, level + 1)
end

--- Message handler for code that runs outside coroutines (init, log, set).
function S.plain_handler(value)
    local text = S.error_text(value)
    return text .. "\nstack traceback:\n" .. trace(nil, 2)
end
