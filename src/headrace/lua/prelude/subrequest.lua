-- ngx.location.capture and capture_multi: subrequests whose answers become tables.
local S, host = ...
local ngx = S.ngx
local type, tostring, pairs, ipairs, setmetatable = type, tostring, pairs, ipairs, setmetatable

local FORWARD_BODY, COPY_VARS, SHARE_VARS = 1, 2, 4
local MOST = 40 -- queries that cross at a time
local waiting = {} -- handle of a subrequest -> { group, place in it }
local given_ctx = {} -- handle -> the table that is its ngx.ctx
S.given_ctx = given_ctx

local function true_or_nil(value, name)
    if value == nil then
        return false
    elseif type(value) ~= "boolean" then
        return S.raise("Bad " .. name .. " option value")
    end
    return value
end

local function args_of(value)
    local kind = type(value)
    if value == nil then
        return nil
    elseif kind == "table" then
        return ngx.encode_args(value)
    elseif kind == "string" then
        return value
    end
    return S.raise("Bad args option value")
end

local function method_of(value)
    if value == nil then
        return "GET"
    end
    local name = type(value) == "number" and S.method_names[value]
    if not name then
        return S.raise(type(value) == "number" and "unsupported HTTP method: " .. value or "Bad http request method")
    end
    return name
end

local function set_vars(id, vars)
    for name, value in pairs(vars) do
        if type(name) ~= "string" then
            return S.raise("attempt to use a non-string key in the \"vars\" option table")
        end
        local kind = type(value)
        if kind ~= "string" and kind ~= "number" then
            return S.raise("attempt to use bad variable value type " .. kind)
        end
        local why = host.subrequest_var(id, name, tostring(value))
        if why then
            return S.raise(why)
        end
    end
end

--- What one query asks for: path, arguments, method, flags, body.
local function asked(uri, opts)
    local path, _, args = uri:find("?", 1, true)
    if path then
        uri, args = uri:sub(1, path - 1), uri:sub(path + 1)
    end
    if uri == "" or (uri:find("..", 1, true) and (uri .. "/"):find("/../", 1, true)) then
        return S.raise("unsafe uri in argument #1: " .. uri)
    end
    if not opts then
        return uri, args or "", "GET", 0, nil
    end
    local more = args_of(opts.args)
    if more and more ~= "" then
        args = args and args ~= "" and args .. "&" .. more or more
    end
    local body = opts.body
    if body ~= nil and type(body) ~= "string" and type(body) ~= "number" then
        return S.raise("Bad http request body")
    end
    local flags = 0
    if true_or_nil(opts.always_forward_body, "always_forward_body") then
        flags = flags + FORWARD_BODY
    end
    if true_or_nil(opts.share_all_vars, "share_all_vars") then
        flags = flags + SHARE_VARS
    elseif true_or_nil(opts.copy_all_vars, "copy_all_vars") then
        flags = flags + COPY_VARS
    end
    local vars, ctx = opts.vars, opts.ctx
    if vars ~= nil and type(vars) ~= "table" then
        return S.raise("Bad vars option value")
    elseif ctx ~= nil and type(ctx) ~= "table" then
        return S.raise("Bad ctx option value type " .. type(ctx) .. ", expected a Lua table")
    end
    return uri, args or "", method_of(opts.method), flags, body ~= nil and tostring(body) or nil
end

--- Make the subrequest of one query; its handle.
local function make(R, uri, opts)
    local path, args, method, flags, body = asked(uri, opts)
    local id = host.subrequest(R.id, path, args, method, flags, body)
    if not id then
        return S.raise("unsafe uri in argument #1: " .. path)
    end
    if opts and opts.vars then
        set_vars(id, opts.vars)
    end
    given_ctx[id] = opts and opts.ctx
    return id
end

--- Wait for the subrequests that have not ended; the list of all answers.
local function wait_for(R, group, n)
    if group.left > 0 then
        local T = S.cur
        group.T, group.seq = T, S.mark(T)
        R.pending = (R.pending or 0) + 1
        T.pending = true
        S.wait()
        T.pending = nil
        R.pending = R.pending > 1 and R.pending - 1 or nil
    end
    return group.answers, n
end

local answer -- a table of an answer, below

--- What host.capture gave for n queries: answers, or handles of those that wait.
local function take(R, queries, n, ...)
    local first = ...
    if select("#", ...) == 1 then
        return S.raise("unsafe uri in argument #1: " .. queries[first][1])
    end
    local answers = {}
    local group = { left = 0, answers = answers }
    if n == 1 then
        local status, state, body, fields = ...
        if state ~= -1 then
            answers[1] = answer(status, state, body, fields)
            return answers, 1
        end
    end
    local given = { ... }
    for i = 1, n do
        local at = i * 4 - 3
        local state = given[at + 1]
        if state == -1 then
            group.left = group.left + 1
            waiting[given[at]] = { group, i }
        else
            answers[i] = answer(given[at], state, given[at + 2], given[at + 3])
        end
    end
    return wait_for(R, group, n)
end

local plain_uri, plain_count = {}, 0 -- URIs that have no arguments and are safe

