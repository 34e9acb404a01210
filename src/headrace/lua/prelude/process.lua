-- Small modules of lua-resty-core: ngx.process, ngx.errlog, ngx.req, ngx.resp.
-- https://github.com/openresty/lua-resty-core, lib/ngx/*.md
local S, host = ...
local ngx = S.ngx
local preload = package.preload
local type, tostring, tonumber = type, tostring, tonumber

local VERSION = S.core_version
local settings = S.settings

preload["ngx.process"] = function()
    return {
        version = VERSION,
        -- "worker" in a worker, "single" where there is no master, "master" while the configuration is read.
        type = function()
            local R = S.R
            return not (R and R.phase ~= S.INIT) and "master" or host.has_master() == 1 and "worker" or "single"
        end,
        get_master_pid = function()
            return host.has_master() == 1 and host.master_pid() or host.pid()
        end,
        enable_privileged_agent = function()
            local R = S.R
            if R and R.phase ~= S.INIT then
                return S.raise("API disabled in the current context")
            end
            return nil, "not supported by this runtime"
        end,
        signal_graceful_exit = function()
            host.signal_graceful_exit()
            return true
        end,
    }
end

preload["ngx.req"] = function()
    local function add(name, value)
        local R = S.request()
        if type(name) ~= "string" then
            return S.raise("bad 'name' argument: string expected, got " .. type(name))
        end
        return host.add_header_in(R.id, name, S.escape_header_value(value))
    end
    return {
        version = VERSION,
        add_header = function(name, value)
            if value == nil then
                return S.raise("bad 'value' argument: string or table expected, got nil")
            elseif type(value) ~= "table" then
                return add(name, tostring(value))
            end
            if #value == 0 then
                return S.raise("bad 'value' argument: non-empty table expected")
            end
            for i = 1, #value do
                add(name, tostring(value[i]))
            end
        end,
    }
end

preload["ngx.resp"] = function()
    return {
        version = VERSION,
        add_header = ngx.resp.add_header,
        set_status = function(status, reason)
            local R = S.request()
            local number = tonumber(status)
            if not number then
                return S.raise("invalid status: number expected, got " .. type(status))
            end
            local sent = R.phase ~= S.HEADER_FILTER and (R.sent or host.headers_sent(R.id) == 1)
            ngx.status = number
            if reason ~= nil and not sent then
                host.set_reason(R.id, S.check_string(reason, 2, "set_status"))
            end
        end,
        bypass_if_checks = function()
            host.bypass_if_checks(S.request().id)
            return true
        end,
    }
end

local UNSET = 'directive "lua_capture_error_log" is not set'

preload["ngx.errlog"] = function()
    local errlog = { version = VERSION }

    --- The level of the error log in force.
    function errlog.get_sys_filter_level()
        local R = S.R
        local conf = R and R.conf
        return conf and conf.log_level or settings.log_level
    end

    --- A line as it is, without the place of the script.
    function errlog.raw_log(...)
        local level, text = ...
        if type(level) ~= "number" then
            return S.raise("bad argument #1 to 'raw_log' (must be a number)")
        elseif type(text) ~= "string" then
            return S.raise("bad argument #2 to 'raw_log' (must be a string)")
        elseif level < 0 or level > 8 then
            return S.raise("bad log level")
        end
        if level <= errlog.get_sys_filter_level() then
            host.log(S.R and S.R.id or 0, level, text)
        end
    end

    --- Take what was kept, the oldest first: {level, seconds, text, level, ...}. max: how many messages, 10 where
    --- nothing is said, all when it is 0 or less.
    function errlog.get_logs(max, logs)
        max = max or 10
        logs = logs or {}
        local n = 0
        while max <= 0 or n < max do
            local level, seconds, text = host.errlog_take()
            if level == 0 and not text then
                return nil, UNSET
            elseif not level then
                break
            end
            logs[n * 3 + 1], logs[n * 3 + 2], logs[n * 3 + 3] = level, seconds, text
            n = n + 1
        end
        logs[n * 3 + 1] = nil
        return logs
    end

    function errlog.set_filter_level(level)
        if not level then
            return nil, 'missing "level" argument'
        end
        level = S.check_number(level, 1, "set_filter_level")
        local bad = level < 0 or level > 8
        if host.errlog_level(bad and ngx.DEBUG or level) == 0 then
            return nil, UNSET
        elseif bad then
            return nil, "bad log level: " .. level
        end
        return true
    end
    return errlog
end
