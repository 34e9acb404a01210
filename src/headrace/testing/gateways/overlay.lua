-- What stands in for the system below the Lua side in a test: the clock is the test's, and a connection leads to what
-- the test put at its address. Everything else of a descriptor is the system's, so that cosockets are as always.
local S, host = ...
local ffi, system = S.ffi, S.C
local ECONNREFUSED = 111

ffi.cdef "int hr_dup2(int from, int to) __asm__(\"dup2\");"

local function clock_gettime(clock, now)
    local seconds = clock == 0 and host.test_wall() or host.test_mono()
    now.sec = math.floor(seconds)
    now.nsec = math.floor((seconds - math.floor(seconds)) * 1e9)
    return 0
end

local function named(address)
    if ffi.istype("struct hr_sockaddr_un", address) then
        return "unix:" .. ffi.string(address.path)
    end
    local port = address.port[0] * 256 + address.port[1]
    local bytes = {}
    if ffi.istype("struct hr_sockaddr_in", address) then
        for i = 0, 3 do
            bytes[i + 1] = address.address[i]
        end
        return table.concat(bytes, ".") .. ":" .. port
    end
    for i = 0, 15, 2 do
        bytes[#bytes + 1] = ("%x"):format(address.address[i] * 256 + address.address[i + 1])
    end
    return "[" .. table.concat(bytes, ":") .. "]:" .. port
end

local number, length = ffi.new("int[1]"), ffi.new("unsigned int[1]")

local function connect(fd, address)
    length[0] = 4
    system.hr_getsockopt(fd, 1, 3, number, length) -- SOL_SOCKET, SO_TYPE
    local peer = host.test_connect(named(address), number[0])
    if peer < 0 then
        ffi.errno(ECONNREFUSED)
        return -1
    end
    system.hr_dup2(peer, fd)
    system.hr_close(peer)
    return 0
end

S.C = setmetatable({ hr_clock_gettime = clock_gettime, hr_connect = connect }, { __index = system })

function S.mono()
    return host.test_mono() * 1000
end
