-- Bytes in and out of a socket's descriptor, without blocking: the hot path of cosockets.
--
-- A read that finds nothing is tried again for a while before the thread parks: parking and waking cost more
-- than a fast peer needs to answer. The retry is adaptive: each socket carries credit that a paid retry raises
-- and a vain one lowers, and leaves it to the next one to the same place; without credit a socket parks at once
-- and retries only now and then. sched_yield between
-- tries lets a peer on the same core run. Neighbours are safe: before it and every few tries the loop's own epoll
-- descriptor is looked at, and a thread that has run for TURN ms without the loop gives it a turn.
-- Settings: lua_socket_spin_time (microseconds, 0 = off), lua_socket_turn_time (milliseconds).
local S, host = ...
local ffi, C, mono, stats = S.ffi, S.C, S.mono, S.stats
local tonumber = tonumber
local hr_recv, hr_send = C.hr_recv, C.hr_send
local EINTR, EAGAIN = 4, 11
local MSG_NOSIGNAL = 0x4000
local CREDIT, CHECK, YIELD = 8, 64, 64

local pollfd = ffi.new("struct hr_pollfd[1]")
pollfd[0].fd = -1
pollfd[0].events = 1
local spin_ms, turn_ms = 0.05, 4
local ops = 0
S.turn = 0

-- The credit with which a connection to a place begins: what the last one to it ended with. One in PROBE of those
-- without credit gets some, for a place may have become fast.
local PROBE, PLACES = 64, 1024
local credits, places, probes = {}, 0, 0

--- Give a socket the credit of its place, when it is connected.
function S.take_credit(sock)
    local credit = credits[sock.key] or CREDIT / 2
    if credit == 0 then
        probes = probes + 1
        if probes % PROBE == 0 then
            credit = 1
        end
    end
    sock.credit, sock.vain, sock.skipped, sock.unyielding = credit, 4, 0, 0
end

--- Remember the credit of a socket for its place, when its connection is closed or put to rest.
function S.keep_credit(sock)
    local key = sock.key
    if credits[key] == nil then
        places = places + 1
        if places > PLACES then
            credits, places = {}, 1
        end
    end
    credits[key] = sock.credit
end

--- Python: the loop's descriptor (-1: unknown), the bound of a retry in microseconds, the longest run in ms.
function S.set_spin(epoll_fd, spin_us, turn)
    pollfd[0].fd = epoll_fd
    spin_ms = spin_us * 1e-3
    turn_ms = turn
end

-- True when others wait for the loop, or the loop's timers have waited long enough.
local function loop_wanted()
    local turn = S.turn
    local now = mono()
    if turn == 0 then
        S.turn = now
    elseif now - turn > turn_ms then
        return true
    end
    return C.hr_poll(pollfd, 1, 0) > 0
end

--- Count one operation; every CHECK of them the loop gets a turn if it has work.
function S.count_op()
    ops = ops + 1
    if ops >= CHECK then
        ops = 0
        if loop_wanted() and S.cur then
            S.give_turn()
            S.turn = 0
        end
    end
end

-- Try a read again until it has an answer or the retry is used up; n as recv() gives it, errno when n < 0.
-- The first try comes after a sched_yield, which is all that a peer on the same core needs; where that does not
-- pay (the peer runs elsewhere, and others would take the core) it is left out for the next YIELD retries.
local function spin(sock, ptr, cap)
    stats.spins = stats.spins + 1
    local fd = sock.fd
    local limit = mono() + spin_ms
    local tries = 0
    local unyielding = sock.unyielding
    if unyielding > 0 then
        sock.unyielding = unyielding - 1
    else
        C.hr_sched_yield()
    end
    while true do
        local n = tonumber(hr_recv(fd, ptr, cap, 0))
        if n < 0 and tries % 16 == 15 and C.hr_poll(pollfd, 1, 0) > 0 then
            n = tonumber(hr_recv(fd, ptr, cap, 0)) -- our own bytes may be what the loop sees
            if n < 0 then
                return n, ffi.errno()
            end
        end
        if n >= 0 then
            stats.spins_paid = stats.spins_paid + 1
            local credit = sock.credit + 1
            sock.credit = credit < CREDIT and credit or CREDIT
            sock.vain = 4
            if unyielding <= 0 then
                sock.unyielding = tries == 0 and 0 or YIELD
            end
            return n, 0
        end
        local number = ffi.errno()
        if number ~= EAGAIN and number ~= EINTR then
            return n, number
        end
        tries = tries + 1
        if tries % 4 == 0 and mono() > limit then
            local credit = sock.credit - 2
            sock.credit = credit > 0 and credit or 0
            return -1, EAGAIN
        end
    end
end

-- Where others wait for the loop a retry would only keep them waiting: the thread parks at once, and so do the next
-- CROWD that find nothing.
local CROWD = 16
local crowd = 0

