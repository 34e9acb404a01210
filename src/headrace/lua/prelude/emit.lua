-- ngx.emit: a record into the pipeline that runs in the same process (headrace run nginx.conf fluent.conf).
local S, host = ...
local ngx = S.ngx
local type = type
local encode = S.json_twin["cjson.safe"]().encode

--- Emit a record under a tag. It is true when the pipeline has it, else nil and why: no pipeline runs here, or the
--- table cannot be one record. Waits for nothing.
function ngx.emit(tag, record)
    local R = S.R
    if R and R.phase == S.INIT then
        return S.disabled()
    end
    tag = S.check_string(tag, 1, "emit")
    if type(record) ~= "table" then
        return S.bad_argument(2, "emit", "table expected, got " .. (record == nil and "nil" or type(record)))
    end
    local text, why = encode(record)
    if not text then
        return nil, why
    end
    why = host.emit(tag, text)
    if why then
        return nil, why
    end
    return true
end
