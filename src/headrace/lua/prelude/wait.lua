-- What a thread can wait for beside other threads: time and the readiness of descriptors.
--
-- Time: one binary heap of entries {at, fn, a, b} in milliseconds (CLOCK_MONOTONIC); one timer of the loop is
-- armed for the earliest. A cancelled entry stays until its time, or until the dead outnumber the living.
-- Readiness: a descriptor stays registered with the loop across waits; when readiness fires and nobody waits,
-- it is removed (readiness is level-triggered). A socket is {fd, rwait = T, rseq, rdead, rreg, wwait, ...}.
local S, host = ...
local mono, mark, wait, wake = S.mono, S.mark, S.wait, S.wake

local heap, size, dead = {}, 0, 0
local armed = math.huge

local function up(i, entry)
    while i > 1 do
        local j = (i - i % 2) / 2
        local parent = heap[j]
        if parent.at <= entry.at then
            break
        end
        heap[i] = parent
        i = j
    end
    heap[i] = entry
end

local function down(i, entry)
    while true do
        local j = i * 2
        if j > size then
            break
        end
        local child = heap[j]
        if j < size and heap[j + 1].at < child.at then
            j = j + 1
            child = heap[j]
        end
        if entry.at <= child.at then
            break
        end
        heap[i] = child
        i = j
    end
    heap[i] = entry
end

local function arm(now)
    local first = heap[1]
    if not first then
        armed = math.huge
    elseif first.at < armed then
        armed = first.at
        local delay = (armed - now) * 1e-3
        host.arm(delay > 0 and delay or 0)
    end
end

--- Call fn(a, b) at a time in ms; returns the entry, to be cancelled with S.cancel(). A time that is not a number
--- (every comparison with it is false) would disorder the whole heap: it is at once.
function S.at(at, fn, a, b)
    if at ~= at then
        at = 0
    end
    local entry = { at = at, fn = fn, a = a, b = b }
    size = size + 1
    up(size, entry)
    if heap[1] == entry then
        arm(mono())
    end
    return entry
end
local at = S.at

local function compact()
    local living, n = {}, 0
    for i = 1, size do
        local entry = heap[i]
        if entry.fn then
            n = n + 1
            living[n] = entry
        end
    end
    heap, size, dead = living, n, 0
    for i = math.floor(n / 2), 1, -1 do
        down(i, heap[i])
    end
end

--- Void an entry of S.at().
function S.cancel(entry)
    if entry.fn then
        entry.fn, entry.a, entry.b = nil, nil, nil
        dead = dead + 1
        if dead > 512 and dead * 2 > size then
            compact()
        end
    end
end

--- Python: the armed time has come.
function S.tick()
    S.turn = 0
    S.wall = nil
    armed = math.huge
    local now = mono()
    local limit = now + 0.5 -- the loop's clock counts whole milliseconds
    while size > 0 and heap[1].at <= limit do
        local entry = heap[1]
        local last = heap[size]
        heap[size] = nil
        size = size - 1
        if size > 0 then
            down(1, last)
        end
        local fn = entry.fn
        if fn then
            entry.fn = nil
            fn(entry.a, entry.b, entry)
        else
            dead = dead - 1
        end
    end
    S.drain()
    arm(mono())
end

--- How many entries wait, for the metrics.
function S.pending_entries()
    return size - dead
end

--- What an entry calls to end a wait without a value.
function S.expire(T, seq)
    return wake(T, seq)
end

--- Wait some milliseconds.
function S.sleep(ms)
    local T = S.cur
    local entry = at(mono() + ms, S.expire, T, mark(T))
    if S.noting() then
        return S.noted_sleep(T, ms, entry)
    end
    wait()
end

-- readiness

local sockets = {} -- fd -> socket
S.sockets = sockets

local function read_deadline(sock, _, entry)
    if sock.rtimer ~= entry then
        return
    end
    sock.rtimer = nil
    local T = sock.rwait
    if not T then
        return
    end
    if sock.rdead > mono() + 0.5 then
        sock.rtimer = at(sock.rdead, read_deadline, sock)
        return
    end
    sock.rwait = nil
    wake(T, sock.rseq, "timeout")
end

local function write_deadline(sock, _, entry)
    if sock.wtimer ~= entry then
        return
    end
    sock.wtimer = nil
    local T = sock.wwait
    if not T then
        return
    end
    if sock.wdead > mono() + 0.5 then
        sock.wtimer = at(sock.wdead, write_deadline, sock)
        return
    end
    sock.wwait = nil
    wake(T, sock.wseq, "timeout")
end

--- Wait until a socket is readable: nil, or "timeout", or the word of who ended the wait.
function S.wait_readable(sock, timeout)
    local T = S.cur
    if not sock.rreg then
        sock.rreg = true
        sockets[sock.fd] = sock
        host.watch(sock.fd)
    end
    sock.rwait, sock.rseq = T, mark(T)
    local dead_at = mono() + timeout
    sock.rdead = dead_at
    local timer = sock.rtimer
    if not timer then
        sock.rtimer = at(dead_at, read_deadline, sock)
    elseif timer.at > dead_at then
        S.cancel(timer)
        sock.rtimer = at(dead_at, read_deadline, sock)
    end
    S.stats.parks = S.stats.parks + 1
    return wait()
end

--- Wait until a socket is writable: nil or "timeout".
function S.wait_writable(sock, timeout)
    local T = S.cur
    if not sock.wreg then
        sock.wreg = true
        sockets[sock.fd] = sock
        host.watch_write(sock.fd)
    end
    sock.wwait, sock.wseq = T, mark(T)
    local dead_at = mono() + timeout
    sock.wdead = dead_at
    local timer = sock.wtimer
    if not timer then
        sock.wtimer = at(dead_at, write_deadline, sock)
    elseif timer.at > dead_at then
        S.cancel(timer)
        sock.wtimer = at(dead_at, write_deadline, sock)
    end
    S.stats.parks = S.stats.parks + 1
    return wait()
end

--- Python: a descriptor is readable.
function S.on_readable(fd)
    S.turn = 0
    S.wall = nil
    local sock = sockets[fd]
    local T = sock and sock.rwait
    if T then
        sock.rwait = nil
        wake(T, sock.rseq)
        S.drain()
        return
    end
    host.unwatch(fd)
    if sock then
        sock.rreg = false
        if sock.on_idle then
            sock.on_idle(sock)
        end
    end
end

--- Python: a descriptor is writable.
function S.on_writable(fd)
    S.turn = 0
    S.wall = nil
    host.unwatch_write(fd)
    local sock = sockets[fd]
    if not sock then
        return
    end
    sock.wreg = false
    local T = sock.wwait
    if T then
        sock.wwait = nil
        wake(T, sock.wseq)
        S.drain()
    end
end

--- Take a descriptor from the loop; always before it is closed or handed to another owner.
function S.forget_fd(sock)
    local fd = sock.fd
    if sock.rreg then
        sock.rreg = false
        host.unwatch(fd)
    end
    if sock.wreg then
        sock.wreg = false
        host.unwatch_write(fd)
    end
    if sock.rtimer then
        S.cancel(sock.rtimer)
        sock.rtimer = nil
    end
    if sock.wtimer then
        S.cancel(sock.wtimer)
        sock.wtimer = nil
    end
    sockets[fd] = nil
end

--- Give the loop a turn, then go on.
function S.give_turn()
    local T = S.cur
    S.defer(T, mark(T))
    S.stats.turns = S.stats.turns + 1
    return wait()
end
