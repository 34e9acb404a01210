-- Work on strings: URI escaping, arguments, base64, digests, SQL quoting.
local S, host = ...
local ngx = S.ngx
local ffi = S.ffi
local type, tostring, pairs, select = type, tostring, pairs, select
local band, bor, bxor, bnot, lshift, rshift = bit.band, bit.bor, bit.bxor, bit.bnot, bit.lshift, bit.rshift

local function percent(c)
    return ("%%%02X"):format(c:byte())
end

-- What is escaped by type: nginx's tables for URI, ARGS, URI_COMPONENT, HTML, REFRESH, MEMCACHED, MAIL_AUTH.
local COMPONENT = "[^%w%-._~!'()*]"
local ESCAPED = {
    [0] = "[%z\1-\32#%%?\127-\255]", "[%z\1-\32#%%+?\127-\255]", COMPONENT, "[%z\1-\32\"#%%'\127-\255]",
    "[%z\1-\32\"%%'\127-\255]", "[%z\1-\32%%]", "[%z\1-\32%%]",
}

--- type 2 (default): a component of a URI; 0: a whole URI; others as nginx numbers them.
function ngx.escape_uri(text, kind)
    text = S.check_string(text == nil and "" or text, 1, "escape_uri")
    if kind ~= nil and type(kind) ~= "number" then
        return error('"type" is not a number', 3)
    end
    kind = kind or 2
    if kind < 0 or kind > 6 then
        return error('"type" ' .. kind .. " out of range", 3)
    end
    local pattern = ESCAPED[kind]
    if not text:find(pattern) then
        return text
    end
    return (text:gsub(pattern, percent))
end

local function unpercent(hex)
    return string.char(tonumber(hex, 16))
end

local function unescape(text)
    if not text:find("[%%+]") then
        return text
    end
    return (text:gsub("+", " "):gsub("%%(%x%x)", unpercent))
end

function ngx.unescape_uri(text)
    return unescape(S.check_string(text == nil and "" or text, 1, "unescape_uri"))
end

local function escape(text)
    if not text:find(COMPONENT) then
        return text
    end
    return (text:gsub(COMPONENT, percent))
end

