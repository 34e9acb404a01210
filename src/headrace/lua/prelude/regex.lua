-- ngx.re.match, find and gmatch over libpcre2 by FFI: the options of ngx_lua, and its messages as with PCRE2.
--
-- The library is loaded at the first use. A compiled pattern owns its match data; its offsets are read before any
-- code of the user runs, so a replacement function may use the same pattern again. Patterns with the option "o" stay
-- (lua_regex_cache_max_entries of them); others are compiled once too, but only the latest of them are kept.
local S, host = ...
local ngx, ffi = S.ngx, S.ffi
local bit = require "bit"
local new_tab = require "table.new"
local type, tostring, tonumber, setmetatable = type, tostring, tonumber, setmetatable
local band, bor = bit.band, bit.bor

ffi.cdef [[
typedef struct hr_pcre2_code hr_pcre2_code;
typedef struct hr_pcre2_data hr_pcre2_data;
typedef struct hr_pcre2_context hr_pcre2_context;
typedef struct hr_pcre2_stack hr_pcre2_stack;
hr_pcre2_code *hr_pcre2_compile(const char *pattern, size_t length, uint32_t options, int *error, size_t *offset,
    void *context) __asm__("pcre2_compile_8");
void hr_pcre2_code_free(hr_pcre2_code *code) __asm__("pcre2_code_free_8");
int hr_pcre2_get_error_message(int error, char *text, size_t size) __asm__("pcre2_get_error_message_8");
int hr_pcre2_pattern_info(const hr_pcre2_code *code, uint32_t what, void *where) __asm__("pcre2_pattern_info_8");
int hr_pcre2_jit_compile(hr_pcre2_code *code, uint32_t options) __asm__("pcre2_jit_compile_8");
hr_pcre2_data *hr_pcre2_match_data_create(uint32_t pairs, void *context) __asm__("pcre2_match_data_create_8");
void hr_pcre2_match_data_free(hr_pcre2_data *data) __asm__("pcre2_match_data_free_8");
size_t *hr_pcre2_get_ovector_pointer(hr_pcre2_data *data) __asm__("pcre2_get_ovector_pointer_8");
hr_pcre2_context *hr_pcre2_match_context_create(void *context) __asm__("pcre2_match_context_create_8");
int hr_pcre2_set_match_limit(hr_pcre2_context *context, uint32_t limit) __asm__("pcre2_set_match_limit_8");
hr_pcre2_stack *hr_pcre2_jit_stack_create(size_t start, size_t most, void *context)
    __asm__("pcre2_jit_stack_create_8");
void hr_pcre2_jit_stack_assign(hr_pcre2_context *context, void *callback, void *stack)
    __asm__("pcre2_jit_stack_assign_8");
int hr_pcre2_match(const hr_pcre2_code *code, const char *subject, size_t length, size_t start, uint32_t options,
    hr_pcre2_data *data, hr_pcre2_context *context) __asm__("pcre2_match_8");
int hr_pcre2_dfa_match(const hr_pcre2_code *code, const char *subject, size_t length, size_t start,
    uint32_t options, hr_pcre2_data *data, hr_pcre2_context *context, int *workspace, size_t count)
    __asm__("pcre2_dfa_match_8");
]]

local ONCE, JIT, DFA, UNCHECKED, DUPLICATES = 1, 2, 4, 8, 16
local CASELESS, MULTILINE, DOTALL, EXTENDED = 0x8, 0x400, 0x20, 0x80
local ANCHORED, UTF, DUPNAMES, NO_UTF_CHECK = 0x80000000, 0x80000, 0x40, 0x40000000
local JAVASCRIPT = 0x1 + 0x2 + 0x200 -- ALLOW_EMPTY_CLASS, ALT_BSUX, MATCH_UNSET_BACKREF
local CAPTURE_COUNT, NAME_COUNT, NAME_ENTRY_SIZE, NAME_TABLE = 4, 17, 18, 19
local NO_MATCH = -1
local LATEST = 256 -- patterns without "o" that are kept
local DFA_WORKSPACE = 100
local LEAST_STACK = 32768
local UNSET = ffi.cast("size_t", -1)

local Regex = {}
S.Regex = Regex

local lib, context
local workspace = ffi.new("int[?]", DFA_WORKSPACE)

local function library()
    local ok, found = pcall(ffi.load, "libpcre2-8.so.0")
    if not ok then
        return nil
    end
    lib = found
    context = lib.hr_pcre2_match_context_create(nil)
    if S.settings.regex_match_limit > 0 then
        lib.hr_pcre2_set_match_limit(context, S.settings.regex_match_limit)
    end
    return lib
end

-- options

