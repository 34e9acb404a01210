-- What belongs to a request, or to a session of stream: ngx.ctx, ngx.var, ngx.on_abort.
local S, host = ...
local ngx = S.ngx
local type, tostring, setmetatable = type, tostring, setmetatable

S.getters.ctx = function()
    local R = S.R
    if not R or R.phase == S.INIT then
        return S.raise("no request found")
    end
    local ctx = R.ctx
    if not ctx then
        ctx = S.given_ctx and S.given_ctx[R.id] or {}
        R.ctx = ctx
    end
    return ctx
end

S.setters.ctx = function(value)
    local R = S.R
    if not R or R.phase == S.INIT then
        return S.raise("no request found")
    end
    if type(value) ~= "table" then
        return S.raise("ctx should be a table while getting a " .. type(value))
    end
    R.ctx = value
end

ngx.var = setmetatable({}, {
    __index = function(_, name)
        local R = S.request()
        if type(name) == "number" then
            return name > 0 and host.get_capture(R.id, name) or nil -- $0 is nothing that a configuration can say
        elseif type(name) ~= "string" then
            return S.raise("bad variable name")
        end
        return host.get_var(R.id, name)
    end,
    __newindex = function(_, name, value)
        local R = S.request()
        if type(name) ~= "string" then
            return S.raise("bad variable name")
        end
        local kind = type(value)
        if value ~= nil and kind ~= "string" and kind ~= "number" and kind ~= "boolean" then
            return S.raise("string, number or nil expected, got " .. kind)
        end
        local why = host.set_var(R.id, name, value ~= nil and tostring(value) or nil)
        if why then
            return S.raise(why)
        end
    end,
})

--- Call back when the client goes away; needs lua_check_client_abort on.
function ngx.on_abort(callback)
    local R = S.R
    if not R or not S.has_request[R.phase] or not S.may_wait[R.phase] then
        return S.disabled()
    end
    if not R.conf.check_client_abort then
        return nil, "lua_check_client_abort is off"
    end
    if R.abort then
        return nil, "duplicate call"
    end
    if type(callback) ~= "function" then
        return S.bad_argument(1, "on_abort", "function expected, got " .. type(callback))
    end
    R.abort = callback
    return 1
end
