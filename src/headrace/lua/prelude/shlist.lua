-- The lists of shared dictionaries: lpush, rpush, lpop, rpop, llen (shdict.lua has the rest).
local S = ...
local Zone, mono, type = S.Zone, S.mono, type
local NUMBER, STRING, LIST, ITEM_BYTES = Zone.NUMBER, Zone.STRING, Zone.LIST, Zone.ITEM_BYTES
local shared = S.shared_dicts
local methods, zone_of, checked, lives = shared.methods, shared.zone_of, shared.checked, shared.lives
local copy_out, copied = shared.copy_out, shared.copied

--- Run fn(zone, at, now) under the lock on a living list, at == 0: there is none. Returns what it returns.
local function on_list(dict, key, fn, ...)
    local zone = zone_of(dict)
    local why
    key, why = checked(key)
    if not key then
        return nil, why
    end
    local hash, now = Zone.hash(key), mono()
    if not zone:lock() then
        return nil, "busy"
    end
    local at = zone:find(key, hash)
    if at ~= 0 and not lives(zone, at, now) then
        zone:remove(at)
        at = 0
    end
    if at ~= 0 and zone.words[at * 4 + 6] ~= LIST then
        zone:unlock()
        return nil, "value not a list"
    end
    local result, more, most = fn(zone, at, now, key, hash, ...)
    zone:unlock()
    if more ~= nil then
        return result, more, most
    end
    return result
end

local function push(zone, at, now, key, hash, value, first)
    local new = at == 0
    if new then
        zone:sweep(now)
        at = zone:room(Zone.node_bytes(key, 0), now, false)
        if at == 0 then
            return nil, "no memory"
        end
        zone:add(at, key, hash, LIST, 0, 0)
    else
        zone:touch(at)
    end
    while not zone:push(at, value, now, first) do
        -- The list itself is the newest node: what is older goes first, and when it is alone it has grown too large.
        if zone:count() == 1 then
            if new then
                zone:remove(at)
            end
            return nil, "no memory"
        end
        zone:evict(now)
    end
    return zone.words[at * 4 + 13]
end

local function pushed(dict, key, value, first)
    local kind = type(value)
    if kind ~= "string" and kind ~= "number" then
        return nil, "bad value type"
    end
    return on_list(dict, key, push, value, first)
end

function methods.lpush(dict, key, value)
    return pushed(dict, key, value, true)
end

function methods.rpush(dict, key, value)
    return pushed(dict, key, value, false)
end

local function pop(zone, at, _, _, _, first)
    if at == 0 then
        return nil
    end
    local item = zone:pop(at, first)
    local words = zone.words
    local kind, length, number = words[item * 4 + 4], words[item * 4 + 5], zone.doubles[item * 2 + 3]
    if kind == STRING then
        copy_out(zone, item * 16 + ITEM_BYTES, length)
    end
    zone:drop(item)
    if words[at * 4 + 13] == 0 then
        zone:remove(at)
    else
        zone:touch(at)
    end
    return kind, length, number
end

local function popped(dict, key, first)
    local kind, length, number = on_list(dict, key, pop, first)
    if kind == STRING then
        return copied(length)
    elseif kind == NUMBER then
        return number
    end
    if length ~= nil then
        return nil, length
    end
    return nil
end

function methods.lpop(dict, key)
    return popped(dict, key, true)
end

function methods.rpop(dict, key)
    return popped(dict, key, false)
end

local function length(zone, at)
    return at == 0 and 0 or zone.words[at * 4 + 13]
end

function methods.llen(dict, key)
    return on_list(dict, key, length)
end
