"""What scripts do in TLS handshakes, case by case: directives of a server, the handshakes of a client, what it sees.

CERT and KEY stand for the files of "good.test", OTHER and OTHERKEY for those of "other.test"; the server itself has a
certificate for "plain.test". A case is a name, the scripts by phase, the names that a client asks for, and the name in
the certificate that it gets (None: the handshake fails).
"""

READ = 'local function read(n) local f = io.open("{folder}/" .. n, "rb") local t = f:read("*a") f:close() return t end local ssl = require "ngx.ssl" '
OTHER = READ + (
    "ssl.clear_certs() "
    'assert(ssl.set_cert(assert(ssl.parse_pem_cert(read("other.crt"))))) '
    'assert(ssl.set_priv_key(assert(ssl.parse_pem_priv_key(read("other.key"))))) '
)

TABLE = [
    ("nothing", {"certificate": ""}, "good.test", "plain.test"),
    ("another certificate", {"certificate": OTHER}, "good.test", "other.test"),
    (
        "in DER",
        {"certificate": READ + 'ssl.clear_certs() assert(ssl.set_der_cert(assert(ssl.cert_pem_to_der(read("other.crt"))))) '
         'assert(ssl.set_der_priv_key(assert(ssl.priv_key_pem_to_der(read("other.key")))))'},
        "good.test",
        "other.test",
    ),
    ("after a wait", {"certificate": "ngx.sleep(0.01) " + OTHER}, "good.test", "other.test"),
    ("by the name", {"certificate": READ + 'if ssl.server_name() == "other.test" then ' + OTHER + " end"}, "other.test", "other.test"),
    ("by another name", {"certificate": READ + 'if ssl.server_name() == "other.test" then ' + OTHER + " end"}, "good.test", "plain.test"),
    ("without a certificate", {"certificate": READ + "ssl.clear_certs()"}, "good.test", None),
    ("exit with an error", {"certificate": "ngx.exit(ngx.ERROR)"}, "good.test", None),
    ("exit with a status", {"certificate": "ngx.exit(403)"}, "good.test", None),
    ("exit with OK", {"certificate": "ngx.exit(ngx.OK)"}, "good.test", "plain.test"),
    ("an error", {"certificate": 'error("no")'}, "good.test", None),
    ("an error after a wait", {"certificate": 'ngx.sleep(0.01) error("no")'}, "good.test", None),
    ("no output", {"certificate": 'ngx.say("x")'}, "good.test", None),
    ("no variables of requests", {"certificate": "local x = ngx.var.uri"}, "good.test", None),
    ("threads", {"certificate": "local t = ngx.thread.spawn(function() ngx.sleep(0.001) end) assert(ngx.thread.wait(t)) " + OTHER}, "a", "other.test"),
    ("hello: nothing", {"client_hello": ""}, "good.test", "plain.test"),
    ("hello: the name", {"client_hello": 'assert(require("ngx.ssl.clienthello").get_client_hello_server_name() == "good.test")'}, "good.test", "plain.test"),
    ("hello: an error", {"client_hello": 'error("no")'}, "good.test", None),
    ("hello: exit", {"client_hello": "ngx.exit(ngx.ERROR)"}, "good.test", None),
    (
        "hello: extensions",
        {"client_hello": 'local h = require "ngx.ssl.clienthello" assert(h.get_client_hello_ext(0):sub(-9) == "good.test") '
         "assert(h.get_client_hello_ext(43)) assert(h.get_client_hello_ext(12345) == nil)"},
        "good.test",
        "plain.test",
    ),
    ("hello: versions", {"client_hello": 'assert(require("ngx.ssl.clienthello").set_protocols({"TLSv1.2"}))',
                         "certificate": 'assert(require("ngx.ssl").get_tls1_version_str() == "TLSv1.2")'}, "good.test", "plain.test"),
    ("hello: no such version", {"client_hello": 'local ok, why = require("ngx.ssl.clienthello").set_protocols({"x"}) assert(not ok and why == "invalid protocols failed")'},
     "good.test", "plain.test"),
    ("the version", {"certificate": 'local s = require "ngx.ssl" assert(s.get_tls1_version_str() == "TLSv1.3") assert(s.get_tls1_version() == s.TLS1_3_VERSION)'},
     "good.test", "plain.test"),
    ("addresses", {"certificate": 'local s = require "ngx.ssl" local a, k = s.raw_client_addr() assert(a == "\\127\\0\\0\\1" and k == "inet") '
                   'a, k = s.raw_server_addr() assert(a == "\\127\\0\\0\\1" and k == "inet")'}, "good.test", "plain.test"),
    ("phases", {"certificate": 'assert(ngx.get_phase() == "ssl_cert")', "client_hello": 'assert(ngx.get_phase() == "ssl_client_hello")'}, "good.test", "plain.test"),
    ("bad certificates", {"certificate": READ + 'local ok, why = ssl.set_der_cert("x") assert(not ok and why == "d2i_X509_bio() failed", why) '
                          'ok, why = ssl.parse_pem_cert("x") assert(not ok and why == "PEM_read_bio_X509_AUX() failed", why) '
                          'ok, why = ssl.set_der_priv_key("x") assert(not ok and why == "d2i_PrivateKey_bio() failed", why)'}, "good.test", "plain.test"),
]  # fmt: skip

