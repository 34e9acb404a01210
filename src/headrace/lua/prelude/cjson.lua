-- cjson and cjson.safe where the C module is not installed: the same API, words and defaults (OpenResty's lua-cjson).
--
-- The searcher of this file is the last one: a module of these names on package.path or package.cpath wins.
-- https://github.com/openresty/lua-cjson
local S = ...
local buffer = require "string.buffer"
local floor, huge = math.floor, math.huge
local type, pairs, tostring, tonumber, rawget, select = type, pairs, tostring, tonumber, rawget, select
local error, pcall, getmetatable, setmetatable = error, pcall, getmetatable, setmetatable
local null, empty_array = S.null, S.light(1)
local array_mt, empty_array_mt = {}, {}

-- encoding

local escapes = { ['"'] = '\\"', ["\\"] = "\\\\", ["\b"] = "\\b", ["\f"] = "\\f", ["\n"] = "\\n", ["\r"] = "\\r",
    ["\t"] = "\\t", ["\127"] = "\\u007f", ["/"] = "\\/" }
for byte = 0, 31 do
    local char = string.char(byte)
    escapes[char] = escapes[char] or ("\\u%04x"):format(byte)
end

local function cannot(value, why)
    return error("Cannot serialise " .. type(value) .. ": " .. why, 0)
end

local function put_number(conf, out, value)
    if value ~= value or value == huge or value == -huge then
        local mode = conf.encode_invalid_numbers
        if not mode then
            return cannot(value, "must not be NaN or Inf")
        elseif mode == "null" then
            out:put("null")
        else
            out:put(value ~= value and "nan" or value > 0 and "inf" or "-inf")
        end
        return
    end
    out:put(conf.number:format(value))
end

local function put_string(conf, out, value)
    out:put('"', (value:gsub(conf.escaped, escapes)), '"')
end

-- The length of an array; nil for what is an object.
local function array_length(conf, value)
    local max, items = 0, 0
    for key in pairs(value) do
        if type(key) ~= "number" or key < 1 or floor(key) ~= key then
            return nil
        end
        items = items + 1
        if key > max then
            max = key
        end
    end
    local ratio = conf.sparse_ratio
    if ratio > 0 and max > items * ratio and max > conf.sparse_safe then
        if not conf.sparse_convert then
            return cannot(value, "excessively sparse array")
        end
        return nil
    end
    return max
end

local put

local function put_array(conf, out, value, n, depth)
    out:put("[")
    local first = true
    for i = 1, n do
        local mark = #out
        if not first then
            out:put(",")
        end
        if put(conf, out, rawget(value, i), depth) then
            first = false
        elseif #out ~= mark then
            local kept = out:get(mark)
            out:reset():put(kept)
        end
    end
    out:put("]")
end

local function put_object(conf, out, value, depth)
    out:put("{")
    local first = true
    for key, item in pairs(value) do
        local kind = type(key)
        if not (conf.skip and (type(item) == "function" or type(item) == "thread" or type(item) == "cdata"
            or type(item) == "userdata" and item ~= null and item ~= empty_array)) then
            if not first then
                out:put(",")
            end
            first = false
            if kind == "number" then
                out:put('"')
                put_number(conf, out, key)
                out:put('":')
            elseif kind == "string" then
                put_string(conf, out, key)
                out:put(":")
            else
                return cannot(key, "table key must be a number or string")
            end
            put(conf, out, item, depth)
        end
    end
    out:put("}")
end

local function put_table(conf, out, value, depth)
    depth = depth + 1
    if depth > conf.encode_max_depth then
        return error("Cannot serialise, excessive nesting (" .. depth .. ")", 0)
    end
    local meta = getmetatable(value)
    if meta == array_mt then
        return put_array(conf, out, value, #value, depth)
    end
    local n = array_length(conf, value)
    if n == 0 then
        local as_array = meta == empty_array_mt or not conf.empty_as_object
        out:put(as_array and "[]" or "{}")
    elseif n then
        put_array(conf, out, value, n, depth)
    else
        put_object(conf, out, value, depth)
    end
end

-- Returns true unless the value was left out.
put = function(conf, out, value, depth)
    local kind = type(value)
    if kind == "string" then
        put_string(conf, out, value)
    elseif kind == "number" then
        put_number(conf, out, value)
    elseif kind == "table" then
        put_table(conf, out, value, depth)
    elseif kind == "boolean" then
        out:put(value and "true" or "false")
    elseif value == nil or value == null then
        out:put("null")
    elseif value == empty_array then
        out:put("[]")
    elseif conf.skip then
        return false
    else
        return cannot(value, "type not supported")
    end
    return true
end

-- decoding

local unescapes = { ['"'] = '"', ["\\"] = "\\", ["/"] = "/", b = "\b", f = "\f", n = "\n", r = "\r", t = "\t" }
local tokens = { ["{"] = "T_OBJ_BEGIN", ["}"] = "T_OBJ_END", ["["] = "T_ARR_BEGIN", ["]"] = "T_ARR_END",
    [":"] = "T_COLON", [","] = "T_COMMA", ['"'] = "T_STRING", [""] = "T_END", t = "T_BOOLEAN", f = "T_BOOLEAN",
    n = "T_NULL" }

local function utf8(code)
    if code < 0x80 then
        return string.char(code)
    elseif code < 0x800 then
        return string.char(0xC0 + floor(code / 64), 0x80 + code % 64)
    elseif code < 0x10000 then
        return string.char(0xE0 + floor(code / 4096), 0x80 + floor(code / 64) % 64, 0x80 + code % 64)
    end
    return string.char(0xF0 + floor(code / 262144), 0x80 + floor(code / 4096) % 64, 0x80 + floor(code / 64) % 64,
        0x80 + code % 64)
end

local function unexpected(wanted, found, at)
    return error("Expected " .. wanted .. " but found " .. found .. " at character " .. at, 0)
end

-- The string whose opening quote is at `at`; the position behind it.
local function read_string(text, at, wanted)
    local from = at + 1
    local stop = text:find('["\\]', from)
    if stop and text:byte(stop) == 34 then
        return text:sub(from, stop - 1), stop + 1
    end
    local parts, n = {}, 0
    while stop do
        n = n + 1
        parts[n] = text:sub(from, stop - 1)
        if text:byte(stop) == 34 then
            return table.concat(parts), stop + 1
        end
        local char = text:sub(stop + 1, stop + 1)
        n = n + 1
        if char == "u" then
            local code = tonumber(text:match("^%x%x%x%x", stop + 2) or "", 16)
            local size = 6
            if code and code >= 0xD800 and code < 0xE000 then
                local low = tonumber(text:match("^\\u(%x%x%x%x)", stop + 6) or "", 16)
                if code >= 0xDC00 or not low or low < 0xDC00 or low > 0xDFFF then
                    code = nil
                else
                    code, size = 0x10000 + (code - 0xD800) * 1024 + low - 0xDC00, 12
                end
            end
            if not code then
                return unexpected(wanted, "invalid unicode escape code", stop)
            end
            parts[n] = utf8(code)
            from = stop + size
        else
            parts[n] = unescapes[char] or unexpected(wanted, "invalid escape code", stop)
            from = stop + 2
        end
        stop = text:find('["\\]', from)
    end
    return unexpected(wanted, "unexpected end of string", #text + 1)
end

local function read_number(conf, text, at)
    local sign = text:byte(at) == 43 and conf.decode_invalid_numbers and 1 or 0
    local stop = select(2, text:find("^-?%d+%.?%d*", at + sign))
    if stop then
        stop = select(2, text:find("^[eE][+-]?%d+", stop + 1)) or stop
        if conf.decode_invalid_numbers then
            stop = select(2, text:find("^-?0[xX]%x+", at + sign)) or stop
        elseif text:find("^-?0[%dxX]", at) then
            return unexpected("value", "invalid number", at)
        end
        return tonumber(text:sub(at + sign, stop)), stop + 1
    end
    local minus, word = text:match("^([+-]?)(%a+)", at)
    if word and conf.decode_invalid_numbers then
        local low = word:lower()
        local value = (low == "inf" or low == "infinity") and huge or low == "nan" and huge - huge or nil
        if value then
            return minus == "-" and -value or value, at + #minus + #word
        end
    end
    return nil, text:find("^-", at) and "invalid number" or "invalid token"
end

-- The name of the token at a position, as the C module tells of it.
local function token_at(conf, text, at, wanted)
    local char = text:sub(at, at)
    if char == '"' then
        read_string(text, at, wanted)
    end
    local name = tokens[char]
    if (char == "t" and text:sub(at, at + 3) ~= "true") or (char == "f" and text:sub(at, at + 4) ~= "false")
        or (char == "n" and text:sub(at, at + 3) ~= "null") then
        name = nil
    end
    if name then
        return name
    end
    local value, why = read_number(conf, text, at)
    return value and "T_NUMBER" or why
end

local function skip(text, at)
    return text:find("[^ \t\r\n]", at) or #text + 1
end

local read

local function read_object(conf, text, at, depth)
    local found = {}
    at = skip(text, at + 1)
    if text:byte(at) == 125 then
        return found, at + 1
    end
    while true do
        if text:byte(at) ~= 34 then
            return unexpected("object key string", token_at(conf, text, at, "object key string"), at)
        end
        local key
        key, at = read_string(text, at, "object key string")
        at = skip(text, at)
        if text:byte(at) ~= 58 then
            return unexpected("colon", token_at(conf, text, at, "colon"), at)
        end
        found[key], at = read(conf, text, skip(text, at + 1), depth)
        at = skip(text, at)
        local byte = text:byte(at)
        if byte == 125 then
            return found, at + 1
        elseif byte ~= 44 then
            return unexpected("comma or object end", token_at(conf, text, at, "comma or object end"), at)
        end
        at = skip(text, at + 1)
    end
end

local function read_array(conf, text, at, depth)
    local found = {}
    if conf.with_array_mt then
        setmetatable(found, array_mt)
    end
    at = skip(text, at + 1)
    if text:byte(at) == 93 then
        return found, at + 1
    end
    local n = 0
    while true do
        n = n + 1
        found[n], at = read(conf, text, at, depth)
        at = skip(text, at)
        local byte = text:byte(at)
        if byte == 93 then
            return found, at + 1
        elseif byte ~= 44 then
            return unexpected("comma or array end", token_at(conf, text, at, "comma or array end"), at)
        end
        at = skip(text, at + 1)
    end
end

read = function(conf, text, at, depth)
    local byte = text:byte(at)
    if byte == 34 then
        return read_string(text, at, "value")
    elseif byte == 123 or byte == 91 then
        depth = depth + 1
        if depth > conf.decode_max_depth then
            return error("Found too many nested data structures (" .. depth .. ") at character " .. at, 0)
        end
        return (byte == 123 and read_object or read_array)(conf, text, at, depth)
    elseif byte == 116 and text:sub(at, at + 3) == "true" then
        return true, at + 4
    elseif byte == 102 and text:sub(at, at + 4) == "false" then
        return false, at + 5
    elseif byte == 110 and text:sub(at, at + 3) == "null" then
        return null, at + 4
    end
    local value, stop = read_number(conf, text, at)
    if value then
        return value, stop
    end
    return unexpected("value", token_at(conf, text, at, "value"), at)
end

-- the module

local function switch(conf, name, value, n, ...)
    for i = 1, select("#", ...) do
        if value == (select(i, ...)) then
            conf[name] = value
        end
    end
    if value ~= nil and conf[name] ~= value then
        return S.bad_argument(n, "?", "invalid option '" .. tostring(value) .. "'")
    end
    return conf[name]
end

local function bounded(conf, name, value, n, least, most)
    if value ~= nil then
        value = S.check_number(value, n, "?")
        if value < least or value > most then
            return S.bad_argument(n, "?", "expected integer between " .. least .. " and " .. most)
        end
        conf[name] = value
    end
    return conf[name]
end

local function new()
    local conf = {
        encode_max_depth = 1000, decode_max_depth = 1000, sparse_convert = false, sparse_ratio = 2, sparse_safe = 10,
        empty_as_object = true, encode_invalid_numbers = false, decode_invalid_numbers = true, keep = true,
        with_array_mt = false, slash = true, skip = false, precision = 14, number = "%.14g",
        escaped = '[%c"\\/\127]',
    }
    local out = buffer.new()
    local module = {
        _NAME = "cjson", _VERSION = "2.1.0.14", null = null, empty_array = empty_array, array_mt = array_mt,
        empty_array_mt = empty_array_mt, new = new,
    }

    function module.encode(...)
        if select("#", ...) ~= 1 then
            return S.bad_argument(1, "encode", "expected 1 argument")
        end
        out:reset()
        put(conf, out, (...), 0)
        return out:get()
    end

    function module.decode(...)
        if select("#", ...) ~= 1 then
            return S.bad_argument(1, "decode", "expected 1 argument")
        end
        local text = S.check_string((...), 1, "decode")
        if #text >= 2 and (text:byte(1) == 0 or text:byte(2) == 0) then
            return error("JSON parser does not support UTF-16 or UTF-32", 0)
        end
        local value, at = read(conf, text, skip(text, 1), 0)
        at = skip(text, at)
        if at <= #text then
            return unexpected("the end", token_at(conf, text, at, "the end"), at)
        end
        return value
    end

    function module.encode_max_depth(value)
        return bounded(conf, "encode_max_depth", value, 1, 1, 2147483647)
    end

    function module.decode_max_depth(value)
        return bounded(conf, "decode_max_depth", value, 1, 1, 2147483647)
    end

    function module.encode_number_precision(value)
        bounded(conf, "precision", value, 1, 1, 16)
        conf.number = "%." .. conf.precision .. "g"
        return conf.precision
    end

    function module.encode_sparse_array(convert, ratio, safe)
        switch(conf, "sparse_convert", convert, 1, true, false)
        return conf.sparse_convert, bounded(conf, "sparse_ratio", ratio, 2, 0, 2147483647),
            bounded(conf, "sparse_safe", safe, 3, 0, 2147483647)
    end

    function module.encode_invalid_numbers(value)
        return switch(conf, "encode_invalid_numbers", value, 1, true, false, "null")
    end

    function module.decode_invalid_numbers(value)
        return switch(conf, "decode_invalid_numbers", value, 1, true, false)
    end

    function module.encode_keep_buffer(value)
        return switch(conf, "keep", value, 1, true, false)
    end

    function module.encode_empty_table_as_object(value)
        return switch(conf, "empty_as_object", value, 1, true, false)
    end

    function module.decode_array_with_array_mt(value)
        return switch(conf, "with_array_mt", value, 1, true, false)
    end

    function module.encode_skip_unsupported_value_types(value)
        return switch(conf, "skip", value, 1, true, false)
    end

    function module.encode_escape_forward_slash(value)
        switch(conf, "slash", value, 1, true, false)
        conf.escaped = conf.slash and '[%c"\\/\127]' or '[%c"\\\127]'
        return conf.slash
    end
    return module
end

local function protect(fn)
    return function(...)
        local ok, value = pcall(fn, ...)
        if ok then
            return value
        end
        return nil, value
    end
end

local function safe()
    local module = new()
    module.encode, module.decode, module.new = protect(module.encode), protect(module.decode), safe
    return module
end

local made = { cjson = new, ["cjson.safe"] = safe }
S.json_twin = made
package.loaders[#package.loaders + 1] = function(name)
    return made[name] or "\n\tno twin of '" .. tostring(name) .. "'"
end
