-- Certificates and keys: the parsers of ngx.ssl, and tcpsock:setclientcert.
--
-- A parsed certificate chain or key is a cdata object, as in OpenResty; what it stands for (PEM) is kept beside it as
-- long as the script keeps the object.
local S, host = ...
local ffi = S.ffi
local type = type
local methods = S.socket_methods

ffi.cdef "struct hr_pem { int kind; };"
local CERT, KEY = 1, 2
local made = ffi.typeof("struct hr_pem")
local kept = setmetatable({}, { __mode = "k" }) -- object -> PEM

local function object(kind, pem)
    local found = made(kind)
    kept[found] = pem
    return found
end

local function known(value, kind)
    return type(value) == "cdata" and ffi.istype(made, value) and value.kind == kind and kept[value] or nil
end

local function parser(kind, check, failure)
    return function(text)
        if type(text) ~= "string" then
            return S.raise("bad argument: string expected, got " .. type(text))
        end
        local pem = check(text)
        if not pem then
            return nil, failure
        end
        return object(kind, pem)
    end
end

package.preload["ngx.ssl"] = function()
    local ssl = {
        version = S.core_version,
        SSL3_VERSION = 0x0300, TLS1_VERSION = 0x0301, TLS1_1_VERSION = 0x0302, TLS1_2_VERSION = 0x0303, TLS1_3_VERSION = 0x0304,
        parse_pem_cert = parser(CERT, host.pem_cert, "PEM_read_bio_X509_AUX() failed"),
        parse_der_cert = parser(CERT, host.der_cert, "d2i_X509_bio() failed"),
        parse_pem_priv_key = parser(KEY, host.pem_key, "PEM_read_bio_PrivateKey() failed"),
        parse_der_priv_key = parser(KEY, host.der_key, "d2i_PrivateKey_bio() failed"),
        cert_pem_to_der = function(pem)
            local der = host.cert_to_der(pem)
            if not der then
                return nil, "PEM_read_bio_X509_AUX() failed"
            end
            return der
        end,
        priv_key_pem_to_der = function(pem, passphrase)
            local der = host.key_to_der(pem, passphrase)
            if not der then
                return nil, "PEM_read_bio_PrivateKey() failed"
            end
            return der
        end,
    }
    S.fill_ssl(ssl, known, CERT, KEY)
    return ssl
end

--- The certificate chain and key by which later handshakes of this socket identify themselves; nil: none.
function methods.setclientcert(sock, cert, key)
    if type(sock) ~= "table" then
        return S.bad_self(sock, "setclientcert")
    end
    if not cert and not key then
        sock.client_cert = nil
        return true
    elseif not cert or not key then
        return nil, "client certificate must be supplied with corresponding private key"
    end
    if type(cert) ~= "cdata" then
        return nil, "bad cert arg: cdata expected, got " .. type(cert)
    elseif type(key) ~= "cdata" then
        return nil, "bad pkey arg: cdata expected, got " .. type(key)
    end
    local chain, private = known(cert, CERT), known(key, KEY)
    if not chain or not private then
        return nil, "bad " .. (chain and "pkey" or "cert") .. " arg: made by another library than ngx.ssl"
    end
    sock.client_cert = private .. "\n" .. chain
    return true
end
