-- ngx.ssl.clienthello and ngx.ssl.session, and the part of ngx.ssl that is about one handshake or connection.
-- https://github.com/openresty/lua-resty-core/blob/master/lib/ngx/ssl.md
local S, host = ...
local ffi = S.ffi
local type, tonumber = type, tonumber

-- The handle of the handshake or request that a script runs for.
local function here()
    local R = S.R
    if not R or R.phase == S.INIT then
        return S.raise("no request found")
    end
    return R.id
end

local function done(why)
    if why then
        return nil, why
    end
    return true
end

--- What ngx.ssl has beside the parsers of ssl.lua; known(value, kind): the PEM text of a parsed object.
function S.fill_ssl(ssl, known, CERT, KEY)
    function ssl.clear_certs()
        return done(host.ssl_clear_certs(here()))
    end

    function ssl.set_cert(cert)
        local id = here()
        local pem = known(cert, CERT)
        if not pem then
            return nil, "invalid certificate chain"
        end
        return done(host.ssl_set_cert(id, pem))
    end

    function ssl.set_priv_key(key)
        local id = here()
        local pem = known(key, KEY)
        if not pem then
            return nil, "invalid private key failed"
        end
        return done(host.ssl_set_key(id, pem))
    end

    function ssl.set_der_cert(der)
        return done(host.ssl_set_der_cert(here(), S.check_string(der, 1, "set_der_cert")))
    end

    function ssl.set_der_priv_key(der)
        return done(host.ssl_set_der_key(here(), S.check_string(der, 1, "set_der_priv_key")))
    end

    function ssl.verify_client(authorities, depth, trusted)
        local id = here()
        if S.R.phase ~= S.SSL_CERT then
            return nil, "API disabled in the current context"
        end
        return done(host.ssl_verify_client(id, authorities and known(authorities, CERT) or nil, depth or -1,
            trusted and known(trusted, CERT) or nil))
    end

    function ssl.server_name()
        return host.ssl_server_name(here())
    end

    local kinds = { [0] = "unix", "inet", "inet6" }

    local function address(server)
        local data, kind = host.ssl_address(here(), server)
        if not data then
            return nil, nil, kind
        end
        return data, kinds[kind]
    end

    function ssl.raw_client_addr()
        return address(0)
    end

    function ssl.raw_server_addr()
        return address(1)
    end

    function ssl.server_port()
        local data, kind, port = host.ssl_address(here(), 1)
        if not data then
            return nil, kind
        elseif kind == 0 then
            return nil, "unix domain has no port"
        end
        return port
    end

    function ssl.get_tls1_version()
        return host.ssl_version(here())
    end

    local versions = {
        [0x0300] = "SSLv3", [0x0301] = "TLSv1", [0x0302] = "TLSv1.1", [0x0303] = "TLSv1.2", [0x0304] = "TLSv1.3",
    }

    function ssl.get_tls1_version_str()
        local number, why = host.ssl_version(here())
        if not number then
            return nil, why
        elseif not versions[number] then
            return nil, "unknown version"
        end
        return versions[number]
    end

    function ssl.get_client_random(size)
        return host.ssl_random(here(), 0, size or 32)
    end

    function ssl.get_server_random(size)
        return host.ssl_random(here(), 1, size or 32)
    end

    function ssl.get_session_master_key(size)
        return host.ssl_master_key(here(), size or 48)
    end

    function ssl.export_keying_material(size, label, context)
        return host.ssl_export(here(), size, label, context, 0)
    end

    function ssl.export_keying_material_early(size, label, context)
        return host.ssl_export(here(), size, label, context, 1)
    end

    function ssl.get_req_ssl_pointer()
        local address, why = host.ssl_pointer(here())
        if not address then
            return nil, why
        end
        return ffi.cast("void *", address)
    end

    function ssl.ssl_session_reused(pointer)
        if type(pointer) ~= "cdata" then
            return nil, "bad ssl"
        end
        return host.ssl_reused(tonumber(ffi.cast("uintptr_t", pointer))) == 1
    end

    function ssl.get_req_shared_ssl_ciphers()
        local data, why = host.ssl_shared_ciphers(here())
        if not data then
            return nil, why
        end
        return S.numbers_of(data)
    end
end

-- Values that clients make up so that servers stay able to ignore what they do not know (RFC 8701).
local function is_grease(number)
    return number % 256 % 16 == 10 and number % 256 == (number - number % 256) / 256
end

--- A list of numbers of two bytes each, without those that clients make up.
function S.numbers_of(data)
    local found = {}
    for at = 1, #data, 2 do
        local number = data:byte(at) * 256 + data:byte(at + 1)
        if not is_grease(number) then
            found[#found + 1] = number
        end
    end
    return found
end

package.preload["ngx.ssl.clienthello"] = function()
    local hello = { version = S.core_version }
    local names = {
        [0x0002] = "SSLv2", [0x0300] = "SSLv3", [0x0301] = "TLSv1", [0x0302] = "TLSv1.1", [0x0303] = "TLSv1.2",
        [0x0304] = "TLSv1.3",
    }
    local numbers = {}
    for _, name in pairs(names) do
        numbers[name] = true
    end

    local function handle()
        local id = here()
        if S.R.phase ~= S.SSL_CLIENT_HELLO then
            return S.raise("API disabled in the current context")
        end
        return id
    end

    function hello.get_client_hello_server_name()
        return host.ssl_hello(handle(), "name", 0)
    end

    function hello.get_client_hello_ext(number)
        return host.ssl_hello(handle(), "extension", number)
    end

    local function list(what)
        local data, why = host.ssl_hello(handle(), what, 0)
        if not data then
            return nil, why
        end
        return S.numbers_of(data)
    end

    function hello.get_client_hello_ext_present()
        return list("extensions")
    end

    function hello.get_client_hello_ciphers()
        return list("ciphers")
    end

    --- The versions of the extension of this name, the last of the client's list first.
    function hello.get_supported_versions()
        local data, why = host.ssl_hello(handle(), "extension", 43)
        if not data then
            return nil, why
        elseif #data == 0 or data:byte(1) ~= #data - 1 then
            return nil
        end
        local found = {}
        for at = #data - 1, 2, -2 do
            local name = names[data:byte(at) * 256 + data:byte(at + 1)]
            if name then
                found[#found + 1] = name
            end
        end
        return found
    end

    function hello.set_protocols(protocols)
        local id = handle()
        for _, name in ipairs(protocols) do
            if not numbers[name] then
                return nil, "invalid protocols failed"
            end
        end
        return done(host.ssl_set_protocols(id, table.concat(protocols, " ")))
    end
    return hello
end

package.preload["ngx.ssl.session"] = function()
    return {
        version = S.core_version,
        get_session_id = function()
            return host.ssl_session_id(here())
        end,
        get_serialized_session = function()
            return host.ssl_session_der(here())
        end,
        set_serialized_session = function(der)
            return done(host.ssl_set_session(here(), S.check_string(der, 1, "set_serialized_session")))
        end,
    }
end
