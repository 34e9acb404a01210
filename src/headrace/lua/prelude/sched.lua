-- The scheduler: request handlers and light threads are coroutines; what waits yields a token up to here.
--
-- A request record R (one per request that runs Lua, recycled) owns its threads T and its sockets. Only this file
-- resumes the coroutine of a thread. A wait is: remember (T, T.seq) where the event will look, then S.wait().
-- A wake is S.wake(T, seq, ...): it does nothing when the thread has gone on or died meanwhile.
-- Every function that Python calls (S.run, events in wait.lua) ends with S.drain(), so that threads posted
-- by other threads run before the loop gets control back; a long queue continues in the loop's next turn.
local S, host = ...
local buffer = require "string.buffer"
local co_create, co_resume, co_yield = coroutine.create, coroutine.resume, coroutine.yield
local pairs, select = pairs, select
local mono = S.mono

local WAIT, DONE, EXIT = { "wait" }, { "done" }, { "exit" }
S.WAIT, S.EXIT = WAIT, EXIT
S.requests = {} -- id -> R, for requests that wait or have another Lua phase before them
local requests = S.requests
S.chunks = {} -- ref -> function
local chunks = S.chunks
S.confs = {} -- ref -> the settings in force where the chunk stands (lua_socket_* and others)
local confs = S.confs
S.thread_of = {} -- coroutine -> T of a light thread, until it is waited for or its handler ends
local thread_of = S.thread_of

local pool, pooled = {}, 0
local records, recorded = {}, 0
local posted, head, tail = {}, 1, 0
local deferred = {}
local next_task = -1
S.serial = 0 -- counts the stretches of Lua between which a request may change by itself
local KEEP, HEAD, SENT = 32, 64, 128 -- of the flags of S.run
local taken = S.taken

-- The body of a recycled coroutine: runs one function after another.
-- It is called through a table with a number as key: so a traceback knows no name for it, as for a main chunk.
local function again(slot, fn, ...)
    slot[1] = fn
    return again(slot, co_yield(DONE, slot[1](...)))
end

local function loop(fn, ...)
    return again({}, fn, ...)
end
S.loop = loop

--- A thread of R that runs nothing yet.
local function take_thread(R)
    local T
    if pooled > 0 then
        T = pool[pooled]
        pool[pooled] = nil
        pooled = pooled - 1
    else
        T = { co = co_create(loop), seq = 0 }
    end
    T.R = R
    T.dead = false
    return T
end

--- A fresh record; id is the request's handle, negative for timers and other runs without a request.
function S.new_record(id, phase)
    local R
    if recorded > 0 then
        R = records[recorded]
        records[recorded] = nil
        recorded = recorded - 1
    else
        R = { buf = buffer.new(), gen = 0 }
    end
    R.id = id
    R.phase = phase
    R.live = 0
    return R
end
local new_record = S.new_record

--- A number for a run that has no request.
function S.task_id()
    next_task = next_task - 1
    return next_task
end

S.take_thread = take_thread

local function kill(T, R)
    if T.sleeping then
        S.end_sleep(T, R)
    end
    T.dead, T.R, T.seq = true, nil, T.seq + 1
end
S.kill = kill

local function kill_threads(R)
    local threads = R.threads
    if threads then
        R.threads = nil
        for T in pairs(threads) do
            thread_of[T.co] = nil
            kill(T, R)
        end
    end
    local T = R.entry
    if T then
        R.entry = nil
        kill(T, R)
    end
    R.live = 0
end

local function close_sockets(R)
    local socks = R.socks
    if socks then
        R.socks = nil
        for sock in pairs(socks) do
            S.discard(sock)
        end
    end
end

--- Forget a request: its threads end, its sockets close, the record is used again.
local function release(R)
    if R.id == nil then
        return
    end
    if R.live > 0 or R.threads then
        kill_threads(R)
    end
    if R.socks then
        close_sockets(R)
    end
    requests[R.id] = nil
    if R.ctx then
        S.note_for(R, R.conf, "lua release ngx.ctx at ref 1")
    end
    R.id = nil
    R.gen = R.gen + 1
    R.ctx, R.sent, R.eof, R.code, R.over, R.keep = nil, nil, nil, nil, nil, nil
    R.abort, R.raw, R.begun, R.pending, R.task = nil, nil, nil, nil, nil
    R.header_only, R.flushing, R.reading = nil, nil, nil
    R.conf = nil
    S.empty(R.buf)
    if recorded < 256 then
        recorded = recorded + 1
        records[recorded] = R
    end
end
S.release = release

--- What a handler run amounts to: output (string) when it ended, a number when it ended with a code.
local function result(R)
    local code = R.code
    R.code = nil
    if R.socks then
        close_sockets(R)
    end
    local out
    if code == nil then
        out = #R.buf > 0 and taken(R.buf) or ""
    else
        if R.sent and code >= 0 then
            -- sends the header if nothing else is left
            host.output_rest(R.id, R.buf:get(), (R.begun or R.header_only or not R.conf.http10_buffering) and 0 or 1)
        end
        out = code
    end
    if not R.keep then
        release(R)
    end
    return out
end

-- The handler of R is over. In a run that Python waits for, its result is returned by run().
local function complete(R)
    if R.sync then
        return
    end
    local task = R.task
    if task then
        release(R)
        return task()
    end
    local id = R.id
    host.done(id, result(R))
end

--- End all threads of a request at once with a code (ngx.exit, a fault, an abort).
local function terminate(R, code)
    kill_threads(R)
    R.code = code
    complete(R)
end
S.terminate = terminate

