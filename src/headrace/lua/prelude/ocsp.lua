-- ngx.ocsp: questions about certificates, and their answers.
-- https://github.com/openresty/lua-resty-core/blob/master/lib/ngx/ocsp.md
local S, host = ...

package.preload["ngx.ocsp"] = function()
    local ocsp = { version = S.core_version }

    function ocsp.get_ocsp_responder_from_der_chain(chain, max)
        local url, why = host.ocsp_responder(S.check_string(chain, 1, "get_ocsp_responder_from_der_chain"))
        if url and max and #url > max then
            return url:sub(1, max), "truncated"
        end
        return url, why
    end

    function ocsp.create_ocsp_request(chain, max)
        local request, why = host.ocsp_request(S.check_string(chain, 1, "create_ocsp_request"))
        if request and max and #request > max then
            return nil, "output buffer too small: " .. #request .. " > " .. max
        end
        return request, why
    end

    --- True, and when the answer ceases to hold (seconds of the epoch) where it says so.
    function ocsp.validate_ocsp_response(response, chain, max)
        local till, why = host.ocsp_judge(S.check_string(response, 1, "validate_ocsp_response"),
            S.check_string(chain, 2, "validate_ocsp_response"))
        if not till then
            return nil, max and why:sub(1, max) or why
        end
        return true, till > 0 and till or nil
    end

    function ocsp.set_ocsp_status_resp(response)
        local R = S.R
        if not R or R.phase == S.INIT then
            return S.raise("no request found")
        end
        local why = host.ssl_staple(R.id, S.check_string(response, 1, "set_ocsp_status_resp"))
        if why == 0 then
            return true, "no status req"
        elseif why then
            return nil, why
        end
        return true
    end
    return ocsp
end
