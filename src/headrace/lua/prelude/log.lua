-- ngx.log and print, in the words of nginx's error log: "[lua] file:line: function(): message".
local S, host = ...
local ngx = S.ngx
local null = S.null
local type, select, tostring = type, select, tostring

local function text_of(value, n)
    local kind = type(value)
    if kind == "string" then
        return value
    elseif kind == "table" then
        local meta = getmetatable(value)
        if meta and meta.__tostring then
            return tostring(value)
        end
        return S.bad_argument(n, "log", "expected table to have __tostring metamethod")
    elseif value == null then
        return "null"
    elseif kind == "number" or kind == "boolean" or value == nil then
        return tostring(value)
    elseif kind == "function" or kind == "thread" or kind == "userdata" or kind == "cdata" then
        return S.bad_argument(n, "log", "string, number, boolean, or nil expected, got " .. kind)
    end
    return tostring(value)
end

local function place()
    local info = debug.getinfo(4, "nSl") -- place, write, ngx.log or print, the user
    if not info then
        return ""
    end
    local source = info.short_src:match("[^/]*$")
    if info.source:byte() == 61 then
        source = info.source:sub(2)
    end
    local text = source .. ":" .. info.currentline .. ": "
    if info.name then
        text = text .. info.name .. "(): "
    end
    return text
end

local function write(level, ...)
    local n = select("#", ...)
    local parts = { "[lua] " .. place() }
    for i = 1, n do
        parts[i + 1] = text_of(select(i, ...), i)
    end
    host.log(S.R and S.R.id or 0, level, table.concat(parts))
end

-- Levels above the error log's own cost one comparison. A location may have its own: Python tells it with the chunk.
local function wanted(level)
    local R = S.R
    local conf = R and R.conf
    return level <= (conf and conf.log_level or S.settings.log_level)
end

function ngx.log(level, ...)
    if type(level) ~= "number" then
        level = S.check_number(level, 1, "log")
    end
    if level < 0 or level > 8 then
        return S.bad_argument(1, "log", "bad log level: " .. level)
    end
    if wanted(level) then
        write(level, ...)
    end
end

function print(...)
    if wanted(ngx.NOTICE) then
        write(ngx.NOTICE, ...)
    end
end
