-- The allocator of a zone (zone.lua): blocks of 16-byte units, free ones in lists by the logarithm of their size;
-- free blocks that touch are joined. `words` is the zone as 32-bit words.
--
-- A block by words (w = unit * 4): w size*2+used, w+1 size of the block before; free: w+2 next, w+3 previous of its list.
local S = ...
local bit = require "bit"
local floor, rshift, band = math.floor, bit.rshift, bit.band

local W_FREE, W_BINS = 34, 48 -- free units; the 32 lists

local function bin_of(units)
    local bin = 0
    while units >= 2 do
        units = rshift(units, 1)
        bin = bin + 1
    end
    return bin
end

--- Put a free block into its list.
local function link(words, at, units)
    local w = at * 4
    local head = W_BINS + bin_of(units)
    local first = words[head]
    words[w + 2], words[w + 3] = first, 0
    if first ~= 0 then
        words[first * 4 + 3] = at
    end
    words[head] = at
end

local function unlink(words, at, units)
    local w = at * 4
    local following, previous = words[w + 2], words[w + 3]
    if following ~= 0 then
        words[following * 4 + 3] = previous
    end
    if previous ~= 0 then
        words[previous * 4 + 2] = following
    else
        words[W_BINS + bin_of(units)] = following
    end
end

local TRIES = 16 -- free blocks of a bin that are looked at before a larger one is split

--- A free block of a bin that is large enough, and its units; 0 when there is none among the first so many.
local function search(words, bin, units, tries)
    local at = words[W_BINS + bin]
    while at ~= 0 and tries > 0 do
        local has = rshift(words[at * 4], 1)
        if has >= units then
            return at, has
        end
        at = words[at * 4 + 2]
        tries = tries - 1
    end
    return 0, 0
end

--- A block with room for so many bytes, its header included; 0 when there is none.
local function take(words, bytes)
    local units = floor((bytes + 15) / 16)
    local own = bin_of(units)
    local found, has = search(words, own, units, TRIES)
    for bin = own + 1, 31 do
        if found ~= 0 then
            break
        end
        found, has = search(words, bin, units, 1)
    end
    if found == 0 then
        found, has = search(words, own, units, 2 ^ 31)
    end
    if found == 0 then
        return 0
    end
    unlink(words, found, has)
    local rest = has - units
    if rest > 0 then
        local w = (found + units) * 4
        words[w], words[w + 1] = rest * 2, units
        words[(found + has) * 4 + 1] = rest
        link(words, found + units, rest)
    end
    words[found * 4] = units * 2 + 1
    words[W_FREE] = words[W_FREE] - units
    return found
end

--- Give a block back.
local function give(words, at)
    local units = rshift(words[at * 4], 1)
    words[W_FREE] = words[W_FREE] + units
    local following = (at + units) * 4
    if band(words[following], 1) == 0 then
        local more = rshift(words[following], 1)
        unlink(words, at + units, more)
        units = units + more
    end
    local before = words[at * 4 + 1]
    if before ~= 0 and band(words[(at - before) * 4], 1) == 0 then
        at = at - before
        unlink(words, at, before)
        units = units + before
    end
    words[at * 4] = units * 2
    words[(at + units) * 4 + 1] = units
    link(words, at, units)
end

S.heap = { take = take, give = give, link = link, W_FREE = W_FREE }
