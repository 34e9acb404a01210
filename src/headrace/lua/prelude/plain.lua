-- Runs that may not wait (init, init_worker, log, set, filters, balancer): they have no coroutine of their own. And what ends a
-- request from outside.
local S = ...
local requests, ngx = S.requests, S.ngx
local type, tostring, setmetatable = type, tostring, setmetatable

--- Python: run a chunk that may not wait (init, init_worker, log, set, filters). id 0: no request.
--- Returns true and the chunk's values, or false and the text of the error.
function S.run_plain(ref, id, phase, ...)
    S.turn = 0
    S.wall = nil
    local R = requests[id]
    local fresh = not R
    if fresh then
        R = S.new_record(id, phase)
        requests[id] = R
    end
    local outer_thread, outer_record, outer_phase = S.cur, S.R, R.phase
    R.phase = phase
    R.conf = S.confs[ref]
    S.cur, S.R = nil, R
    S.serial = S.serial + 1
    local ok, a, b = xpcall(S.chunks[ref], S.plain_handler, ...)
    S.tell_fields()
    S.cur, S.R = outer_thread, outer_record
    R.phase = outer_phase
    if fresh and (phase == S.LOG or id == 0) then
        S.release(R)
    end
    if not ok then
        a = "failed to run " .. S.context_names[phase] .. ": " .. a
    elseif phase == S.HEADER_FILTER or phase == S.BALANCER or phase == S.SSL_SESSION_STORE then
        a, R.code = R.code, nil
    end
    if not outer_thread then
        S.drain()
    end
    return ok, a, b
end

local arg_data, arg_eof, set_args = nil, nil, nil

ngx.arg = setmetatable({}, {
    __index = function(_, key)
        if S.R and S.R.phase == S.SET then
            return set_args and set_args[key]
        end
        local R = S.request()
        if R.phase ~= S.BODY_FILTER then
            return S.raise("API disabled in the current context")
        elseif key == 1 then
            return arg_data
        elseif key == 2 then
            return arg_eof
        end
        return nil
    end,
    __newindex = function(_, key, value)
        local R = S.R
        if not R or R.phase ~= S.BODY_FILTER then
            return S.disabled()
        end
        if key == 1 then
            if type(value) == "table" then
                value = S.flatten(value, 3, "newindex")
            elseif value ~= nil and type(value) ~= "string" then
                value = tostring(value)
            end
            arg_data = value
        elseif key == 2 then
            arg_eof = value and true or false
        else
            return S.raise("bad index: " .. tostring(key))
        end
    end,
})

--- Python: run the code of a set_by_lua with its arguments. Returns true and the value as a string, or false and the
--- text of the error.
function S.run_set(ref, id, ...)
    local outer = set_args
    set_args = { ... }
    local ok, value = S.run_plain(ref, id, S.SET)
    set_args = outer
    if ok then
        return true, value == nil and "" or tostring(value)
    end
    return false, value
end

--- Python: run a body filter over a part of the body. Returns true, what goes on and 1 when the body shall end with it,
--- or false and the text of the error.
function S.filter_body(ref, id, data, last)
    local outer_data, outer_eof = arg_data, arg_eof
    arg_data, arg_eof = data, last == 1
    local ok, why = S.run_plain(ref, id, S.BODY_FILTER)
    data, last = arg_data, arg_eof
    arg_data, arg_eof = outer_data, outer_eof
    if not ok then
        return false, why
    end
    return true, data or "", last and 1 or 0
end

--- Python: the request has ended.
function S.forget(id)
    local R = requests[id]
    if R then
        R.sync = true
        S.release(R)
        R.sync = false
    end
end

--- Python: the client went away. Without an on_abort callback the handler goes on, as lua_check_client_abort off.
function S.aborted(id)
    local R = requests[id]
    if R and R.live > 0 then
        local callback = R.abort
        if callback then
            R.abort = nil
            S.spawn(R, callback)
        else
            S.terminate(R, 499)
        end
        S.drain()
    end
end

--- Run fn(...) as a task without a request (timers). done is called when it and its threads have ended.
function S.run_task(phase, conf, done, fn, ...)
    local R = S.new_record(S.task_id(), phase)
    R.conf = conf
    R.task = done
    R.live = 1
    requests[R.id] = R
    local T = S.take_thread(R)
    R.entry = T
    S.resume(T, fn, ...)
    S.start_spawned()
end
