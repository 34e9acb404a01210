-- What every file of the prelude shares: the state S, the C functions, the ngx table and its constants.
--
-- Every file is called as chunk(S, host). S is the private state of this VM; host holds the Python functions
-- (headrace/lua/api), which take and return integers, strings and nil only. Names of FFI functions carry a
-- prefix so that a user's own ffi.cdef of the same function does not collide.
local S, host = ...
local ffi = require "ffi"
local setmetatable, error, type = setmetatable, error, type

ffi.cdef [[
ssize_t hr_recv(int fd, void *buf, size_t len, int flags) __asm__("recv");
ssize_t hr_send(int fd, const void *buf, size_t len, int flags) __asm__("send");
int hr_socket(int domain, int kind, int protocol) __asm__("socket");
int hr_connect(int fd, const void *address, unsigned int len) __asm__("connect");
int hr_bind(int fd, const void *address, unsigned int len) __asm__("bind");
int hr_close(int fd) __asm__("close");
int hr_getsockopt(int fd, int level, int name, void *value, unsigned int *len) __asm__("getsockopt");
int hr_setsockopt(int fd, int level, int name, const void *value, unsigned int len) __asm__("setsockopt");
int hr_inet_pton(int family, const char *text, void *address) __asm__("inet_pton");
struct hr_pollfd { int fd; short events; short revents; };
int hr_poll(struct hr_pollfd *fds, unsigned long count, int timeout) __asm__("poll");
int hr_sched_yield(void) __asm__("sched_yield");
struct hr_timespec { long sec; long nsec; };
int hr_clock_gettime(int clock, struct hr_timespec *now) __asm__("clock_gettime");
void *hr_memchr(const void *s, int c, size_t n) __asm__("memchr");
void *hr_memmem(const void *hay, size_t hay_len, const void *needle, size_t needle_len) __asm__("memmem");
char *hr_strerror(int number) __asm__("strerror");
void hr_lua_pushlightuserdata(void *L, void *p) __asm__("lua_pushlightuserdata");
void hr_lua_setfield(void *L, int index, const char *key) __asm__("lua_setfield");
]]

-- The limits of the compiler that OpenResty's LuaJIT has: with LuaJIT's own, a large application's traces push each
-- other out. They are limits, not memory that is taken.
require("jit.opt").start("minstitch=3", "maxtrace=8000", "maxrecord=16000", "maxmcode=40960")

S.ffi = ffi
local C = ffi.C
S.C = C

-- ngx.null must be the light userdata NULL: cjson.null is, and users compare the two. LuaJIT's FFI cannot make
-- one, the C API can; the state it is given is that of a coroutine that never runs.
function S.light(address)
    local carrier = coroutine.create(function() end)
    local L = ffi.cast("void *", tonumber(tostring(carrier):match("0x%x+")))
    C.hr_lua_pushlightuserdata(L, ffi.cast("void *", address))
    C.hr_lua_setfield(L, -10002, "__headrace_light") -- LUA_GLOBALSINDEX
    local value = _G.__headrace_light
    _G.__headrace_light = nil
    return value
end
S.null = S.light(0)

local timespec = ffi.new("struct hr_timespec")
S.timespec = timespec

--- Monotonic time in milliseconds (CLOCK_MONOTONIC).
function S.mono()
    C.hr_clock_gettime(1, timespec)
    return tonumber(timespec.sec) * 1e3 + tonumber(timespec.nsec) * 1e-6
end

--- The words of an errno as nginx's cosockets give them.
function S.strerror(number)
    if number == 110 then
        return "timeout"
    end
    return (ffi.string(C.hr_strerror(number)):lower())
end

--- The words of an errno as the error log gives them.
function S.error_words(number)
    return ffi.string(C.hr_strerror(number))
end

local phases = {
    "init", "init_worker", "rewrite", "access", "content", "log", "timer", "exit_worker", "set",
    "header_filter", "body_filter", "server_rewrite", "balancer", "ssl_cert", "ssl_client_hello", "ssl_session_fetch",
    "ssl_session_store",
}
S.INIT, S.INIT_WORKER, S.REWRITE, S.ACCESS, S.CONTENT, S.LOG, S.TIMER, S.EXIT_WORKER = 1, 2, 3, 4, 5, 6, 7, 8
S.SET, S.HEADER_FILTER, S.BODY_FILTER, S.SERVER_REWRITE, S.BALANCER = 9, 10, 11, 12, 13
S.SSL_CERT, S.SSL_CLIENT_HELLO, S.SSL_SESSION_FETCH, S.SSL_SESSION_STORE = 14, 15, 16, 17
S.phases = phases

