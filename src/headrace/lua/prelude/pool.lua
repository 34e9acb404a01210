-- Idle connections, kept for the next connect to the same place.
--
-- A pool has a name ("host:port", "unix:path" or the user's), a size, the number of its connections in use and
-- idle (counted only when a backlog limits them), the idle ones (latest last) and who waits for a free place.
-- An idle connection belongs to its pool alone: bytes or EOF while idle close it, and so does its timeout.
-- What is kept of a connection (its item) stays with it while it is used, with the entries of its timers: those move
-- when they come too early, so that taking and keeping a connection arms none.
local S = ...
local ffi, C, stats = S.ffi, S.C, S.stats
local MSG_PEEK_DONTWAIT = 0x42
local EAGAIN = 11
local peeked = ffi.new("char[1]")

local pools = {}
S.pools = pools

local function pool_for(name, size, backlog)
    local pool = pools[name]
    if not pool then
        pool = {
            name = name, size = size, backlog = backlog, idle = {}, connections = 0, waiting = {}, first = 1,
            opened = 0, reused = 0, stale = 0,
        }
        S.note('lua tcp socket keepalive create connection pool for key "', name, '"')
        pools[name] = pool
    end
    return pool
end
S.pool_for = pool_for

-- Let the longest waiting connect of a limited pool go on.
local function next_waiter(pool)
    local waiting = pool.waiting
    while waiting[pool.first] do
        local item = waiting[pool.first]
        waiting[pool.first] = nil
        pool.first = pool.first + 1
        if not item.T.dead and item.T.seq == item.seq then
            S.cancel(item.entry)
            S.post(item.T, item.seq, true)
            S.soon()
            return
        end
    end
    if pool.connections == 0 and #pool.idle == 0 then
        S.note('lua tcp socket keepalive: free connection pool for "', pool.name, '"')
        pools[pool.name] = nil
    end
end

--- A connection that was counted in a pool is gone.
function S.leave_pool(pool)
    pool.connections = pool.connections - 1
    next_waiter(pool)
end

local function remove_idle(pool, item)
    local idle = pool.idle
    for i = #idle, 1, -1 do
        if idle[i] == item then
            table.remove(idle, i)
            return
        end
    end
end

local function discard(item)
    local pool = item.pool
    remove_idle(pool, item)
    if item.timer then
        S.cancel(item.timer)
        item.timer = nil
    end
    item.due = nil
    S.close_fd(item)
    stats.discarded = stats.discarded + 1
    pool.stale = pool.stale + 1
    S.leave_pool(pool)
end

-- Whether a connection is quiet; else false and what there is: "closed", or nil for bytes and errors.
local function alive(item)
    if item.tls then
        return S.tls_quiet(item)
    end
    local n = tonumber(C.hr_recv(item.fd, peeked, 1, MSG_PEEK_DONTWAIT))
    if n < 0 then
        return ffi.errno() == EAGAIN
    end
    return false, n == 0 and "closed" or nil
end

local function outdated(item, _, entry)
    if item.timer ~= entry then
        return
    end
    item.timer = nil
    local due = item.due
    if not due then
        return -- it is in use
    elseif due > S.mono() + 0.5 then
        item.timer = S.at(due, outdated, item)
        return
    end
    S.note("lua tcp socket keepalive max idle timeout")
    return discard(item)
end

local function limit(item, timeout)
    local due = S.mono() + timeout
    item.due = due
    local timer = item.timer
    if not timer then
        item.timer = S.at(due, outdated, item)
    elseif timer.at > due then
        S.cancel(timer)
        item.timer = S.at(due, outdated, item)
    end
end

--- An idle connection of a pool, taken over by sock; true when there was one that still lives.
function S.take_idle(pool, sock)
    local idle = pool.idle
    while #idle > 0 do
        local item = idle[#idle]
        -- the loop watches it and would have said so: asking would find out no more than a turn earlier
        if item.rreg and not item.tls or alive(item) then
            idle[#idle] = nil
            item.due = nil
            sock.kept = item
            sock.fd, sock.rreg, sock.tls, sock.via = item.fd, item.rreg, item.tls, item.via
            local timer = item.rtimer
            if timer then
                item.rtimer, sock.rtimer, timer.a = nil, timer, sock
            end
            sock.reused = item.reused + 1
            S.note("lua tcp socket get keepalive peer: using connection ", sock.fd)
            if sock.rreg then
                S.sockets[sock.fd] = sock
            end
            stats.reused = stats.reused + 1
            pool.reused = pool.reused + 1
            return true
        end
        discard(item)
    end
    return false
end

--- Wait for a place in a limited pool: true, or nil and the words of the error.
function S.wait_place(pool, timeout)
    local count = 0
    for _ in pairs(pool.waiting) do
        count = count + 1
    end
    if count >= pool.backlog then
        return nil, "too many waiting connect operations"
    end
    local T = S.cur
    local item = { T = T, seq = S.mark(T) }
    item.entry = S.at(S.mono() + timeout, S.expire, T, item.seq)
    local last = pool.first
    while pool.waiting[last] do
        last = last + 1
    end
    pool.waiting[last] = item
    if S.wait() then
        return true
    end
    return nil, "timeout"
end

--- Put the connection of sock to rest; returns false and the words of the error when bytes or EOF are already there.
function S.put_idle(pool, sock, timeout)
    local item = sock.kept or { on_idle = discard }
    item.fd, item.rreg, item.tls, item.via = sock.fd, sock.rreg, sock.tls, sock.via
    item.reused, item.pool = sock.reused, pool
    local quiet, why = alive(item)
    if not quiet then
        return false, why or "connection in dubious state"
    end
    if sock.wreg then
        S.forget_fd(sock)
        item.rreg = false
    else
        local timer = sock.rtimer
        if timer then
            sock.rtimer, item.rtimer, timer.a = nil, timer, item
        end
    end
    if sock.pool ~= pool then
        pool.connections = pool.connections + 1
        pool.opened = pool.opened + 1
        if sock.pool then
            S.leave_pool(sock.pool)
        end
    end
    sock.fd, sock.rreg, sock.tls, sock.via, sock.pool, sock.kept = nil, false, nil, nil, nil, nil
    S.sockets[item.fd] = item
    if not item.rreg then
        item.rreg = true
        S.watch(item.fd)
    end
    if #pool.idle >= pool.size then
        discard(pool.idle[1])
    end
    pool.idle[#pool.idle + 1] = item
    if timeout > 0 then
        limit(item, timeout)
    end
    next_waiter(pool)
    return true
end

--- Python: of each pool, at most 500: name, idle, in use, opened, reused, discarded, ...
function S.pool_figures()
    local list = {}
    for name, pool in pairs(pools) do
        local n = #list
        if n >= 3000 then
            break
        end
        list[n + 1], list[n + 2], list[n + 3] = name, #pool.idle, pool.connections - #pool.idle
        list[n + 4], list[n + 5], list[n + 6] = pool.opened, pool.reused, pool.stale
    end
    return unpack(list)
end

--- Close all idle connections (the worker ends).
function S.close_pools()
    for _, pool in pairs(pools) do
        while #pool.idle > 0 do
            discard(pool.idle[#pool.idle])
        end
    end
end
