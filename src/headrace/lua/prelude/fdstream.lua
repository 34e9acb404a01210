-- Streams over descriptors that are not sockets (pipes): a buffer, whole reads and writes, one reader and one writer.
local S = ...
local ffi, C = S.ffi, S.C
local buffer = require "string.buffer"
local tonumber = tonumber
local EAGAIN, EINTR, EPIPE = 11, 4, 32

ffi.cdef [[
ssize_t hr_read(int fd, void *buf, size_t len) __asm__("read");
ssize_t hr_write(int fd, const void *buf, size_t len) __asm__("write");
]]

--- A stream over a descriptor, which it owns.
function S.stream(fd)
    return { fd = fd, rb = buffer.new() }
end

--- Whether a thread still waits for what it left `seq` for.
function S.still_waits(T, seq)
    return T and not T.dead and T.seq == seq
end

local waits = S.still_waits

--- Close a stream (nil: nothing is done); who waits for it is told `why`.
function S.close_stream(stream, why)
    if not stream or stream.closed then
        return
    end
    stream.closed = true
    local T, seq = stream.rwait, stream.rseq
    if not T then
        T, seq = stream.wwait, stream.wseq
    end
    S.forget_fd(stream)
    stream.rwait, stream.wwait = nil, nil
    C.hr_close(stream.fd)
    if waits(T, seq) then
        S.post(T, seq, why)
        S.soon()
    end
end

-- Read once: a number of bytes (0 at the end), or nil and why.
local function fill(stream, size, timeout)
    while true do
        local ptr, cap = stream.rb:reserve(size)
        local n = tonumber(C.hr_read(stream.fd, ptr, cap))
        if n > 0 then
            stream.rb:commit(n)
            return n
        elseif n == 0 then
            stream.eof = true
            return 0
        end
        local number = ffi.errno()
        if number == EAGAIN then
            local why = S.wait_readable(stream, timeout)
            if why then
                return nil, why
            end
        elseif number ~= EINTR then
            return nil, S.error_words(number)
        end
    end
end

local readers = {}

function readers.all(stream)
    return stream.eof and #stream.rb or nil
end

function readers.bytes(stream, len)
    return #stream.rb >= len and len or nil
end

function readers.any(stream, max)
    local n = #stream.rb
    return n > 0 and (n < max and n or max) or nil
end

function readers.line(stream)
    local ptr, n = stream.rb:ref()
    local seen = stream.seen or 0
    local found = n > seen and C.hr_memchr(ptr + seen, 10, n - seen) or nil
    if found ~= nil then
        stream.seen = nil
        return ffi.cast("uint8_t *", found) - ptr
    end
    stream.seen = n
    return nil
end

local function bare(text)
    return (text:gsub("\r", ""))
end


--- Read from a stream: kind "all", "bytes" (amount of them), "line" or "any" (at most amount). size: bytes of a read;
--- timeout: milliseconds of each wait. Returns the data, or nil, why and what there was.
function S.read_stream(stream, kind, amount, size, timeout)
    stream.rwait = nil
    local reader, rb = readers[kind], stream.rb
    while true do
        local n, why = reader(stream, amount), nil
        if n then
            local data = rb:get(n)
            if kind == "line" then
                rb:skip(1)
                data = bare(data)
            end
            return data
        end
        why = "closed"
        if not stream.eof then
            n, why = fill(stream, size, timeout)
        end
        if not n then
            stream.seen = nil
            local partial = rb:get()
            return nil, why, kind == "line" and bare(partial) or partial
        end
    end
end

--- Write all of a string: its length, or nil and why.
function S.write_stream(stream, data, timeout)
    stream.wwait = nil
    local base, sent, size = ffi.cast("const char *", data), 0, #data
    while sent < size do
        local n = tonumber(C.hr_write(stream.fd, base + sent, size - sent))
        if n >= 0 then
            sent = sent + n
        else
            local number = ffi.errno()
            if number == EAGAIN then
                local why = S.wait_writable(stream, timeout)
                if why then
                    return nil, why
                end
            elseif number == EPIPE then
                return nil, "closed"
            elseif number ~= EINTR then
                return nil, S.error_words(number)
            end
        end
    end
    return size
end
