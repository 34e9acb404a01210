-- ngx.shared.DICT: the methods of lua_shared_dict over a zone of shared memory (zone.lua).
local S = ...
local ngx, ffi, Zone = S.ngx, S.ffi, S.Zone
local type, tostring, tonumber, error = type, tostring, tonumber, error
local BOOLEAN, NUMBER, STRING, LIST = Zone.BOOLEAN, Zone.NUMBER, Zone.STRING, Zone.LIST
local mono = S.mono
local BUSY = "busy" -- only a finalizer that runs within another call can meet it

local dicts = {} -- the table ngx.shared
local zones = setmetatable({}, { __mode = "k" }) -- dictionary -> zone
local methods = {}
local meta = { __index = methods }
S.getters.shared = function()
    return dicts
end

--- Python: the dictionary `name` lives at an address.
function S.share_dict(name, address, size)
    local dict = setmetatable({}, meta)
    zones[dict] = Zone.attach(name, address, size)
    dicts[name] = dict
end

--- Python: entries and free bytes of each dictionary: name, count, free, size, ...
function S.dict_sizes()
    local list = {}
    for name, dict in pairs(dicts) do
        local zone = zones[dict]
        list[#list + 1] = name
        list[#list + 1] = zone:count()
        list[#list + 1] = zone:free_bytes()
        list[#list + 1] = zone.size
    end
    return unpack(list)
end

local function zone_of(dict)
    local zone = type(dict) == "table" and zones[dict]
    if not zone then
        return S.raise("bad \"zone\" argument")
    end
    return zone
end

--- The key as a string; nil and why it is none.
local function checked(key)
    if key == nil then
        return nil, "nil key"
    end
    if type(key) ~= "string" then
        key = tostring(key)
    end
    if #key == 0 then
        return nil, "empty key"
    elseif #key > 65535 then
        return nil, "key too long"
    end
    return key
end

local function lives(zone, at, now)
    local expires = zone.doubles[at * 2 + 4]
    return expires == 0 or expires > now
end

-- reading; what is read under the lock becomes a Lua value after it

local scratch_size = 4096
local scratch = ffi.new("char[?]", scratch_size)

--- Copy bytes out of the zone; they are in `scratch` then.
local function copy_out(zone, from, length)
    if length > scratch_size then
        scratch_size = math.max(length, scratch_size * 2)
        scratch = ffi.new("char[?]", scratch_size)
    end
    ffi.copy(scratch, zone.base + from, length)
end

--- What was copied last, as a string; called without the lock.
local function copied(length)
    local text = ffi.string(scratch, length)
    if scratch_size > 1048576 then
        scratch_size = 4096
        scratch = ffi.new("char[?]", scratch_size)
    end
    return text
end

local function read(dict, key, stale)
    local zone = zone_of(dict)
    local why
    key, why = checked(key)
    if not key then
        return nil, why
    end
    local hash = Zone.hash(key)
    local now = mono()
    if not zone:lock() then
        return nil, BUSY
    end
    if not stale then
        zone:sweep(now)
    end
    local at = zone:find(key, hash)
    local living = at ~= 0 and lives(zone, at, now)
    if at == 0 or not (living or stale) then
        zone:unlock()
        return nil
    end
    local words = zone.words
    local kind, flags = words[at * 4 + 6], words[at * 4 + 7]
    local number, length = 0, 0
    if kind == STRING then
        length = words[at * 4 + 10]
        copy_out(zone, zone:value_at(at), length)
    elseif kind ~= LIST then
        number = zone.doubles[at * 2 + 5]
    end
    if living then
        zone:touch(at)
    end
    zone:unlock()
    local value
    if kind == STRING then
        value = copied(length)
    elseif kind == NUMBER then
        value = number
    elseif kind == BOOLEAN then
        value = number ~= 0
    else
        return nil, "value is a list"
    end
    return value, flags ~= 0 and flags or nil, not living
end

function methods.get(dict, key)
    local value, flags = read(dict, key, false)
    if flags ~= nil then
        return value, flags
    end
    return value
end

function methods.get_stale(dict, key)
    local value, flags, stale = read(dict, key, true)
    if value ~= nil then
        return value, flags, stale
    elseif flags ~= nil then
        return nil, flags
    end
    return nil
end

-- writing

local function deadline(exptime, now, name)
    if exptime == nil then
        return 0
    end
    exptime = tonumber(exptime)
    if not exptime or exptime < 0 then
        return S.raise("bad \"" .. name .. "\" argument")
    end
    return exptime > 0 and now + exptime * 1000 or 0
end

local function fill(zone, at, kind, value)
    if kind == STRING then
        zone.words[at * 4 + 10] = #value
        ffi.copy(zone.base + zone:value_at(at), value, #value)
    elseif kind == NUMBER then
        zone.doubles[at * 2 + 5] = value
    else
        zone.doubles[at * 2 + 5] = value and 1 or 0
    end
end

--- Store under the lock; the outcome (nil: done) and whether nodes had to go.
local function put(zone, key, hash, kind, value, expires, flags, now, safe, only)
    local at = zone:find(key, hash)
    local living = at ~= 0 and lives(zone, at, now)
    if only == "new" and living then
        return "exists", false
    elseif only == "old" and not living then
        return "not found", false
    end
    if kind == nil then
        if at ~= 0 then
            zone:remove(at)
        end
        return nil, false
    end
    local bytes = Zone.node_bytes(key, kind == STRING and #value or 0)
    if at ~= 0 then
        local words = zone.words
        if words[at * 4 + 6] ~= LIST and zone:block_bytes(at) >= bytes and zone:block_bytes(at) < bytes + 16 then
            words[at * 4 + 6], words[at * 4 + 7] = kind, flags
            zone.doubles[at * 2 + 4] = expires
            fill(zone, at, kind, value)
            zone:touch(at)
            return nil, false
        end
        zone:remove(at)
    else
        zone:sweep(now)
    end
    local forced
    at, forced = zone:room(bytes, now, safe)
    if at == 0 then
        return "no memory", forced
    end
    zone:add(at, key, hash, kind, flags, expires)
    fill(zone, at, kind, value)
    return nil, forced
end

local function store(dict, key, value, exptime, flags, safe, only)
    local zone = zone_of(dict)
    local now = mono()
    local expires = deadline(exptime, now, "exptime")
    local why
    key, why = checked(key)
    if not key then
        return nil, why
    end
    local kind
    local given = type(value)
    if given == "string" then
        kind = STRING
    elseif given == "number" then
        kind = NUMBER
    elseif given == "boolean" then
        kind = BOOLEAN
    elseif given ~= "nil" then
        return nil, "bad value type"
    end
    flags = tonumber(flags) or 0
    local hash = Zone.hash(key)
    if not zone:lock() then
        return false, BUSY, false
    end
    local forced
    why, forced = put(zone, key, hash, kind, value, expires, flags % 4294967296, now, safe, only)
    zone:unlock()
    if why then
        return false, why, forced
    end
    return true, nil, forced
end

function methods.set(dict, key, value, exptime, flags)
    return store(dict, key, value, exptime, flags, false)
end

function methods.safe_set(dict, key, value, exptime, flags)
    return store(dict, key, value, exptime, flags, true)
end

function methods.add(dict, key, value, exptime, flags)
    return store(dict, key, value, exptime, flags, false, "new")
end

function methods.safe_add(dict, key, value, exptime, flags)
    return store(dict, key, value, exptime, flags, true, "new")
end

function methods.replace(dict, key, value, exptime, flags)
    return store(dict, key, value, exptime, flags, false, "old")
end

function methods.delete(dict, key)
    return store(dict, key, nil, nil, nil, false)
end

function methods.incr(dict, key, value, init, init_ttl)
    local zone = zone_of(dict)
    local why
    key, why = checked(key)
    if not key then
        return nil, why
    end
    if type(value) ~= "number" then
        value = tonumber(value)
        if not value then
            return S.raise("bad argument #2 to 'incr' (number expected)")
        end
    end
    if init ~= nil and type(init) ~= "number" then
        local number = tonumber(init)
        if not number then
            return S.raise("bad init arg: number expected, got " .. type(init))
        end
        init = number
    end
    local now = mono()
    if init_ttl ~= nil and init == nil then
        return S.raise("must provide \"init\" when providing \"init_ttl\"")
    end
    local expires = deadline(init_ttl, now, "init_ttl")
    local hash = Zone.hash(key)
    if not zone:lock() then
        return nil, BUSY
    end
    local at = zone:find(key, hash)
    local forced = false
    if at ~= 0 and lives(zone, at, now) then
        if zone.words[at * 4 + 6] ~= NUMBER then
            why = "not a number"
        else
            value = zone.doubles[at * 2 + 5] + value
            zone.doubles[at * 2 + 5] = value
            zone:touch(at)
        end
    elseif init == nil then
        why = "not found"
    else
        value = init + value
        why, forced = put(zone, key, hash, NUMBER, value, expires, 0, now, false)
    end
    zone:unlock()
    if init == nil then
        if why then
            return nil, why
        end
        return value
    end
    if why then
        return nil, why, forced
    end
    return value, nil, forced
end

-- lifetimes

function methods.ttl(dict, key)
    local zone = zone_of(dict)
    local why
    key, why = checked(key)
    if not key then
        return nil, why
    end
    local hash, now = Zone.hash(key), mono()
    if not zone:lock() then
        return nil, BUSY
    end
    local at = zone:find(key, hash)
    local expires = at ~= 0 and zone.doubles[at * 2 + 4]
    zone:unlock()
    if not expires or (expires ~= 0 and expires <= now) then
        return nil, "not found"
    end
    return expires == 0 and 0 or (expires - now) / 1000
end

function methods.expire(dict, key, exptime)
    local zone = zone_of(dict)
    if exptime == nil then
        return S.raise("bad \"exptime\" argument")
    end
    local now = mono()
    local expires = deadline(exptime, now, "exptime")
    local why
    key, why = checked(key)
    if not key then
        return nil, why
    end
    local hash = Zone.hash(key)
    if not zone:lock() then
        return nil, BUSY
    end
    local at = zone:find(key, hash)
    local found = at ~= 0 and lives(zone, at, now)
    if found then
        zone.doubles[at * 2 + 4] = expires
        zone:touch(at)
    end
    zone:unlock()
    if not found then
        return nil, "not found"
    end
    return true
end

function methods.flush_all(dict)
    local zone = zone_of(dict)
    if zone:lock() then
        zone:each(function(at)
            zone.doubles[at * 2 + 4] = 1
            return true
        end, 2 ^ 31)
        zone:unlock()
    end
end

function methods.flush_expired(dict, most)
    local zone = zone_of(dict)
    most = tonumber(most) or 0
    most = most > 0 and most or 2 ^ 31
    local now = mono()
    if not zone:lock() then
        return 0
    end
    local freed = zone:each(function(at)
        if not lives(zone, at, now) then
            zone:remove(at)
            return true
        end
    end, most)
    zone:unlock()
    return freed
end

function methods.get_keys(dict, most)
    local zone = zone_of(dict)
    most = tonumber(most) or 1024
    most = most > 0 and most or 2 ^ 31
    local now, keys = mono(), {}
    if not zone:lock() then
        return keys
    end
    zone:each(function(at)
        if lives(zone, at, now) then
            keys[#keys + 1] = zone:key_of(at)
            return true
        end
    end, most, true)
    zone:unlock()
    return keys
end

function methods.capacity(dict)
    return zone_of(dict).size
end

function methods.free_space(dict)
    local bytes = zone_of(dict):free_bytes()
    return bytes - bytes % 4096 -- whole pages, as nginx counts
end

--- For tests: take the lock of a dictionary and keep it.
function S.lock_dict(name)
    return zones[dicts[name]]:lock()
end

--- For tests: the number of entries, after everything was found to fit together.
function S.verify_dict(name)
    local zone = zones[dicts[name]]
    zone:lock()
    local ok, result = pcall(zone.verify, zone)
    zone:unlock()
    return ok and result or error(result, 0)
end

S.shared_dicts = { methods = methods, zone_of = zone_of, checked = checked, lives = lives, copy_out = copy_out,
    copied = copied }
