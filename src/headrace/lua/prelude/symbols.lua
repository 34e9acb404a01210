-- Functions of nginx that libraries for it call by ffi.C (resty.string): written in Lua, found there by their names.
--
-- Scripts get a table in place of the C library itself. What it has been asked for it keeps, unless it is a variable:
-- so a loop that calls a function finds it as a constant, and compiles.
local S = ...
local ffi, real = S.ffi, S.C
local rawset, tonumber, tostring, type = rawset, tonumber, tostring, type
local bytes, band, rshift = ffi.typeof("unsigned char *"), bit.band, bit.rshift
local digits = "0123456789abcdef"

local ours = {}

--- u_char *ngx_hex_dump(u_char *dst, u_char *src, size_t len)
function ours.ngx_hex_dump(to, from, size)
    to, from = ffi.cast(bytes, to), ffi.cast("const unsigned char *", from)
    for i = 0, tonumber(size) - 1 do
        local byte = from[i]
        to[2 * i] = digits:byte(rshift(byte, 4) + 1)
        to[2 * i + 1] = digits:byte(band(byte, 15) + 1)
    end
    return to + 2 * tonumber(size)
end

--- intptr_t ngx_atoi(const unsigned char *line, size_t n): NGX_ERROR for what is no number.
function ours.ngx_atoi(text, size)
    text, size = ffi.string(ffi.cast("const char *", text), size), tonumber(size)
    local number = size > 0 and size < 19 and text:match("^%d+$") and tonumber(text)
    return number or -1
end

ffi.C = setmetatable({}, {
    __index = function(names, name)
        local found = ours[name]
        if found == nil then
            found = real[name]
            if type(found) ~= "cdata" or not tostring(ffi.typeof(found)):find("()", 1, true) then
                return found
            end
        end
        rawset(names, name, found)
        return found
    end,
    __newindex = function(_, name, value)
        real[name] = value
    end,
})