local FLAGS = {
    o = { ONCE, 0 }, j = { JIT, 0 }, d = { DFA, 0 }, D = { DUPLICATES, DUPNAMES }, U = { UNCHECKED, UTF },
    i = { 0, CASELESS }, s = { 0, DOTALL }, m = { 0, MULTILINE }, u = { 0, UTF }, x = { 0, EXTENDED },
    a = { 0, ANCHORED }, J = { 0, JAVASCRIPT },
}
local parsed = {}

local function options(text)
    local known = parsed[text]
    if known then
        return known
    end
    local flags, compile = 0, 0
    for letter in text:gmatch(".") do
        local meaning = FLAGS[letter]
        if not meaning then
            return S.raise("unknown flag \"" .. letter .. "\" (flags \"" .. text .. "\")")
        end
        flags, compile = bor(flags, meaning[1]), bor(compile, meaning[2])
    end
    known = { flags, compile % 2 ^ 32 }
    parsed[text] = known
    return known
end

-- compiling


local number = ffi.new("uint32_t[1]")

local function info(code, what)
    lib.hr_pcre2_pattern_info(code, what, number)
    return tonumber(number[0])
end

local function names_of(code)
    local count = info(code, NAME_COUNT)
    local size = info(code, NAME_ENTRY_SIZE)
    local where = ffi.new("const unsigned char *[1]")
    lib.hr_pcre2_pattern_info(code, NAME_TABLE, where)
    local names = {}
    for i = 0, count - 1 do
        local entry = where[0] + i * size
        names[i + 1] = { entry[0] * 256 + entry[1], ffi.string(entry + 2) }
    end
    return names
end