local function encode_pair(parts, key, value)
    local kind = type(value)
    if value == true then
        parts[#parts + 1] = key
    elseif kind == "string" or kind == "number" then
        parts[#parts + 1] = key .. "=" .. escape(tostring(value))
    elseif value ~= false and value ~= nil then
        return S.raise("attempt to use " .. kind .. " as query arg value")
    end
end

function ngx.encode_args(args)
    if type(args) ~= "table" then
        return S.bad_argument(1, "encode_args", "table expected, got " .. (args == nil and "no value" or type(args)))
    end
    local parts = {}
    for key, value in pairs(args) do
        if type(key) ~= "string" then
            return S.raise("attempt to use a non-string key in the \"args\" option table")
        end
        key = escape(key)
        if type(value) == "table" then
            for i = 1, #value do
                encode_pair(parts, key, value[i])
            end
        else
            encode_pair(parts, key, value)
        end
    end
    return table.concat(parts, "&")
end

--- A query string as a table; max 0: no limit. The second value is "truncated" when there were more.
function S.parse_args(text, max, into)
    local args, n = into or {}, 0
    if into then
        for key in pairs(into) do
            into[key] = nil
        end
    end
    for pair in text:gmatch("[^&]+") do
        if max > 0 and n >= max then
            S.note("lua hit query args limit ", max)
            return args, "truncated"
        end
        local at = pair:find("=", 1, true)
        local key, value
        if at then
            key, value = unescape(pair:sub(1, at - 1)), unescape(pair:sub(at + 1))
        else
            key, value = unescape(pair), true
        end
        n = n + 1
        if key ~= "" then
            local existing = args[key]
            if existing == nil then
                args[key] = value
            elseif type(existing) == "table" then
                existing[#existing + 1] = value
            else
                args[key] = { existing, value }
            end
        end
    end
    return args
end

function ngx.decode_args(text, max, into)
    return S.parse_args(S.check_string(text, 1, "decode_args"), S.limit(max, 2, "decode_args"), into)
end

local ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
local sextet = ffi.new("uint8_t[256]") -- value of a byte of the alphabet, 64 for any other
ffi.fill(sextet, 256, 64)
local letter = ffi.new("uint8_t[64]")
for i = 0, 63 do
    letter[i] = ALPHABET:byte(i + 1)
    sextet[letter[i]] = i
end
local room_size = 4096
local room = ffi.new("uint8_t[?]", room_size)

-- A buffer of at least so many bytes; what a long text took is not kept.
local function room_for(size)
    return size <= room_size and room or ffi.new("uint8_t[?]", size)
end

-- RFC 4648 4.
local function encode_base64(text, padded)
    local size = #text
    local from, to = ffi.cast("const uint8_t *", text), room_for(math.ceil(size / 3) * 4)
    local at = 0
    for i = 0, size - 3, 3 do
        local a, b, c = from[i], from[i + 1], from[i + 2]
        to[at] = letter[rshift(a, 2)]
        to[at + 1] = letter[bor(lshift(band(a, 3), 4), rshift(b, 4))]
        to[at + 2] = letter[bor(lshift(band(b, 15), 2), rshift(c, 6))]
        to[at + 3] = letter[band(c, 63)]
        at = at + 4
    end
    local left = size % 3
    if left > 0 then
        local a, b = from[size - left], left == 2 and from[size - 1] or 0
        to[at] = letter[rshift(a, 2)]
        to[at + 1] = letter[bor(lshift(band(a, 3), 4), rshift(b, 4))]
        at = at + 2
        if left == 2 then
            to[at] = letter[lshift(band(b, 15), 2)]
            at = at + 1
        end
        if padded then
            for _ = left, 2 do
                to[at] = 61
                at = at + 1
            end
        end
    end
    return ffi.string(to, at)
end

-- With or without padding; nil for anything that is no base64.
local function decode_base64(text)
    local size = #text
    local whole = size
    local from = ffi.cast("const uint8_t *", text)
    while size > 0 and from[size - 1] == 61 do
        size = size - 1
    end
    if size % 4 == 1 or whole - size > 2 then
        return nil
    end
    local to, at, bits, held = room_for(size), 0, 0, 0
    for i = 0, size - 1 do
        local value = sextet[from[i]]
        if value == 64 then
            return nil
        end
        held = bor(lshift(band(held, 0xffff), 6), value)
        bits = bits + 6
        if bits >= 8 then
            bits = bits - 8
            to[at] = band(rshift(held, bits), 255)
            at = at + 1
        end
    end
    return ffi.string(to, at)
end

function ngx.encode_base64(text, no_padding)
    text = text == nil and "" or type(text) == "string" and text or tostring(text)
    if no_padding ~= nil and type(no_padding) ~= "boolean" then
        return error("bad no_padding: boolean expected, got " .. type(no_padding), 2)
    end
    return encode_base64(text, not no_padding)
end

function ngx.decode_base64(text)
    if type(text) ~= "string" then
        return S.raise("string argument only")
    end
    return decode_base64(text)
end

function ngx.decode_base64mime(text)
    if type(text) ~= "string" then
        return S.raise("string argument only")
    end
    return decode_base64((text:gsub("[^%w+/]", "")))
end

local HEX = {}
for i = 0, 255 do
    HEX[string.char(i)] = ("%02x"):format(i)
end

-- libcrypto's one-call digests where the library is found, else Python's.
local crypto
for _, name in ipairs { "libcrypto.so.3", "libcrypto.so.1.1" } do
    local ok, library = pcall(ffi.load, name)
    if ok then
        crypto = library
        break
    end
end

local digest
if crypto then
    ffi.cdef [[
    unsigned char *hr_md5(const char *data, size_t size, unsigned char *out) __asm__("MD5");
    unsigned char *hr_sha1(const char *data, size_t size, unsigned char *out) __asm__("SHA1");
    ]]
    local out = ffi.new("unsigned char[20]")
    local functions = { md5 = { crypto.hr_md5, 16 }, sha1 = { crypto.hr_sha1, 20 } }
    digest = function(name, text)
        local entry = functions[name]
        entry[1](text, #text, out)
        return ffi.string(out, entry[2])
    end
else
    digest = host.digest
end

local function text_argument(value)
    return type(value) == "string" and value or value == nil and "" or tostring(value)
end

function ngx.md5_bin(text)
    return digest("md5", text_argument(text))
end

function ngx.md5(text)
    return (digest("md5", text_argument(text)):gsub(".", HEX))
end

function ngx.sha1_bin(text)
    return digest("sha1", text_argument(text))
end

function ngx.hmac_sha1(key, text)
    return host.hmac_sha1(S.check_string(key, 1, "hmac_sha1"), S.check_string(text, 2, "hmac_sha1"))
end

local crc_table = ffi.new("uint32_t[256]")
for i = 0, 255 do
    local value = i
    for _ = 1, 8 do
        value = band(value, 1) == 1 and bxor(rshift(value, 1), 0xedb88320) or rshift(value, 1)
    end
    crc_table[i] = value
end

-- The CRC-32 of zlib and of Ethernet (ISO 3309).
local function crc32(text)
    local from = ffi.cast("const uint8_t *", text)
    local crc = -1
    for i = 0, #text - 1 do
        crc = bxor(crc_table[band(bxor(crc, from[i]), 255)], rshift(crc, 8))
    end
    return bnot(crc) % 4294967296
end

function ngx.crc32_short(text)
    return crc32(S.check_string(text, 1, "crc32_short"))
end

function ngx.crc32_long(text)
    return crc32(S.check_string(text, 1, "crc32_long"))
end

local SQL = {
    ["\0"] = "\\0", ["\b"] = "\\b", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t", ["\26"] = "\\Z",
    ["\\"] = "\\\\", ["'"] = "\\'", ['"'] = '\\"',
}

function ngx.quote_sql_str(...)
    if select("#", ...) ~= 1 then
        return S.raise("expecting one argument")
    end
    local text = S.check_string((...), 1, "quote_sql_str")
    return "'" .. text:gsub("[%z\b\n\r\t\26\\'\"]", SQL) .. "'"
end
