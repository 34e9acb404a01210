-- What http has and stream has not: nil there, as in OpenResty.
local S = ...
local ngx = S.ngx

for _, name in ipairs {
    "send_headers", "redirect", "exec", "arg", "http_time", "cookie_time", "parse_http_time", "run_worker_thread",
} do
    ngx[name] = nil
end
S.getters.headers_sent = nil
for name in pairs(ngx) do
    if name:find("^HTTP_") then
        ngx[name] = nil
    end
end
_G.ndk = nil
package.loaded.ndk = nil
for _, name in ipairs { "ngx.req", "ngx.resp" } do
    package.preload[name] = nil
end
local balancer = package.preload["ngx.balancer"]
package.preload["ngx.balancer"] = function()
    local module = balancer()
    module.enable_keepalive, module.recreate_request, module.set_upstream_tls = nil, nil, nil
    return module
end
ngx.config.ngx_lua_version = 16 -- v0.0.16