local function finish(T, ok, ...)
    local R = T.R
    R.live = R.live - 1
    if T.sleeping then
        S.end_sleep(T, R)
    end
    if T == R.entry then
        T.R = nil
        R.entry = nil
        if ok and pooled < 256 then
            pooled = pooled + 1
            pool[pooled] = T
        end
    else
        T.dead = true
        T.results = { ok, n = select("#", ...) + 1, ... }
        local waiter = T.waiter
        if waiter then
            T.waiter = nil
            S.post(waiter, T.waiter_seq, T)
        end
    end
    if R.live == 0 then
        return complete(R)
    end
end

local function failed(T, err)
    local R = T.R
    S.log_failure(T, err)
    if T == R.entry then
        return terminate(R, R.sent and -1 or 500)
    end
    return finish(T, false, err)
end

local function step(T, ok, token, ...)
    if T.R == nil then
        return -- it was ended from within its own run
    elseif ok then
        if token == DONE then
            return finish(T, true, ...)
        elseif token == WAIT then
            T.parked = true
            return
        elseif token == EXIT then
            return terminate(T.R, T.R.code)
        end
        T.parked = true
        return S.post(T, T.seq) -- the user's own coroutine.yield(): the others first
    end
    return failed(T, token)
end

--- Run a thread until it waits or ends.
local function resume(T, ...)
    local outer_thread, outer_record = S.cur, S.R
    S.cur, S.R = T, T.R
    S.serial = S.serial + 1
    T.parked = false
    step(T, co_resume(T.co, ...))
    S.tell_fields()
    S.cur, S.R = outer_thread, outer_record
end
S.resume = resume

--- Yield to the scheduler; returns what the waker passes. The caller has left (T, seq) with the event. A yield that
--- fails (across a C function) leaves the thread unparked, and the event finds nobody.
function S.wait()
    return co_yield(WAIT)
end

--- End the handler from within (ngx.exit); does not return.
function S.exit_now(R, code)
    R.code = code
    co_yield(EXIT)
end

--- The mark to leave with an event; a wake with an older mark is void.
function S.mark(T)
    local seq = T.seq + 1
    T.seq = seq
    return seq
end

--- Resume a waiting thread at once, from an event of the loop.
function S.wake(T, seq, ...)
    if T.seq == seq and T.parked and not T.dead then
        T.seq = seq + 1
        resume(T, ...)
        return S.start_spawned()
    end
end

--- Resume a waiting thread after the running one has given up control.
function S.post(T, seq, a, b)
    tail = tail + 1
    posted[tail] = { T, seq, a, b }
end

--- Run what was posted; what is left after a few milliseconds goes on in the loop's next turn.
local function drain()
    local start
    while head <= tail do
        local item = posted[head]
        posted[head] = nil
        head = head + 1
        local T = item[1]
        if T.seq == item[2] and T.parked and not T.dead then
            T.seq = T.seq + 1
            resume(T, item[3], item[4])
            S.start_spawned()
        end
        if head % 64 == 0 then
            local now = mono()
            start = start or now
            if now - start > 4 then
                host.soon()
                return
            end
        end
    end
    head, tail = 1, 0
end
S.drain = drain

--- Resume a waiting thread in the loop's next turn.
function S.defer(T, seq)
    deferred[#deferred + 1] = { T, seq }
    host.soon()
end

--- Python: the next turn of the loop, for deferred threads and those that were left over.
function S.turn_posted()
    S.turn = 0
    S.wall = nil
    local batch = deferred
    deferred = {}
    for i = 1, #batch do
        S.post(batch[i][1], batch[i][2])
    end
    drain()
end

--- Python: run a handler. ref: a chunk; id: the request; flags: a phase of core.lua, plus KEEP when another Lua
--- phase of this request may follow, plus HEAD when the answer has no body, plus SENT when its header is decided.
--- Returns a string (output; the handler ended) and the fields that are to be told, a number (its code) or false (it
--- waits).
function S.run(ref, id, flags)
    S.turn = 0
    S.wall = nil
    local phase, keep = flags % KEEP, flags % HEAD >= KEEP
    local R = requests[id]
    local fresh = not R
    if fresh then
        R = new_record(id, phase)
        if keep then
            requests[id] = R
        end
    end
    R.phase = phase
    R.conf = confs[ref]
    R.keep = keep
    R.header_only = flags % SENT >= HEAD
    R.sync = true
    R.live = 1
    local T = take_thread(R)
    R.entry = T
    -- resume(T, chunks[ref]), in line: most handlers end in this one call, with no more than output behind them
    local outer_thread, outer_record = S.cur, S.R -- a subrequest runs within the run of its parent
    S.cur, S.R = T, R
    local serial = S.serial + 1
    S.serial = serial
    R.unsent = flags < SENT and serial
    T.parked = false
    local ok, token = co_resume(T.co, chunks[ref])
    S.cur, S.R = outer_thread, outer_record
    if token == DONE and ok and R.live == 1 then
        finish(T, true)
        if fresh and not keep and tail == 0 and not (R.socks or R.threads or R.begun or R.eof or R.abort) then
            local out, fields = taken(R.buf), S.untold_of(id)
            if R.ctx then
                S.note_for(R, R.conf, "lua release ngx.ctx at ref 1")
                R.ctx = nil
            end
            R.id, R.sent = nil, nil
            R.gen = R.gen + 1
            R.sync = false
            recorded = recorded + 1
            records[recorded] = R
            if fields then
                return out, fields
            end
            return out
        end
        S.tell_fields()
    else
        S.tell_fields()
        step(T, ok, token)
        S.start_spawned()
    end
    if tail ~= 0 and not outer_thread then
        drain()
    end
    R.sync = false
    if R.live == 0 then
        return result(R)
    end
    requests[id] = R
    if #R.buf >= 1460 then -- as much as nginx's postpone_output lets wait
        S.pass_output(R)
    end
    return false
end
