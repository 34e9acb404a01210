-- ngx.balancer: whom the try that begins asks.
-- https://github.com/openresty/lua-resty-core/blob/master/lib/ngx/balancer.md
local S, host = ...
local type, tonumber = type, tonumber

package.preload["ngx.balancer"] = function()
    local balancer = { version = S.core_version }

    -- The words of a phase without a peer to choose, or nil.
    local function misplaced()
        local R = S.R
        if not R or R.phase == S.INIT then
            return S.raise("no request found")
        end
        if R.phase ~= S.BALANCER then
            return S.has_request[R.phase] and host.has_upstream(R.id) == 1 and "API disabled in the current context" or "no upstream found"
        end
    end

    function balancer.set_current_peer(address, port, name)
        local why = misplaced()
        if type(address) ~= "string" then
            return S.raise("bad argument #1 to 'set_current_peer' (string expected, got " .. type(address) .. ")")
        end
        if name ~= nil and type(name) ~= "string" then
            return S.raise("bad argument #3 to 'set_current_peer' (string expected, got " .. type(name) .. ")")
        end
        why = why or host.balancer_peer(address, tonumber(port) or 0, name)
        if why then
            return nil, why
        end
        return true
    end

    function balancer.bind_to_local_addr(address)
        local why = misplaced()
        if type(address) ~= "string" then
            return S.raise("bad argument #1 to 'bind_to_local_addr' (string expected, got " .. type(address) .. ")")
        end
        why = why or host.balancer_local(address)
        if why then
            return nil, why
        end
        return true
    end

    local function amount(value, n, default)
        if not value then
            return default
        elseif type(value) ~= "number" then
            return S.raise("bad argument #" .. n .. " to 'enable_keepalive' (number expected, got " .. type(value)
                .. ")")
        elseif value < 0 then
            return S.raise("bad argument #" .. n .. " to 'enable_keepalive' (expected >= 0)")
        end
        return value
    end

    function balancer.enable_keepalive(idle_timeout, max_requests)
        local why = misplaced()
        idle_timeout, max_requests = amount(idle_timeout, 1, 60), amount(max_requests, 2, 100)
        if why then
            return nil, why
        end
        host.balancer_keepalive(idle_timeout, max_requests)
        return true
    end

    function balancer.set_more_tries(count)
        local why = misplaced()
        if why then
            return nil, why
        end
        count = S.check_number(count, 1, "set_more_tries")
        return true, host.balancer_more_tries(count)
    end

    function balancer.get_last_failure()
        local why = misplaced()
        if why then
            return nil, nil, why
        end
        return host.balancer_last_failure()
    end

    local function seconds(value, name)
        if not value then
            return 0
        elseif type(value) ~= "number" or value <= 0 then
            return S.raise("bad " .. name .. " timeout")
        end
        return value
    end

    function balancer.set_timeouts(connect, send, read)
        local why = misplaced()
        connect, send, read = seconds(connect, "connect"), seconds(send, "send"), seconds(read, "read")
        if why then
            return false, why
        end
        host.balancer_timeouts(connect, send, read)
        return true
    end

    function balancer.recreate_request()
        local why = misplaced()
        if why then
            return nil, why
        end
        host.balancer_recreate()
        return true
    end

    function balancer.set_upstream_tls(on)
        local why = misplaced() or host.balancer_tls((on == 0 or on == false) and 0 or 1)
        if why then
            return nil, why
        end
        return true
    end
    return balancer
end
