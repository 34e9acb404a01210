-- Header fields: ngx.status, ngx.header, ngx.resp, and those of the request.
--
-- What a run sets is gathered here and told to the request in one crossing (S.tell_fields): at the end of the run, and
-- before any function of the host that looks at the answer or sends some of it.
local S, host = ...
local ngx = S.ngx
local type, tostring, rawget, setmetatable = type, tostring, rawget, setmetatable

local untold = require("string.buffer").new() -- kind and name, NUL, value, NUL, ...
local untold_id = nil -- of the request that they are for
local SET, ADD, STATUS = "=", "+", "#"

--- Tell the request what was set and not told.
function S.tell_fields()
    local id = untold_id
    if id then
        untold_id = nil
        host.change_fields(id, S.taken(untold))
    end
end

--- What was set in the run of a request that has just ended, and not told; nil when there is nothing.
function S.untold_of(id)
    if untold_id == id then
        untold_id = nil
        return S.taken(untold)
    end
end

local function tell_first(names, acts)
    for _, name in ipairs(names) do
        local call = host[name]
        host[name] = function(...)
            if untold_id then
                S.tell_fields()
            end
            if acts then
                S.serial = S.serial + 1
            end
            return call(...)
        end
    end
end
tell_first({ "get_status", "get_header", "clear_header", "headers_out", "get_var", "output", "send_headers", "flush",
    "eof", "done", "raw_open" }, false)
tell_first({ "set_method", "set_args", "set_uri", "set_var", "exec", "subrequest", "subrequest_start",
    "capture", "capture_plain" }, true)

local function change(R, kind, name, value)
    local id = R.id
    if untold_id ~= id then
        S.tell_fields()
        untold_id = id
    end
    untold:put(kind, name, "\0", value, "\0")
end

--- Set a field of the answer, whose text is harmless.
function S.change_field(R, name, value)
    change(R, SET, name, value)
end

--- Whether the header of the answer is decided. Until output begins in a run that cannot change.
local function is_sent(R)
    if R.sent then
        return true
    elseif R.unsent == S.serial then
        return false
    elseif host.headers_sent(R.id) == 1 then
        return true
    end
    R.unsent = S.serial
    return false
end

--- The status of the answer; 0 before anything has set it, 200 once output has begun.
function S.get_status(R)
    local status = host.get_status(R.id)
    return status == 0 and R.sent and 200 or status
end

S.getters.status = function()
    return S.get_status(S.request())
end

S.setters.status = function(value)
    local R = S.request()
    if R.phase ~= S.HEADER_FILTER and is_sent(R) then
        host.log(R.id, ngx.ERR, "attempt to set ngx.status after sending out response headers")
        return
    end
    if type(value) ~= "number" then
        value = tonumber(value) or S.raise("number expected, got " .. type(value))
    end
    change(R, STATUS, "", ("%d"):format(value))
end

-- What cannot stand in a header line is percent-encoded, the whole value stays: nothing is cut short.
local function escape_value(text)
    if text:find("[%z\1-\8\10-\31\127]") then
        return (text:gsub("[%z\1-\8\10-\31\127]", function(c)
            return ("%%%02X"):format(c:byte())
        end))
    end
    return text
end

local function escape_name(text)
    if text:find("[^%w!#$%%&'*+.^_`|~-]") then
        return (text:gsub("[^%w!#$%%&'*+.^_`|~-]", function(c)
            return ("%%%02X"):format(c:byte())
        end))
    end
    return text
end
S.escape_header_value = escape_value

local function response_name(key)
    key = type(key) == "string" and key or tostring(key)
    if S.R.conf.underscores and key:find("_", 1, true) then
        key = key:gsub("_", "-")
    end
    return escape_name(key)
end

local function put_field(R, key, value, override)
    if #key == 14 and key:lower() == "content-length" and not value:find("^%d+$") then
        return S.raise("failed to set header " .. key .. " (error: -1)")
    end
    change(R, override and SET or ADD, key, escape_value(value))
end

local function set_response(key, value, override)
    local R = S.request()
    if R.phase ~= S.HEADER_FILTER and is_sent(R) then
        host.log(R.id, ngx.ERR, "attempt to set ngx.header.HEADER after sending out response headers")
        return
    end
    key = response_name(key)
    if value == nil then
        if not override then
            return S.raise("invalid header value")
        end
        host.clear_header(R.id, key)
    elseif type(value) == "table" then
        if #value == 0 and override then
            host.clear_header(R.id, key)
        end
        for i = 1, #value do
            put_field(R, key, tostring(value[i]), override and i == 1)
        end
    else
        put_field(R, key, tostring(value), override)
    end
end

local function split_values(text)
    local first = text:find("\0", 1, true)
    if not first then
        return text
    end
    local values = {}
    for value in (text .. "\0"):gmatch("(%Z*)%z") do
        values[#values + 1] = value
    end
    return values
end

ngx.header = setmetatable({}, {
    __index = function(_, key)
        local R = S.request()
        local text = host.get_header(R.id, response_name(key), R.sent and 1 or 0)
        return text and split_values(text)
    end,
    __newindex = function(_, key, value)
        return set_response(key, value, true)
    end,
})

-- Names and values separated by NUL become a table; repeated names become a list.
local function to_table(text, max, fold)
    local fields, n = {}, 0
    for name, value in text:gmatch("(%Z*)%z(%Z*)%z") do
        if max > 0 and n >= max then
            return fields, "truncated"
        end
        n = n + 1
        if fold then
            name = name:lower()
        end
        local existing = fields[name]
        if existing == nil then
            fields[name] = value
        elseif type(existing) == "table" then
            existing[#existing + 1] = value
        else
            fields[name] = { existing, value }
        end
    end
    return fields
end

S.fields_to_table = to_table

local folded = {
    __index = function(fields, key)
        if type(key) ~= "string" then
            return nil
        end
        return rawget(fields, (key:lower():gsub("_", "-")))
    end,
}

local function limit(max, n, name)
    if max == nil then
        return 100
    end
    max = S.check_number(max, n, name)
    return max < 0 and 100 or max
end
S.limit = limit

local function headers_api(fetch, name)
    return function(max, raw)
        local R = S.request()
        local fields, why = to_table(fetch(R.id), limit(max, 1, name), not raw)
        if not raw then
            setmetatable(fields, folded)
        end
        return fields, why
    end
end

ngx.req = {}
ngx.req.get_headers = headers_api(host.headers_in, "get_headers")
ngx.resp = {}
ngx.resp.get_headers = headers_api(host.headers_out, "get_headers")

function ngx.resp.add_header(key, value)
    return set_response(key, value, false)
end

function ngx.req.set_header(name, value)
    local R = S.request()
    name = escape_name(S.check_string(name, 1, "set_header"))
    if value == nil then
        host.clear_header_in(R.id, name)
    elseif type(value) == "table" then
        host.clear_header_in(R.id, name)
        for i = 1, #value do
            host.add_header_in(R.id, name, escape_value(tostring(value[i])))
        end
    else
        host.clear_header_in(R.id, name)
        host.add_header_in(R.id, name, escape_value(tostring(value)))
    end
end

function ngx.req.clear_header(name)
    local R = S.request()
    host.clear_header_in(R.id, escape_name(S.check_string(name, 1, "clear_header")))
end
