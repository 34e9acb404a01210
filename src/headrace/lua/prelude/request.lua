-- ngx.req beside its headers.
local S, host = ...
local ngx = S.ngx
local req = ngx.req
local type, tostring = type, tostring

local methods = {
    GET = 2, HEAD = 4, POST = 8, PUT = 16, DELETE = 32, MKCOL = 64, COPY = 128, MOVE = 256, OPTIONS = 512,
    PROPFIND = 1024, PROPPATCH = 2048, LOCK = 4096, UNLOCK = 8192, PATCH = 16384, TRACE = 32768,
}
local method_names = {}
for name, number in pairs(methods) do
    method_names[number] = name
end
S.method_names = method_names

-- Method, path and arguments of R as they are now, in one crossing for a stretch of Lua.
local function facts(R)
    if R.facts ~= S.serial then
        R.method, R.uri, R.args = host.facts(R.id)
        R.facts = S.serial
    end
    return R
end

S.getters.is_subrequest = function()
    return host.is_subrequest(S.request().id) == 1
end

function req.get_method()
    return facts(S.request()).method
end

function req.set_method(method)
    local R = S.request()
    local name = method_names[method]
    if not name then
        return S.raise("unsupported HTTP method: " .. tostring(method))
    end
    host.set_method(R.id, name)
end

function req.http_version()
    return host.http_version(S.request().id)
end

function req.is_internal()
    return host.is_internal(S.request().id) == 1
end

function req.start_time()
    return host.start_time(S.request().id)
end

function req.raw_header(no_line)
    return host.raw_header(S.request().id, no_line and 1 or 0)
end

function req.get_uri_args(max, into)
    local R = S.request()
    return S.parse_args(facts(R).args, S.limit(max, 1, "get_uri_args"), into)
end

function req.set_uri_args(args)
    local R = S.request()
    if type(args) == "table" then
        args = ngx.encode_args(args)
    else
        args = S.check_string(args, 1, "set_uri_args")
        args = args:gsub("[%z\1-\32\127]", function(c)
            return ("%%%02X"):format(c:byte())
        end)
    end
    host.set_args(R.id, args)
end

function req.set_uri(uri, jump, binary)
    local R = S.request()
    uri = S.check_string(uri, 1, "set_uri")
    if uri == "" then
        return S.raise("attempt to use zero-length uri")
    end
    if not binary then
        local byte, text = S.unsafe_byte(uri)
        if byte then
            return S.raise('unsafe byte "' .. byte .. '" in uri "' .. text
                .. '" (maybe you want to set the \'binary\' argument?)')
        end
    end
    if jump then
        S.check_pending(R)
        local early = R.phase == S.SERVER_REWRITE -- before a location was looked for: there is none to leave
        if not early and R.phase ~= S.REWRITE then
            return S.disabled()
        end
        host.set_uri(R.id, uri, early and 0 or 1)
        R.ctx = nil
        return S.exit_now(R, 0)
    end
    host.set_uri(R.id, uri, 0)
end

--- Read the request body; afterwards get_body_data() or get_body_file() has it.
function req.read_body()
    local R = S.R
    if not R or not S.has_request[R.phase] or not S.may_wait[R.phase] then
        return S.disabled()
    end
    local T = S.cur
    local state, why = host.read_body(R.id)
    if state == 0 then
        local waiters = R.reading or {}
        R.reading = waiters
        waiters[#waiters + 1] = T
        waiters[#waiters + 1] = S.mark(T)
        why = S.wait()
    end
    if why then
        -- the request itself is at fault (413, 400, 408): it ends with that status, as in OpenResty
        return S.exit_now(R, why)
    end
end

--- Python: the body is there, or the status that its fault calls for.
function S.body_ready(id, status)
    S.turn = 0
    S.wall = nil
    local R = S.requests[id]
    local waiters = R and R.reading
    if waiters then
        R.reading = nil
        for i = 1, #waiters, 2 do
            S.post(waiters[i], waiters[i + 1], status)
        end
        S.drain()
    end
end

function req.discard_body()
    host.discard_body(S.request().id)
end

--- The body as a string (at most max bytes), nil when there is none or it is in a file.
function req.get_body_data(max)
    local data = host.get_body(S.request().id)
    if data and max and max > 0 and #data > max then
        return data:sub(1, max)
    end
    return data
end

function req.get_body_file()
    return host.get_body_file(S.request().id)
end

function req.set_body_data(data)
    local R = S.request()
    local why = host.set_body(R.id, S.check_string(data, 1, "set_body_data"))
    if why then
        return S.raise(why)
    end
end

function req.get_post_args(max)
    local R = S.request()
    if host.body_state(R.id) == 0 then
        return S.raise("no request body found; maybe you should turn on lua_need_request_body?")
    end
    local data = host.get_body(R.id)
    if not data then
        if host.get_body_file(R.id) then
            return nil, "request body in temp file not supported"
        end
        return {}
    end
    return S.parse_args(data, S.limit(max, 1, "get_post_args"))
end
req.get_query_args = req.get_uri_args
