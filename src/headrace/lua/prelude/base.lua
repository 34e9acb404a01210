-- resty.core.base: what lua-resty-core gives to modules that are written as it is - buffers for calls by FFI, which
-- are shared by all that ask (the next one may overwrite them), and references to values by number.
local S, host = ...
local ngx, ffi = S.ngx, S.ffi
local type = type

local bytes, size_cell, text_cell = ffi.typeof("unsigned char[?]"), ffi.typeof("size_t[1]"), ffi.typeof("char *[1]")
local room = 4096
local buffer, size, message

local base = {
    version = S.core_version,
    FFI_OK = 0, FFI_ERROR = -1, FFI_AGAIN = -2, FFI_BUSY = -3, FFI_DONE = -4, FFI_DECLINED = -5, FFI_ABORT = -6,
    FFI_NO_REQ_CTX = -100, FFI_BAD_CONTEXT = -101,
    new_tab = require "table.new",
    clear_tab = require "table.clear",
    get_request = function()
        return S.R and S.R.id
    end,
}

function base.get_string_buf_size()
    return room
end

function base.set_string_buf_size(wanted)
    if wanted < 0 or wanted % 1 ~= 0 then
        return S.raise("invalid string buffer size")
    end
    room = wanted
    buffer = nil
end

--- A buffer of at least `wanted` bytes; own: one that nobody else gets.
function base.get_string_buf(wanted, own)
    if own or wanted > room then
        return bytes(wanted)
    end
    buffer = buffer or bytes(room)
    return buffer
end

function base.get_size_ptr()
    size = size or size_cell()
    return size
end

function base.get_errmsg_ptr()
    message = message or text_cell()
    return message
end

--- The number of a new reference to `value` in `list`: a free one (they hang together from list[0]), or a new one.
function base.ref_in_table(list, value)
    if value == nil then
        return -1
    end
    local number = list[0]
    if number and number ~= 0 then
        list[0] = list[number]
    else
        number = #list + 1
    end
    list[number] = value
    return number
end

--- Raises where a module is not made for this kind of server.
function base.allows_subsystem(...)
    local here = ngx.config.subsystem
    for i = 1, select("#", ...) do
        if select(i, ...) == here then
            return
        end
    end
    return error("unsupported subsystem: " .. here, 2)
end

S.core_base = base

-- What lua-resty-openssl asks of its own C module for nginx: OpenSSL's object of a cosocket. That of a request's own
-- connection is not given away.
package.preload["resty.openssl.auxiliary.nginx_c"] = function()
    ffi.cdef "typedef struct ssl_st SSL; typedef struct ssl_ctx_st SSL_CTX; SSL_CTX *SSL_get_SSL_CTX(const SSL *ssl);"

    local function of_socket(sock)
        if type(sock) ~= "table" or not sock.tls then
            return nil, "the socket speaks no TLS"
        end
        return ffi.cast("SSL *", host.tls_pointer(sock.tls))
    end

    local function of_request()
        return nil, "the TLS session of a request is not given to scripts"
    end

    return {
        get_socket_ssl = of_socket,
        get_socket_ssl_ctx = function(sock)
            local ssl, why = of_socket(sock)
            if not ssl then
                return nil, why
            end
            return ffi.C.SSL_get_SSL_CTX(ssl)
        end,
        get_req_ssl = of_request,
        get_req_ssl_ctx = of_request,
    }
end
