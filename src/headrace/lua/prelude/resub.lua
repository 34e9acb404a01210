-- ngx.re.sub and gsub with templates and functions, and the module ngx.re (split, opt). See regex.lua.
local S, host = ...
local ngx, Regex = S.ngx, S.Regex
local exec, captures, after = Regex.exec, Regex.captures, Regex.after
local type, tostring, tonumber = type, tostring, tonumber
local buffer = require "string.buffer"

-- templates

local templates, template_count = {}, 0
local MOST_TEMPLATES = 1024

local function complain(text)
    host.log(S.R and S.R.id or 0, ngx.ERR, text)
    return nil, "failed to compile the replacement template"
end

--- A template as a list of strings and numbers of captures; nil and the message when it has an error.
local function template_of(text)
    local known = templates[text]
    if known then
        return known
    end
    local parts, from = {}, 1
    while true do
        local dollar = text:find("$", from, true)
        if not dollar then
            break
        end
        if dollar > from then
            parts[#parts + 1] = text:sub(from, dollar - 1)
        end
        local following = text:sub(dollar + 1, dollar + 1)
        if following == "$" then
            parts[#parts + 1] = "$"
            from = dollar + 2
        else
            local name, last
            if following == "{" then
                last = text:find("[^%w_]", dollar + 2) or #text + 1
                name = text:sub(dollar + 2, last - 1)
                if name ~= "" and text:sub(last, last) ~= "}" then
                    return complain("the closing bracket in \"" .. name .. "\" variable is missing")
                end
            else
                last = dollar
                if following:find("%d") then
                    last = (text:find("%D", dollar + 1) or #text + 1) - 1
                else
                    last = (text:find("[^%w_]", dollar + 1) or #text + 1) - 1
                end
                name = text:sub(dollar + 1, last)
            end
            if name == "" then
                return complain("lua script: invalid capturing variable name found in \"" .. text .. "\"")
            elseif name:find("%D") then
                return complain("attempt to use named capturing variable \"" .. name
                    .. "\" (named captures not supported yet)")
            end
            parts[#parts + 1] = tonumber(name)
            from = last + 1
        end
    end
    if from <= #text then
        parts[#parts + 1] = text:sub(from)
    end
    if template_count >= MOST_TEMPLATES then
        templates, template_count = {}, 0
    end
    templates[text] = parts
    template_count = template_count + 1
    return parts
end

local UNSET = S.ffi.cast("size_t", -1)

local function fill(out, parts, compiled, subject, count)
    local offsets = compiled.offsets
    for i = 1, #parts do
        local part = parts[i]
        if type(part) == "string" then
            out:put(part)
        elseif part < count and offsets[part * 2] ~= UNSET then
            out:put(subject:sub(tonumber(offsets[part * 2]) + 1, tonumber(offsets[part * 2 + 1])))
        end
    end
end

local function replace_in(subject, pattern, replacement, opts, all, name)
    local compiled, why = Regex.compile(pattern, opts, name)
    if not compiled then
        return nil, nil, why
    end
    local parts
    if type(replacement) ~= "function" then
        parts, why = template_of(type(replacement) == "string" and replacement or tostring(replacement))
        if not parts then
            return nil, nil, why
        end
    end
    subject = tostring(subject)
    local out, made, at, copied = nil, 0, 0, 0
    repeat
        local count
        count, why = exec(compiled, subject, at)
        if count == false then
            return nil, nil, why
        elseif not count then
            break
        end
        local from, to = tonumber(compiled.offsets[0]), tonumber(compiled.offsets[1])
        out = out or buffer.new()
        made = made + 1
        if from > copied then
            out:put(subject:sub(copied + 1, from))
        end
        if parts then
            fill(out, parts, compiled, subject, count)
        else
            out:put(tostring(replacement(captures(compiled, subject, count))))
        end
        copied = to
        at = from == to and after(compiled, subject, to) or to
    until not all or at > #subject
    if made == 0 then
        return subject, 0
    end
    if copied < #subject then
        out:put(subject:sub(copied + 1))
    end
    return out:get(), made
end

function ngx.re.sub(subject, pattern, replacement, opts)
    return replace_in(subject, pattern, replacement, opts, false, "sub")
end

function ngx.re.gsub(subject, pattern, replacement, opts)
    return replace_in(subject, pattern, replacement, opts, true, "gsub")
end

-- the module

--- The parts of a text between matches; the first capture of a match stands between them. At most `max` parts.
local function split(subject, pattern, opts, ctx, max, res)
    subject = tostring(subject)
    if res ~= nil and type(res) ~= "table" then
        return S.raise("res is not a table")
    end
    res = res or {}
    max = max or 0
    local from = ctx and ctx.pos or 1
    if from > #subject then
        res[1] = nil
        return res
    end
    local compiled, why = Regex.compile(pattern, opts, "split")
    if not compiled then
        return nil, why
    end
    local at, n, pieces, empty = math.max(from - 1, 0), 0, 1, nil
    while max <= 0 or pieces < max do
        local count
        count, why = exec(compiled, subject, at)
        if count == false then
            return nil, why
        elseif not count then
            break
        end
        local first, last = tonumber(compiled.offsets[0]) + 1, tonumber(compiled.offsets[1]) + 1
        at = first == last and after(compiled, subject, last - 1) or last - 1
        from = empty or from
        if first == last then
            empty = first
        end
        if first > from or not empty then
            n, pieces = n + 1, pieces + 1
            res[n] = subject:sub(from, first - 1)
            if compiled.captures > 0 and count > 1 and compiled.offsets[2] ~= UNSET then
                n = n + 1
                res[n] = subject:sub(tonumber(compiled.offsets[2]) + 1, tonumber(compiled.offsets[3]))
            end
            from = last
            if from > #subject then
                break
            end
        end
        if at > #subject then
            break
        end
    end
    if ctx then
        ctx.pos = at
    end
    if max <= 0 and from > #subject then
        while n > 0 and res[n] == "" do -- empty parts at the end are left out
            res[n] = nil
            n = n - 1
        end
    else
        n = n + 1
        res[n] = subject:sub(from)
    end
    res[n + 1] = nil
    return res
end

local function opt(option, value)
    if option ~= "jit_stack_size" then
        return S.raise("unrecognized option name")
    end
    if not Regex.is_cache_empty() then
        return S.raise("changing jit stack size is not allowed when some regexs have already been compiled and cached")
    end
    local ok, why = Regex.set_stack(value)
    if not ok then
        return S.raise(why)
    end
end

package.preload["ngx.re"] = function()
    return { version = "0.1.28", split = split, opt = opt }
end
package.preload["resty.core.regex"] = function()
    return { version = "0.1.28", no_pcre = false, is_regex_cache_empty = Regex.is_cache_empty }
end
