-- The debug log: what OpenResty tells there of sockets, pools, timers, threads, in its words.
--
-- A note costs one comparison where the error log has a higher level. Scripts and suites look for these lines.
local S, host = ...
local concat, select, tostring = table.concat, select, tostring
local settings = host.settings
local DEBUG = 8

local function write(id, ...)
    local parts = { ... }
    for i = 1, select("#", ...) do
        parts[i] = tostring(parts[i])
    end
    host.log(id, DEBUG, concat(parts))
end

--- Whether notes of the running code are wanted.
function S.noting()
    local R = S.R
    local conf = R and R.conf
    return (conf and conf.log_level or settings.log_level) >= DEBUG
end
local noting = S.noting

--- A note of the running code: its parts.
function S.note(...)
    if noting() then
        local R = S.R
        write(R and R.id or 0, ...)
    end
end

--- The same of a record that does not run, or of none, with the settings of a place.
function S.note_for(R, conf, ...)
    if (conf and conf.log_level or settings.log_level) >= DEBUG then
        write(R and R.id or 0, ...)
    end
end

--- A thread ends while it sleeps, or it could not yield for the sleep.
function S.end_sleep(T, R)
    S.cancel(T.sleeping)
    T.sleeping = nil
    S.note_for(R, R.conf, "lua clean up the timer for pending ngx.sleep")
end

--- Wait for an entry of S.at() as S.sleep() does, with notes.
function S.noted_sleep(T, ms, entry)
    local R = T.R
    S.note("lua ready to sleep for ", ms, " ms")
    T.sleeping = entry
    S.wait()
    T.sleeping = nil
    local id = S.has_request[R.phase] and R.id
    S.note('lua sleep timer expired: "', id and host.get_var(id, "uri") or "", "?",
        id and host.get_var(id, "args") or "", '"')
end