local function worth_a_spin(sock)
    if spin_ms <= 0 then
        return false
    end
    if crowd > 0 then
        crowd = crowd - 1
        return false
    end
    if C.hr_poll(pollfd, 1, 0) > 0 then
        crowd = CROWD
        return false
    end
    if sock.credit > 0 then
        return true
    end
    local skipped = sock.skipped + 1
    if skipped >= sock.vain then
        sock.skipped = 0
        sock.vain = sock.vain < 512 and sock.vain * 2 or 512
        return true
    end
    sock.skipped = skipped
    return false
end

-- recv found nothing: retry, park, try again. Returns the number of bytes in the buffer's reserve, or nil, error.
local function fill_slow(sock, ptr, cap, number)
    sock.reader = S.cur
    while true do
        if number == EAGAIN then
            local n
            if worth_a_spin(sock) then
                n, number = spin(sock, ptr, cap)
            else
                n = -1
            end
            if n < 0 and number == EAGAIN then
                local why = S.wait_readable(sock, sock.read_timeout)
                if why then
                    sock.reader = nil
                    return nil, why
                end
                n = tonumber(hr_recv(sock.fd, ptr, cap, 0))
                number = n < 0 and ffi.errno() or 0
            end
            if n >= 0 then
                sock.reader = nil
                return n
            end
        elseif number == EINTR then
            local n = tonumber(hr_recv(sock.fd, ptr, cap, 0))
            number = n < 0 and ffi.errno() or 0
            if n >= 0 then
                sock.reader = nil
                return n
            end
        else
            sock.reader = nil
            return nil, S.strerror(number)
        end
    end
end

local fill_plain

--- Read once into the socket's buffer, at least one byte: returns their number, or nil and
--- "timeout", "closed" or the words of the error.
function S.fill(sock, want)
    local via = sock.via -- the way of a socket whose bytes are not those of its descriptor
    if via then
        return via.fill(sock, want)
    end
    return fill_plain(sock, want)
end

--- fill() of the descriptor itself.
function fill_plain(sock, want)
    local room = sock.buffer_size
    local ptr, cap = sock.rb:reserve(want > room and want or room)
    local n = tonumber(hr_recv(sock.fd, ptr, cap, 0))
    if n < 0 then
        local why
        n, why = fill_slow(sock, ptr, cap, ffi.errno())
        if not n then
            return nil, why
        end
    end
    ops = ops + 1
    if ops >= CHECK then
        ops = 0
        if loop_wanted() and S.cur then
            sock.reader = S.cur
            sock.rb:commit(n)
            S.give_turn()
            sock.reader = nil
            S.turn = 0
            if n == 0 then
                return nil, "closed"
            end
            return n
        end
    end
    if n == 0 then
        return nil, "closed"
    end
    sock.rb:commit(n)
    return n
end

S.fill_plain = fill_plain

-- The kernel took less than all: the rest is the socket's chain, sent as the peer makes room.
local function send_slow(sock, data, sent)
    sock.writer = S.cur
    local size = #data
    local base = ffi.cast("const char *", data)
    while true do
        local why = S.wait_writable(sock, sock.send_timeout)
        if why then
            sock.writer = nil
            return nil, why
        end
        local n = tonumber(hr_send(sock.fd, base + sent, size - sent, MSG_NOSIGNAL))
        if n >= 0 then
            sent = sent + n
            if sent == size then
                sock.writer = nil
                return size
            end
        else
            local number = ffi.errno()
            if number ~= EAGAIN and number ~= EINTR then
                sock.writer = nil
                return nil, S.strerror(number)
            end
        end
    end
end

local send_plain

--- Send all of a string: returns its length, or nil and "timeout" or the words of the error.
function S.drain_out(sock, data)
    local via = sock.via
    if via then
        return via.send(sock, data)
    end
    return send_plain(sock, data)
end

--- drain_out() of the descriptor itself.
function send_plain(sock, data)
    if stats.chain_peak == 0 then
        stats.chain_peak = 1 -- a cosocket's chain is the one string that send() is about
    end
    local size = #data
    local n = tonumber(hr_send(sock.fd, data, size, MSG_NOSIGNAL))
    if n == size then
        return n
    end
    if n < 0 then
        local number = ffi.errno()
        if number ~= EAGAIN and number ~= EINTR then
            return nil, S.strerror(number)
        end
        n = 0
    end
    return send_slow(sock, data, n)
end
S.send_plain = send_plain

--- The fill() of a way whose bytes the host has. next(id) gives bytes, or nil and why there are none, or nothing: then
--- they are told to the thread that `waits` has for the id, and stop(id) takes the question back.
function S.fill_from_host(waits, next, stop)
    return function(sock, _, timeout)
        local id = sock.rid
        local bytes, why = next(id)
        if not bytes and not why then
            local T = S.cur
            sock.reader = T
            local seq = S.mark(T)
            waits[id] = { T, seq }
            local entry = S.at(S.mono() + (timeout or sock.read_timeout), S.expire, T, seq)
            bytes, why = S.wait()
            S.cancel(entry)
            sock.reader = nil
            if not bytes and not why then
                waits[id] = nil
                stop(id)
                return nil, "timeout"
            end
        end
        if not bytes then
            return nil, why
        end
        sock.rb:put(bytes)
        S.count_op()
        return #bytes
    end
end
