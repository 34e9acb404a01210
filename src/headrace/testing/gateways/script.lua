-- What a test file in Lua finds: test(name, function(t) end) and equal(got, expected). Runs in a VM of its own, beside
-- that of the gateway.
local host, path = ...
local unpack, type, tostring = unpack, type, tostring

local function shown(value, depth)
    if type(value) == "string" then
        return ("%q"):format(value)
    end
    if type(value) ~= "table" or depth > 8 then
        return tostring(value)
    end
    local keys, words = {}, {}
    for key in pairs(value) do
        keys[#keys + 1] = key
    end
    table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
    for i, key in ipairs(keys) do
        local name = type(key) == "number" and i == key and "" or tostring(key) .. " = "
        words[i] = name .. shown(value[key], depth + 1)
    end
    return "{" .. table.concat(words, ", ") .. "}"
end

local function same(a, b)
    if type(a) ~= "table" or type(b) ~= "table" then
        return a == b
    end
    for key, value in pairs(a) do
        if not same(value, b[key]) then
            return false
        end
    end
    for key in pairs(b) do
        if a[key] == nil then
            return false
        end
    end
    return true
end

--- Raises unless both are the same; tables by what is in them.
function equal(got, expected, what)
    if not same(got, expected) then
        error((what and what .. ": " or "") .. shown(got, 0) .. " is not " .. shown(expected, 0), 2)
    end
end

-- Header fields cross as lines, "Name: value".
local function lines(headers)
    local made = {}
    for name, value in pairs(headers or {}) do
        if type(name) == "number" then
            made[#made + 1] = value[1] .. ": " .. value[2]
        else
            for _, one in ipairs(type(value) == "table" and value or { value }) do
                made[#made + 1] = name .. ": " .. tostring(one)
            end
        end
    end
    return table.concat(made, "\n")
end

local function fields(text)
    local made = {}
    for name, value in text:gmatch("([^:\n]+): ?([^\n]*)") do
        local key = name:lower()
        if made[key] == nil then
            made[key] = value
        elseif type(made[key]) == "table" then
            table.insert(made[key], value)
        else
            made[key] = { made[key], value }
        end
    end
    return made
end

local methods = {}

--- {uri = "/", method = "GET", headers = {}, body = "", client = "127.0.0.1", listen = "8080"}, or just the uri.
function methods:request(options)
    if type(options) == "string" then
        options = { uri = options }
    end
    local body = options.body or ""
    local status, headers, text = host.request(options.method or (body ~= "" and "POST" or "GET"), options.uri or "/",
        lines(options.headers), body, options.client or "127.0.0.1", options.listen or "")
    return { status = status, headers = fields(headers), body = text }
end

--- What answers at an address: a function that is given what comes and returns what is said (nil: close).
function methods:upstream(address, answer)
    host.upstream(address, function(data)
        return answer(data)
    end)
end

--- The same for HTTP: function(request) returning {status =, headers =, body =}, or a body.
function methods:http_upstream(address, answer)
    host.http_upstream(address, function(method, uri, headers, body)
        local reply = answer { method = method, uri = uri, headers = fields(headers), body = body }
        if type(reply) ~= "table" then
            reply = { body = reply }
        end
        return reply.status or 200, lines(reply.headers), tostring(reply.body or "")
    end)
end

function methods:elapse(seconds)
    host.elapse(seconds)
end

function methods:passed()
    return host.passed()
end

function methods:log()
    return host.log()
end

function methods:access_log()
    return host.access_log()
end

--- The addresses that were connected to, in order.
function methods:connects()
    local made = {}
    for address in host.connects():gmatch("[^\n]+") do
        made[#made + 1] = address
    end
    return made
end

local tests = {}

function test(name, run)
    if type(name) ~= "string" or type(run) ~= "function" then
        error("a test has a name and a function", 2)
    end
    local info = debug.getinfo(run, "S")
    tests[#tests + 1] = { name = name, run = run, line = info.linedefined }
end

assert(loadfile(path))()

local t = setmetatable({}, { __index = methods })
return #tests, function(number)
    return tests[number].name, tests[number].line
end, function(number)
    local result
    local ok = xpcall(function() tests[number].run(t) end, function(message)
        result = { tostring(message), debug.traceback("", 2) }
    end)
    if not ok then
        return unpack(result)
    end
end
