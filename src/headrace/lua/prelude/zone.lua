-- Memory that workers share, as a table of keys: one lock, an allocator (heap.lua), a hash and a list in the order of
-- use. Everything in the mapping is an index of 16-byte units from its start, never a pointer. The lock is a robust mutex: when its holder died, the zone may be half changed, so it is wiped.
-- Nothing that can raise, wait or run user code happens while it is held; a finalizer that runs there and comes back
-- to the same zone is refused.
--
-- A block by 32-bit words (w = unit * 4; w and w+1 are the allocator's):
--   node: w+2 next in its bucket, w+3 hash, w+4 newer, w+5 older, w+6 kind, w+7 user flags, w+8..9 when it expires
--         (double, ms, 0: never), w+10..11 number (double) or w+10 bytes of the value or first and w+11 last of a list,
--         w+12 bytes of the key, w+13 values in the list; from byte 64 on the key, then the value
--   value of a list: w+2 next, w+3 previous, w+4 kind, w+5 bytes, w+6..7 number; from byte 32 on the bytes
local S = ...
local ffi, C, bit = S.ffi, S.C, require "bit"
local take, give, link, W_FREE = S.heap.take, S.heap.give, S.heap.link, S.heap.W_FREE
local floor, type, setmetatable, assert = math.floor, type, setmetatable, assert
local bxor, lshift, rshift, tobit, band = bit.bxor, bit.lshift, bit.rshift, bit.tobit, bit.band

ffi.cdef [[
int hr_mutexattr_init(void *attr) __asm__("pthread_mutexattr_init");
int hr_mutexattr_setpshared(void *attr, int shared) __asm__("pthread_mutexattr_setpshared");
int hr_mutexattr_setrobust(void *attr, int robust) __asm__("pthread_mutexattr_setrobust");
int hr_mutex_init(void *mutex, const void *attr) __asm__("pthread_mutex_init");
int hr_mutex_lock(void *mutex) __asm__("pthread_mutex_lock");
int hr_mutex_unlock(void *mutex) __asm__("pthread_mutex_unlock");
int hr_mutex_consistent(void *mutex) __asm__("pthread_mutex_consistent");
int hr_memcmp(const void *a, const void *b, size_t n) __asm__("memcmp");
]]

local MAGIC = 0x48525A31
local OWNER_DIED = 130 -- EOWNERDEAD
-- The words of the zone itself; the mutex has the first 128 bytes.
local W_MAGIC, W_UNITS, W_FIRST = 32, 33, 35
local W_MASK, W_NEWEST, W_OLDEST, W_COUNT, W_WIPED = 36, 37, 38, 39, 40
local HEAD_UNITS = 20 -- with the lists of the allocator
local NODE_BYTES, ITEM_BYTES = 64, 32

local Zone = {}
Zone.__index = Zone
S.Zone = Zone

-- the zone

local function lay_out(words, size)
    local units = floor(size / 16)
    local buckets = 64
    while buckets < size / 256 and buckets < 2 ^ 22 do
        buckets = buckets * 2
    end
    ffi.fill(words + 32, HEAD_UNITS * 16 - 128 + buckets * 4)
    local first = HEAD_UNITS + buckets / 4
    words[W_UNITS], words[W_FIRST], words[W_MASK] = units, first, buckets - 1
    local free = units - first - 1
    words[first * 4], words[first * 4 + 1] = free * 2, 0
    words[(units - 1) * 4], words[(units - 1) * 4 + 1] = 1, free -- the end, in use for ever
    words[W_FREE] = free
    link(words, first, free)
    words[W_MAGIC] = MAGIC
end

--- Attach to a mapping; a new one (zeroes) is laid out first, which happens before workers fork.
function Zone.attach(name, address, size)
    local base = ffi.cast("uint8_t *", address)
    local words = ffi.cast("uint32_t *", base)
    if words[W_MAGIC] ~= MAGIC then
        local attr = ffi.new("char[64]")
        C.hr_mutexattr_init(attr)
        C.hr_mutexattr_setpshared(attr, 1)
        C.hr_mutexattr_setrobust(attr, 1)
        C.hr_mutex_init(base, attr)
        lay_out(words, size)
    end
    return setmetatable({
        name = name, size = size, base = base, words = words, doubles = ffi.cast("double *", base), held = false,
    }, Zone)
end

--- Take the lock. False when this process holds it already: a finalizer came back to the zone.
function Zone:lock()
    if self.held then
        return false
    end
    if C.hr_mutex_lock(self.base) == OWNER_DIED then
        C.hr_mutex_consistent(self.base)
        local wiped = self.words[W_WIPED]
        lay_out(self.words, self.size)
        self.words[W_WIPED] = wiped + 1
        self.wiped = true
    end
    self.held = true
    return true
end

function Zone:unlock()
    self.held = false
    C.hr_mutex_unlock(self.base)
    if self.wiped then
        self.wiped = nil
        S.ngx.log(S.ngx.ALERT, "a process died while it changed the shared dictionary \"", self.name,
            "\": it was emptied")
    end
end

local function hash_of(key)
    local hash = #key
    for i = 1, #key do
        hash = tobit(hash + key:byte(i))
        hash = tobit(hash + lshift(hash, 10))
        hash = bxor(hash, rshift(hash, 6))
    end
    hash = tobit(hash + lshift(hash, 3))
    hash = bxor(hash, rshift(hash, 11))
    return tobit(hash + lshift(hash, 15))
end
Zone.hash = hash_of

local function bucket_of(words, hash)
    return HEAD_UNITS * 4 + band(hash, words[W_MASK])
end

--- The node of a key, 0 when there is none.
function Zone:find(key, hash)
    local words = self.words
    local at = words[bucket_of(words, hash)]
    local unsigned = hash % 4294967296
    while at ~= 0 do
        local w = at * 4
        if words[w + 3] == unsigned and words[w + 12] == #key
            and C.hr_memcmp(self.base + (at * 16 + NODE_BYTES), key, #key) == 0 then
            return at
        end
        at = words[w + 2]
    end
    return 0
end

local function queue_out(words, at)
    local newer, older = words[at * 4 + 4], words[at * 4 + 5]
    if newer ~= 0 then
        words[newer * 4 + 5] = older
    else
        words[W_NEWEST] = older
    end
    if older ~= 0 then
        words[older * 4 + 4] = newer
    else
        words[W_OLDEST] = newer
    end
end

local function queue_in(words, at)
    local newest = words[W_NEWEST]
    words[at * 4 + 4], words[at * 4 + 5] = 0, newest
    if newest ~= 0 then
        words[newest * 4 + 4] = at
    else
        words[W_OLDEST] = at
    end
    words[W_NEWEST] = at
end

--- A node was used: it is the last to be evicted.
function Zone:touch(at)
    local words = self.words
    if words[W_NEWEST] ~= at then
        queue_out(words, at)
        queue_in(words, at)
    end
end

function Zone:free_items(at)
    local words = self.words
    local item = words[at * 4 + 10]
    while item ~= 0 do
        local following = words[item * 4 + 2]
        give(words, item)
        item = following
    end
end

--- Remove a node and all it holds.
function Zone:remove(at)
    local words = self.words
    local w = at * 4
    local place = bucket_of(words, words[w + 3])
    local one, before = words[place], 0
    while one ~= at do
        before, one = one, words[one * 4 + 2]
    end
    if before == 0 then
        words[place] = words[w + 2]
    else
        words[before * 4 + 2] = words[w + 2]
    end
    queue_out(words, at)
    if words[w + 6] == Zone.LIST then
        self:free_items(at)
    end
    give(words, at)
    words[W_COUNT] = words[W_COUNT] - 1
end

Zone.BOOLEAN, Zone.NUMBER, Zone.STRING, Zone.LIST = 1, 3, 4, 5
local EVICT = 30 -- nodes that are thrown out for one that comes

--- Throw the oldest node out; returns whether there was one, and whether it had not expired.
function Zone:evict(now)
    local oldest = self.words[W_OLDEST]
    if oldest == 0 then
        return false, false
    end
    local expires = self.doubles[oldest * 2 + 4]
    self:remove(oldest)
    return true, expires == 0 or expires > now
end

--- Remove up to two of the oldest nodes that have expired.
function Zone:sweep(now)
    for _ = 1, 2 do
        local oldest = self.words[W_OLDEST]
        if oldest == 0 then
            return
        end
        local expires = self.doubles[oldest * 2 + 4]
        if expires == 0 or expires > now then
            return
        end
        self:remove(oldest)
    end
end

--- Room for a block; safe: nothing is thrown out for it. Returns the block (0: none) and whether nodes had to go.
function Zone:room(bytes, now, safe)
    local at = take(self.words, bytes)
    local forced = false
    if at == 0 and not safe then
        for _ = 1, EVICT do
            local some, living = self:evict(now)
            forced = forced or living
            if not some then
                break
            end
            at = take(self.words, bytes)
            if at ~= 0 then
                break
            end
        end
    end
    return at, forced
end

--- A new node for a key in a block that `room` gave; the caller fills its value.
function Zone:add(at, key, hash, kind, flags, expires)
    local words = self.words
    local w = at * 4
    local place = bucket_of(words, hash)
    words[w + 2], words[w + 3] = words[place], hash % 4294967296
    words[place] = at
    words[w + 6], words[w + 7] = kind, flags
    self.doubles[at * 2 + 4] = expires
    words[w + 10], words[w + 11], words[w + 12], words[w + 13] = 0, 0, #key, 0
    ffi.copy(self.base + (at * 16 + NODE_BYTES), key, #key)
    queue_in(words, at)
    words[W_COUNT] = words[W_COUNT] + 1
end

--- Bytes that a node with a value of so many bytes needs.
function Zone.node_bytes(key, bytes)
    return NODE_BYTES + #key + bytes
end

--- Bytes of the block of a node.
function Zone:block_bytes(at)
    return rshift(self.words[at * 4], 1) * 16
end

--- Where the value of a node begins, in bytes from the start.
function Zone:value_at(at)
    return at * 16 + NODE_BYTES + self.words[at * 4 + 12]
end

function Zone:key_of(at)
    return ffi.string(self.base + (at * 16 + NODE_BYTES), self.words[at * 4 + 12])
end

--- Put a value at one end of a list; first: at its head. Returns whether there was memory, and whether nodes had to go.
function Zone:push(at, value, now, first)
    local words = self.words
    local text = type(value) == "string"
    local item, forced = self:room(ITEM_BYTES + (text and #value or 0), now, true)
    if item == 0 then
        return false, forced
    end
    local w, n = item * 4, at * 4
    words[w + 4], words[w + 5] = text and Zone.STRING or Zone.NUMBER, text and #value or 0
    if text then
        ffi.copy(self.base + (item * 16 + ITEM_BYTES), value, #value)
    else
        self.doubles[item * 2 + 3] = value
    end
    local head, tail = words[n + 10], words[n + 11]
    if first then
        words[w + 2], words[w + 3] = head, 0
        words[n + 10] = item
        if head ~= 0 then words[head * 4 + 3] = item else words[n + 11] = item end
    else
        words[w + 2], words[w + 3] = 0, tail
        words[n + 11] = item
        if tail ~= 0 then words[tail * 4 + 2] = item else words[n + 10] = item end
    end
    words[n + 13] = words[n + 13] + 1
    return true, forced
end

--- Take the value from one end of a list that is not empty: its item, to be read and then given back by `drop`.
function Zone:pop(at, first)
    local words = self.words
    local n = at * 4
    local item = words[n + (first and 10 or 11)]
    local w = item * 4
    local other = words[w + (first and 2 or 3)]
    words[n + (first and 10 or 11)] = other
    if other == 0 then
        words[n + (first and 11 or 10)] = 0
    else
        words[other * 4 + (first and 3 or 2)] = 0
    end
    words[n + 13] = words[n + 13] - 1
    return item
end

function Zone:drop(item)
    give(self.words, item)
end

Zone.ITEM_BYTES = ITEM_BYTES

--- Visit nodes from the oldest to the newest, at most `most`; fn(at) may remove the node it is given.
function Zone:each(fn, most, newest_first)
    local words = self.words
    local at = words[newest_first and W_NEWEST or W_OLDEST]
    local n = 0
    while at ~= 0 and n < most do
        local following = words[at * 4 + (newest_first and 5 or 4)]
        if fn(at) then
            n = n + 1
        end
        at = following
    end
    return n
end

function Zone:free_bytes()
    return self.words[W_FREE] * 16
end

function Zone:count()
    return self.words[W_COUNT]
end

--- For tests: walk all blocks and lists; raises where something does not fit together.
function Zone:verify()
    local words = self.words
    local at, before, free, used = words[W_FIRST], 0, 0, 0
    while at < words[W_UNITS] - 1 do
        local units = rshift(words[at * 4], 1)
        assert(units > 0 and words[at * 4 + 1] == before, "blocks")
        if band(words[at * 4], 1) == 0 then
            free = free + units
        else
            used = used + 1
        end
        at, before = at + units, units
    end
    assert(at == words[W_UNITS] - 1 and free == words[W_FREE], "free units")
    local nodes, items = 0, 0
    self:each(function(one)
        nodes = nodes + 1
        items = items + (words[one * 4 + 6] == Zone.LIST and words[one * 4 + 13] or 0)
        assert(self:find(self:key_of(one), tobit(words[one * 4 + 3])) == one, "hash")
        return true
    end, 2 ^ 31)
    assert(nodes == words[W_COUNT] and nodes + items == used, "nodes")
    return nodes
end
