-- jit.bcsave: what `luajit -b` does, as scripts ask for it: a file or a text compiled to a file of bytecode.
--
-- https://luajit.org/running.html (-b). The formats for linkers (c, h, obj) are not there.
local function fail(message)
    io.stderr:write("luajit: ", message, "\n")
    return error(message, 0)
end

local function start(...)
    local words = type((...)) == "table" and (...) or { ... }
    local strip, list, code, names = true, false, nil, {}
    local i = 1
    while i <= #words do
        local word = words[i]
        if word == "-s" or word == "-g" then
            strip = word == "-s"
        elseif word == "-e" then
            i = i + 1
            code = words[i] or fail("-e needs a chunk")
        elseif word == "-t" then
            i = i + 1
            if words[i] ~= "raw" then
                return fail("unsupported type: " .. tostring(words[i]))
            end
        elseif word == "-l" then
            list = true
        elseif word:sub(1, 1) == "-" and word ~= "-" then
            return fail("unsupported option: " .. word)
        else
            names[#names + 1] = word
        end
        i = i + 1
    end
    local from, to = names[1], names[code and 1 or 2]
    if list or not to or #names > (code and 1 or 2) then
        return fail("usage: -b[options] input output")
    end
    if to:find("%.[cho]$") or to:find("%.obj$") then
        return fail("unsupported type of output: " .. to)
    end
    local chunk, why
    if code then
        chunk, why = loadstring(code)
    else
        chunk, why = loadfile(from ~= "-" and from or nil)
    end
    if not chunk then
        return fail(why)
    end
    local file = to == "-" and io.stdout or io.open(to, "wb") or fail("cannot write " .. to)
    file:write(string.dump(chunk, strip))
    if to ~= "-" then
        file:close()
    end
end

package.preload["jit.bcsave"] = function()
    return { start = start }
end