# What Debian's lua-resty-core, or its nginx without OpenResty's patches, has not.
NEWER = [
    (
        "from a parsed DER",
        {"certificate": READ + 'ssl.clear_certs() assert(ssl.set_cert(assert(ssl.parse_der_cert(assert(ssl.cert_pem_to_der(read("other.crt"))))))) '
         'assert(ssl.set_priv_key(assert(ssl.parse_der_priv_key(assert(ssl.priv_key_pem_to_der(read("other.key")))))))'},
        "good.test",
        "other.test",
    ),
    ("hello: a wait", {"client_hello": "ngx.sleep(0.01)"}, "good.test", "plain.test"),
    ("hello: lists", {"client_hello": 'local h = require "ngx.ssl.clienthello" assert(#h.get_client_hello_ciphers() > 3) '
                      'assert(#h.get_client_hello_ext_present() > 3) local v = h.get_supported_versions() assert(v[#v] == "TLSv1.3", v[#v])'}, "good.test", "plain.test"),
    ("the port", {"certificate": 'assert(require("ngx.ssl").server_port() == {port})'}, "good.test", "plain.test"),
    ("ciphers of both", {"certificate": 'assert(#require("ngx.ssl").get_req_shared_ssl_ciphers() > 0)'}, "good.test", "plain.test"),
    ("hello: not here", {"certificate": 'local ok, why = pcall(require("ngx.ssl.clienthello").get_client_hello_ext, 0) '
                         'assert(not ok and why:find("API disabled in the current context"), why)'}, "good.test", "plain.test"),
    ("the session is new", {"certificate": 'local s = require "ngx.ssl" assert(s.ssl_session_reused(assert(s.get_req_ssl_pointer())) == false)'}, "good.test", "plain.test"),
    ("random bytes", {"certificate": 'local s = require "ngx.ssl" assert(#s.get_client_random() == 32 and s.get_client_random(0) == 32 and #s.get_client_random(5) == 5)'},
     "good.test", "plain.test"),
    ("what is kept between phases", {"client_hello": "ngx.ctx.a = 1", "certificate": "assert(ngx.ctx.a == 1)"}, "good.test", "plain.test"),
]  # fmt: skip


def servers(table: list, folder: str, ports: list[int]) -> str:
    """A server for each case."""
    text = ""
    for (_, scripts, _, _), port in zip(table, ports, strict=True):
        text += f"server {{ listen 127.0.0.1:{port} ssl; ssl_protocols TLSv1.2 TLSv1.3; ssl_certificate {folder}/plain.crt; ssl_certificate_key {folder}/plain.key;\n"
        for phase, code in scripts.items():
            code = code.replace("{folder}", folder).replace("{port}", str(port))  # noqa: PLW2901
            text += f"ssl_{phase}_by_lua_block {{ {code} }}\n"
        text += 'location / { content_by_lua_block { ngx.print("hello") } } }\n'
    return text
