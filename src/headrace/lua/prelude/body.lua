-- A request body that the script makes: ngx.req.init_body, append_body, finish_body, set_body_file.
local S, host = ...
local req = S.ngx.req
local select = select

local function request(least, most, words, ...)
    local n = select("#", ...)
    if n < least or n > most then
        return S.raise("expecting " .. words .. " but seen " .. n)
    end
    return S.request()
end

local function done(why)
    if why then
        return S.raise(why)
    end
end

--- Begin a new body; what goes past `size` bytes is in a temporary file.
function req.init_body(...)
    local R = request(0, 1, "0 or 1 argument", ...)
    local size = ...
    if size ~= nil then
        size = S.check_number(size, 1, "init_body")
        if size < 0 then
            return S.raise("bad size argument: " .. size)
        end
    end
    return done(host.init_body(R.id, size or -1))
end

function req.append_body(...)
    local R = request(1, 1, "1 arguments", ...)
    return done(host.append_body(R.id, S.check_string((...), 1, "append_body")))
end

function req.finish_body(...)
    return done(host.finish_body(request(0, 0, "0 argument", ...).id))
end

--- Take a file as the body; clean: delete it when the request has ended.
function req.set_body_file(...)
    local R = request(1, 2, "1 or 2 arguments", ...)
    local path, clean = ...
    path = S.check_string(path, 1, "set_body_file")
    return done(host.set_body_file(R.id, path, clean and 1 or 0))
end
