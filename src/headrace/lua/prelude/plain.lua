-- Runs that may not wait (init, init_worker, log, set, filters): they have no coroutine of their own. And what ends a
-- request from outside.
local S = ...
local requests = S.requests

local plain_names = {
    "init_by_lua*", "init_worker_by_lua*", [6] = "log_by_lua*", [8] = "exit_worker_by_lua*", [9] = "set_by_lua*",
    [10] = "header_filter_by_lua*", [11] = "body_filter_by_lua*",
}

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
    local ok, a, b = xpcall(S.chunks[ref], S.plain_handler, ...)
    S.cur, S.R = outer_thread, outer_record
    R.phase = outer_phase
    if fresh and (phase == S.LOG or id == 0) then
        S.release(R)
    end
    if not ok then
        a = "failed to run " .. plain_names[phase] .. ": " .. a
    end
    if not outer_thread then
        S.drain()
    end
    return ok, a, b
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