local function those(...)
    local found = {}
    for i = 1, #phases do
        found[i] = false
    end
    for _, phase in ipairs { ... } do
        found[phase] = true
    end
    return found
end

-- Who may write to the client, who may wait, who has a request.
S.may_output = those(S.REWRITE, S.ACCESS, S.CONTENT, S.SERVER_REWRITE)
S.may_wait = those(
    S.REWRITE, S.ACCESS, S.CONTENT, S.SERVER_REWRITE, S.TIMER, S.SSL_CERT, S.SSL_CLIENT_HELLO, S.SSL_SESSION_FETCH
)
S.has_request = those(
    S.REWRITE, S.ACCESS, S.CONTENT, S.SERVER_REWRITE, S.SET, S.HEADER_FILTER, S.BODY_FILTER, S.LOG, S.BALANCER
)
local context_names = {
    "init_by_lua*", "init_worker_by_lua*", "rewrite_by_lua*", "access_by_lua*", "content_by_lua*", "log_by_lua*",
    "ngx.timer", "exit_worker_by_lua*", "set_by_lua*", "header_filter_by_lua*", "body_filter_by_lua*",
    "server_rewrite_by_lua*", "balancer_by_lua*", "ssl_certificate_by_lua*", "ssl_client_hello_by_lua*",
    "ssl_session_fetch_by_lua*", "ssl_session_store_by_lua*",
}
S.context_names = context_names

local getinfo = debug.getinfo

--- The place in the user's code that called into the prelude; nil when the caller is a C function. level: where to
--- look first.
function S.where(level)
    level = level or 2
    local info = getinfo(level, "Sl")
    while info and info.source:find("^=ngx%.") do
        level = level + 1
        info = getinfo(level, "Sl")
    end
    if info and info.currentline > 0 then
        return info.short_src .. ":" .. info.currentline
    end
    return nil
end

--- Raise an error at the place in the user's code that called into the prelude, as luaL_error does for OpenResty's
--- C functions: without a place when that caller is a C function (pcall).
function S.raise(message)
    local where = S.where()
    return error(where and where .. ": " .. message or message, 0)
end
local raise = S.raise

--- Raise the documented error of an API that this phase does not have.
function S.disabled()
    local R = S.R
    return raise(R and R.phase ~= S.INIT and "API disabled in the context of " .. context_names[R.phase] or "no request found")
end

--- The request record when the phase is one that has a request; otherwise the documented error.
function S.request()
    local R = S.R
    if R and S.has_request[R.phase] then
        return R
    end
    return raise(R and R.phase ~= S.INIT and "API disabled in the current context" or "no request found")
end

--- luaL_argerror for functions that are C functions in OpenResty; called by pcall they have no name.
function S.bad_argument(n, name, what)
    return raise("bad argument #" .. n .. " to '" .. (S.where() and name or "?") .. "' (" .. what .. ")")
end

--- The same for methods, whose arguments count from the object when they are not called as methods.
function S.bad_method_argument(n, name, what)
    return S.bad_argument(S.where() and n - 1 or n, name, what)
end

--- A string or number argument as a string; otherwise the error of luaL_checkstring.
function S.check_string(value, n, name)
    local kind = type(value)
    if kind == "string" then
        return value
    elseif kind == "number" then
        return tostring(value)
    end
    return S.bad_argument(n, name, "string expected, got " .. (value == nil and "nil" or kind))
end

--- A number argument (numeric strings too); otherwise the error of luaL_checknumber.
function S.check_number(value, n, name)
    local number = tonumber(value)
    if number then
        return number
    end
    return S.bad_argument(n, name, "number expected, got " .. (value == nil and "nil" or type(value)))
end

--- The code of ngx.exit: a number, and none of those that only nginx's own handlers return.
function S.check_exit(code)
    if type(code) ~= "number" then
        return S.bad_argument(1, "exit", "number expected, got " .. type(code))
    end
    if code == -2 or code == -4 then
        return raise("bad argument to 'ngx.exit': does not accept NGX_AGAIN or NGX_DONE")
    end
end

