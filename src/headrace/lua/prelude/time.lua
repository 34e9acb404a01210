-- Time: the cached clock of a turn, dates, and sleeping.
local S, host = ...
local ngx = S.ngx
local C, timespec = S.C, S.timespec
local floor, max, min, tonumber, type = math.floor, math.max, math.min, tonumber, type

-- The wall clock in whole milliseconds as it was when this turn of the loop first asked: S.wall, nil at its start.
local function wall()
    local now = S.wall
    if not now then
        C.hr_clock_gettime(0, timespec)
        now = tonumber(timespec.sec) * 1000 + floor(tonumber(timespec.nsec) / 1000000)
        S.wall = now
    end
    return now
end

function ngx.now()
    return wall() / 1000
end

function ngx.update_time()
    S.wall = nil
    wall()
end

function ngx.time()
    return floor(wall() / 1000)
end

function ngx.today()
    return os.date("%Y-%m-%d", ngx.time())
end

function ngx.localtime()
    return os.date("%Y-%m-%d %H:%M:%S", ngx.time())
end

function ngx.utctime()
    return os.date("!%Y-%m-%d %H:%M:%S", ngx.time())
end

-- os.date's names of days and months follow the locale; HTTP's are English.
local DAYS = { "Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat" }
local MONTHS = { "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec" }

-- Times outside of the years 1970 to 9999 have no HTTP date: the nearest one stands for them.
local LAST = 253402300799

local function http_date(seconds, separator)
    if type(seconds) ~= "number" then
        return S.raise("number argument only")
    end
    seconds = floor(min(max(seconds, 0), LAST))
    local d = os.date("!*t", seconds)
    local year = separator == "-" and ("%02d"):format(d.year % 100) or ("%04d"):format(d.year)
    if separator == "-" and d.year > 2037 then
        year = ("%04d"):format(d.year)
    end
    return ("%s, %02d%s%s%s%s %02d:%02d:%02d GMT"):format(DAYS[d.wday], d.day, separator, MONTHS[d.month], separator,
        year, d.hour, d.min, d.sec)
end

function ngx.http_time(seconds)
    return http_date(seconds, " ")
end

function ngx.cookie_time(seconds)
    return http_date(seconds, "-")
end

--- Seconds since the epoch of an HTTP date in any of its three forms; nil when it is none (RFC 9110 5.6.7).
function ngx.parse_http_time(text)
    return host.parse_http_time(S.check_string(text, 1, "parse_http_time"))
end

function ngx.sleep(...)
    local seconds = ...
    if select("#", ...) ~= 1 then
        return S.raise("attempt to pass " .. select("#", ...) .. " arguments, but accepted 1")
    end
    if type(seconds) ~= "number" then
        seconds = S.check_number(seconds, 1, "sleep")
    end
    local R = S.R
    if not R or not S.may_wait[R.phase] or not S.cur then
        return S.disabled()
    end
    if not (seconds >= 0) then -- NaN too
        return S.raise('invalid sleep duration "' .. seconds * 1000 .. '"')
    end
    if seconds == 0 and not S.noting() then
        return S.give_turn()
    end
    S.sleep(seconds * 1000)
end