local function is_plain(uri)
    if plain_uri[uri] then
        return true
    elseif uri == "" or uri:find("?", 1, true) or uri:find("..", 1, true) then
        return false
    elseif plain_count >= 512 then
        plain_uri, plain_count = {}, 0
    end
    plain_uri[uri] = true
    plain_count = plain_count + 1
    return true
end

--- The URIs of queries that are no more than that; nil when one of them is more.
local function plain_uris(queries, n)
    local uris = {}
    for i = 1, n do
        local query = queries[i]
        if query[2] or not is_plain(query[1]) then
            return nil
        end
        uris[i] = query[1]
    end
    return uris
end

--- Run the queries {uri, options} side by side and wait for all of them; the list of their answers.
local function capture(queries)
    local R = S.R
    if not R then
        return S.raise("no request object found")
    elseif not S.has_request[R.phase] or not S.may_wait[R.phase] or not S.cur then
        return S.disabled()
    end
    local n = #queries
    local plain = n <= MOST and plain_uris(queries, n)
    if plain then
        return take(R, queries, n, host.capture_plain(R.id, unpack(plain, 1, n)))
    end
    local apart = n > MOST -- whether their handles are needed before they run
    for i = 1, n do
        local opts = queries[i][2]
        apart = apart or (opts and (opts.vars ~= nil or opts.ctx ~= nil))
    end
    if not apart then
        if n == 1 then
            return take(R, queries, 1, host.capture(R.id, asked(queries[1][1], queries[1][2])))
        end
        local all = {}
        for i = 1, n do
            local at = i * 5
            all[at - 4], all[at - 3], all[at - 2], all[at - 1], all[at] = asked(queries[i][1], queries[i][2])
        end
        return take(R, queries, n, host.capture(R.id, unpack(all, 1, n * 5)))
    end
    local ids = {}
    for i = 1, n do
        ids[i] = make(R, queries[i][1], queries[i][2])
    end
    local group = { left = n, answers = {} }
    for i = 1, n do
        waiting[ids[i]] = { group, i }
        host.subrequest_start(ids[i])
    end
    return wait_for(R, group, n)
end

local any_case = {
    __index = function(fields, key)
        if type(key) ~= "string" then
            return nil
        end
        local lower = key:lower():gsub("_", "-")
        for name, value in pairs(fields) do
            if name:lower() == lower then
                return value
            end
        end
        return nil
    end,
}

local shapes, shape_count = {}, 0 -- texts of fields, taken apart: name, value, ...

local function fields_of(text)
    local shape = shapes[text]
    local fields = {}
    if shape then
        for i = 1, #shape, 2 do
            fields[shape[i]] = shape[i + 1]
        end
        return setmetatable(fields, any_case)
    end
    fields = S.fields_to_table(text, 0)
    shape = {}
    for name, value in pairs(fields) do
        if type(value) == "table" then
            return setmetatable(fields, any_case)
        end
        shape[#shape + 1] = name
        shape[#shape + 1] = value
    end
    if shape_count >= 256 then
        shapes, shape_count = {}, 0
    end
    shapes[text] = shape
    shape_count = shape_count + 1
    return setmetatable(fields, any_case)
end

function answer(status, truncated, body, fields)
    return { status = status, truncated = truncated == 1, body = body, header = fields_of(fields) }
end

--- Python: a subrequest has ended.
function S.subrequest_ended(id, status, truncated, body, fields)
    S.turn = 0
    S.wall = nil
    local entry = waiting[id]
    waiting[id], given_ctx[id] = nil, nil
    if not entry then
        return
    end
    local group = entry[1]
    group.answers[entry[2]] = answer(status, truncated, body, fields)
    group.left = group.left - 1
    if group.left == 0 then
        S.wake(group.T, group.seq)
        S.drain()
    end
end

ngx.location = {}

function ngx.location.capture(uri, ...)
    local n = select("#", ...)
    if uri == nil or n > 1 then
        return S.raise("expecting one or two arguments")
    end
    local opts = ...
    if opts ~= nil and type(opts) ~= "table" then
        return S.raise("expecting table as the 2nd argument for subrequest 1, but got " .. type(opts))
    end
    local answers = capture { { S.check_string(uri, 1, "capture"), opts } }
    return answers[1]
end

function ngx.location.capture_multi(queries, ...)
    local n = select("#", ...)
    if queries == nil or n > 0 then
        return S.raise("only one argument is expected, but got " .. (queries == nil and 0 or n + 1))
    elseif type(queries) ~= "table" then
        return S.bad_argument(1, "capture_multi", "table expected, got " .. type(queries))
    elseif #queries == 0 then
        return S.raise("at least one subrequest should be specified")
    end
    local list = {}
    for i, query in ipairs(queries) do
        if type(query) ~= "table" then
            return S.raise("the query argument " .. i .. " is not a table, but a " .. type(query))
        elseif #query < 1 or #query > 2 then
            return S.raise("query argument " .. i .. " expecting one or two arguments")
        elseif query[2] ~= nil and type(query[2]) ~= "table" then
            return S.raise("expecting table as the 2nd argument for subrequest " .. i .. ", but got " .. type(query[2]))
        end
        list[i] = { S.check_string(query[1], 1, "capture_multi"), query[2] }
    end
    local answers, count = capture(list)
    return unpack(answers, 1, count)
end