--- A method called on something else than its object.
function S.bad_self(value, name)
    return raise("bad argument #1 to '" .. name .. "' (table expected, got " .. type(value) .. ")")
end

local ngx = {
    null = S.null,
    OK = 0, ERROR = -1, AGAIN = -2, DONE = -4, DECLINED = -5,
    STDERR = 0, EMERG = 1, ALERT = 2, CRIT = 3, ERR = 4, WARN = 5, NOTICE = 6, INFO = 7, DEBUG = 8,
    HTTP_UNKNOWN = 1, HTTP_GET = 2, HTTP_HEAD = 4, HTTP_POST = 8, HTTP_PUT = 16, HTTP_DELETE = 32,
    HTTP_MKCOL = 64, HTTP_COPY = 128, HTTP_MOVE = 256, HTTP_OPTIONS = 512, HTTP_PROPFIND = 1024,
    HTTP_PROPPATCH = 2048, HTTP_LOCK = 4096, HTTP_UNLOCK = 8192, HTTP_PATCH = 16384, HTTP_TRACE = 32768,
    HTTP_CONTINUE = 100, HTTP_SWITCHING_PROTOCOLS = 101,
    HTTP_OK = 200, HTTP_CREATED = 201, HTTP_ACCEPTED = 202, HTTP_NO_CONTENT = 204, HTTP_PARTIAL_CONTENT = 206,
    HTTP_SPECIAL_RESPONSE = 300, HTTP_MOVED_PERMANENTLY = 301, HTTP_MOVED_TEMPORARILY = 302, HTTP_SEE_OTHER = 303,
    HTTP_NOT_MODIFIED = 304, HTTP_TEMPORARY_REDIRECT = 307, HTTP_PERMANENT_REDIRECT = 308,
    HTTP_BAD_REQUEST = 400, HTTP_UNAUTHORIZED = 401, HTTP_PAYMENT_REQUIRED = 402, HTTP_FORBIDDEN = 403,
    HTTP_NOT_FOUND = 404, HTTP_NOT_ALLOWED = 405, HTTP_NOT_ACCEPTABLE = 406, HTTP_REQUEST_TIMEOUT = 408,
    HTTP_CONFLICT = 409, HTTP_GONE = 410, HTTP_UPGRADE_REQUIRED = 426, HTTP_TOO_MANY_REQUESTS = 429,
    HTTP_CLOSE = 444, HTTP_ILLEGAL = 451, HTTP_INTERNAL_SERVER_ERROR = 500, HTTP_METHOD_NOT_IMPLEMENTED = 501,
    HTTP_NOT_IMPLEMENTED = 501, HTTP_BAD_GATEWAY = 502, HTTP_SERVICE_UNAVAILABLE = 503, HTTP_GATEWAY_TIMEOUT = 504,
    HTTP_VERSION_NOT_SUPPORTED = 505, HTTP_INSUFFICIENT_STORAGE = 507,
}
S.ngx = ngx
S.core_version = "0.1.28" -- of lua-resty-core, whose modules are built in
_G.ngx = ngx
package.loaded.ngx = ngx

-- Magic fields (ngx.status, ngx.ctx, ...): readers and writers by name, filled in by the files that own them.
S.getters, S.setters = {}, {}
local getters, setters = S.getters, S.setters
setmetatable(ngx, {
    __index = function(_, key)
        local get = getters[key]
        if get then
            return get()
        end
        return nil
    end,
    __newindex = function(self, key, value)
        local set = setters[key]
        if set then
            return set(value)
        end
        rawset(self, key, value)
    end,
})

S.stats = {
    runs = 0, parks = 0, spins = 0, spins_paid = 0, turns = 0,
    opened = 0, reused = 0, discarded = 0, closed = 0, chain_peak = 0, timers = 0, running_timers = 0,
}
S.settings = host.settings
--- How lines of the error log about sockets begin.
S.says = (S.settings.subsystem == "http" and "" or S.settings.subsystem .. " ") .. "lua "

local LARGE = 262144 -- bytes; a buffer that is used again gives back what it took beyond

--- What a string buffer holds; it is empty then.
function S.taken(buf)
    local data = buf:get()
    if #data > LARGE then
        buf:free()
    end
    return data
end

--- Empty a string buffer.
function S.empty(buf)
    if #buf > LARGE then
        buf:free()
    else
        buf:reset()
    end
end