local function compile(pattern, flags, compile_options)
    if not lib and not library() then
        return nil, "no support for regular expressions: libpcre2-8 is not installed (Debian's package libpcre2-8-0)"
    end
    local why, offset = ffi.new("int[1]"), ffi.new("size_t[1]")
    local code = lib.hr_pcre2_compile(pattern, #pattern, compile_options, why, offset, nil)
    if code == nil then
        local text = ffi.new("char[128]")
        lib.hr_pcre2_get_error_message(why[0], text, 128)
        local at = tonumber(offset[0])
        local message = "pcre2_compile() failed: " .. ffi.string(text) .. " in \"" .. pattern .. "\""
        return nil, at < #pattern and message .. " at \"" .. pattern:sub(at + 1) .. "\"" or message
    end
    if band(flags, JIT) ~= 0 then
        S.note("pcre JIT compiling result: ", lib.hr_pcre2_jit_compile(code, 1) == 0 and 1 or 0)
    end
    local dfa = band(flags, DFA) ~= 0
    local captures = dfa and 0 or info(code, CAPTURE_COUNT)
    local data = lib.hr_pcre2_match_data_create(captures + 1, nil)
    local guard = newproxy(true) -- frees both when the pattern is forgotten
    local re = {
        code = code, data = data, offsets = lib.hr_pcre2_get_ovector_pointer(data), captures = captures,
        names = dfa and {} or names_of(code), dfa = dfa, utf = band(compile_options, UTF) ~= 0,
        duplicates = band(flags, DUPLICATES) ~= 0, guard = guard,
        exec_options = band(flags, UNCHECKED) ~= 0 and NO_UTF_CHECK or 0,
    }
    getmetatable(guard).__gc = function()
        lib.hr_pcre2_match_data_free(data)
        lib.hr_pcre2_code_free(code)
    end
    return re
end

local kept, kept_count, complained = {}, 0, false
local latest, latest_count = {}, 0

--- A compiled pattern; nil and the message when it has an error.
function Regex.compile(pattern, text, name)
    if type(pattern) ~= "string" then
        pattern = S.check_string(pattern, 2, name)
    end
    text = text or ""
    local cached = kept[text]
    local re = cached and cached[pattern]
    if re then
        return re
    end
    cached = latest[text]
    re = cached and cached[pattern]
    local meaning = options(text)
    local once = band(meaning[1], ONCE) ~= 0
    if re and not once then
        return re
    end
    if not re then
        local why
        re, why = compile(pattern, meaning[1], meaning[2])
        if not re then
            return nil, why
        end
    end
    local most = S.settings.regex_cache_max_entries
    if once and kept_count < most then
        kept[text] = kept[text] or {}
        kept[text][pattern] = re
        kept_count = kept_count + 1
        return re
    end
    if once and not complained and most > 0 then
        complained = true
        host.log(S.R and S.R.id or 0, ngx.WARN, "lua exceeding regex cache max entries (" .. most .. ")")
    end
    if latest_count >= LATEST then
        latest, latest_count = {}, 0
    end
    latest[text] = latest[text] or {}
    latest[text][pattern] = re
    latest_count = latest_count + 1
    return re
end

function Regex.is_cache_empty()
    return kept_count == 0 and latest_count == 0
end

--- A stack for compiled patterns, of at most so many bytes (ngx.re.opt); for those that need more than 32 KB.
function Regex.set_stack(size)
    if not lib and not library() then
        return nil, "libpcre2-8 is not installed"
    end
    local stack = lib.hr_pcre2_jit_stack_create(LEAST_STACK, math.max(size, LEAST_STACK), nil)
    if stack == nil then
        return nil, "pcre jit stack allocation failed"
    end
    lib.hr_pcre2_jit_stack_assign(context, nil, stack)
    return true
end

-- matching

--- Match from a position (from 0). Returns how many pairs of offsets are set, nil when it does not match, or false
--- and the message.
local function exec(re, subject, at)
    local rc
    if re.dfa then
        rc = lib.hr_pcre2_dfa_match(re.code, subject, #subject, at, re.exec_options, re.data, context, workspace,
            DFA_WORKSPACE)
    else
        rc = lib.hr_pcre2_match(re.code, subject, #subject, at, re.exec_options, re.data, context)
    end
    if rc > 0 then
        return rc
    elseif rc == NO_MATCH then
        return nil
    elseif rc == 0 then
        return re.dfa and 1 or false, "capture size too small"
    end
    return false, "pcre_exec() failed: " .. rc
end
Regex.exec = exec

--- Where to go on after an empty match: the next byte, or the next character of UTF-8.
function Regex.after(re, subject, at)
    at = at + 1
    if re.utf then
        local byte = subject:byte(at + 1)
        while byte and byte >= 128 and byte < 192 do
            at = at + 1
            byte = subject:byte(at + 1)
        end
    end
    return at
end

--- The captures of the last match as ngx_lua gives them: [0] the whole, false for what did not take part.
local function captures(re, subject, count, res)
    local offsets, most = re.offsets, re.captures
    local names = re.names
    res = res or new_tab(most, #names + 1)
    for i = 0, most do
        local from = offsets[i * 2]
        if i >= count or from == UNSET then
            res[i] = false
        else
            res[i] = subject:sub(tonumber(from) + 1, tonumber(offsets[i * 2 + 1]))
        end
    end
    for i = 1, #names do
        local name = names[i]
        local value = res[name[1]]
        if not re.duplicates then
            res[name[2]] = value
        elseif value then
            local all = res[name[2]]
            if type(all) == "table" then
                all[#all + 1] = value
            else
                res[name[2]] = { value }
            end
        end
    end
    return res
end
Regex.captures = captures

local function forget_duplicates(re, res)
    if res and re.duplicates then
        for i = 1, #re.names do
            res[re.names[i][2]] = nil
        end
    end
end

local function start(ctx)
    local pos = ctx and ctx.pos
    return pos and pos > 0 and pos - 1 or 0
end

local re = {}
ngx.re = re

function re.match(subject, pattern, opts, ctx, res)
    subject = tostring(subject)
    local compiled, why = Regex.compile(pattern, opts, "match")
    if not compiled then
        return nil, why
    end
    local count
    count, why = exec(compiled, subject, start(ctx))
    if count == nil then
        return nil
    elseif not count then
        return nil, why
    end
    if ctx then
        ctx.pos = tonumber(compiled.offsets[1]) + 1
    end
    forget_duplicates(compiled, res)
    return captures(compiled, subject, count, res)
end

function re.find(subject, pattern, opts, ctx, nth)
    subject = tostring(subject)
    local compiled, why = Regex.compile(pattern, opts, "find")
    if not compiled then
        return nil, nil, why
    end
    local count
    count, why = exec(compiled, subject, start(ctx))
    if count == nil then
        return nil
    elseif not count then
        return nil, nil, why
    end
    local offsets = compiled.offsets
    if ctx then
        ctx.pos = tonumber(offsets[1]) + 1
    end
    nth = nth and nth > 0 and nth or 0
    if nth > compiled.captures then
        return nil, nil, "nth out of bound"
    end
    if nth >= count or offsets[nth * 2] == UNSET then
        return nil, nil
    end
    return tonumber(offsets[nth * 2]) + 1, tonumber(offsets[nth * 2 + 1])
end

local iterator = {
    __call = function(self)
        local at = self.at
        if not at then
            return nil
        end
        local compiled, subject = self.compiled, self.subject
        local count, why = exec(compiled, subject, at)
        if not count then
            self.at = nil
            if count == nil then
                return nil
            end
            return nil, why
        end
        local from, to = tonumber(compiled.offsets[0]), tonumber(compiled.offsets[1])
        if from == to then
            to = Regex.after(compiled, subject, to)
        end
        self.at = to <= #subject and to or nil
        return captures(compiled, subject, count)
    end,
}

function re.gmatch(subject, pattern, opts)
    local compiled, why = Regex.compile(pattern, opts, "gmatch")
    if not compiled then
        return nil, why
    end
    return setmetatable({ compiled = compiled, subject = tostring(subject), at = 0 }, iterator)
end
