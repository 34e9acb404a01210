-- The words of an error: tracebacks as OpenResty prints them, one part for each coroutine of the stack.
--
-- Functions of the prelude are C functions in OpenResty, so their frames are shown as such: a run of frames of
-- ours above a user's frame becomes one "[C]: in function 'name'".
local S = ...
local traceback, tostring, type = debug.traceback, tostring, type

local function is_own(line)
    return line:find("^\t=?ngx%.[%w_]+:%d") or line:find("in function <ngx%.[%w_]+:%d+>", 1)
end

--- Turn a traceback of LuaJIT into the lines that OpenResty prints for one coroutine.
local function clean(text)
    local lines, out = {}, {}
    for line in text:gmatch("[^\n]+") do
        if line ~= "stack traceback:" then
            lines[#lines + 1] = line
        end
    end
    local i = 1
    while i <= #lines do
        local last, j = nil, i
        while j <= #lines and (lines[j]:find("^\t%[C%]:") or is_own(lines[j])) do
            if is_own(lines[j]) then
                last = j
            end
            j = j + 1
        end
        if last then
            local name = lines[last]:match("in function '([^']+)'")
            if name then
                out[#out + 1] = "\t[C]: in function '" .. name .. "'"
            end
            i = last + 1
        else
            out[#out + 1] = lines[i]
            i = i + 1
        end
    end
    return table.concat(out, "\n")
end

S.clean_trace = clean

--- An error value as text. OpenResty knows strings only; __tostring is honoured here because it costs nothing.
function S.error_text(value)
    local kind = type(value)
    if kind == "string" then
        return value
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

--- The stack of a dead thread: its own coroutine first, then those that wait for it.
function S.thread_trace(co, inner, parent)
    local parts, n = { "stack traceback:" }, 0
    local function add(text)
        parts[#parts + 1] = "coroutine " .. n .. ":"
        parts[#parts + 1] = text
        n = n + 1
    end
    if inner then
        add(inner)
    end
    add(clean(traceback(co)))
    if parent then
        add(clean(traceback(parent)))
    end
    return table.concat(parts, "\n")
end

--- The stack of one coroutine, cleaned.
function S.coroutine_trace(co)
    return clean(traceback(co))
end

--- Message handler for code that runs outside coroutines (init, log, set).
function S.plain_handler(value)
    local text = S.error_text(value)
    return text .. "\nstack traceback:\n" .. clean(traceback("", 2))
end
