"""Who may and who is who: locations, a request to each, and what nginx answers (status, body or fields of the head)."""

from __future__ import annotations

import base64
import hashlib

SSHA = base64.b64encode(hashlib.sha1(b"secretsalt").digest() + b"salt").decode()
USERS = (
    "plain:{PLAIN}secret\n"
    "sha:{SHA}" + base64.b64encode(hashlib.sha1(b"secret").digest()).decode() + "\n"
    "ssha:{SSHA}" + SSHA + ":a comment\n"
    "apr1:$apr1$saltsalt$LrttParrLPdxvgutaSXWJ0\n"
    "md5:$1$abcdefgh$cHJi5PXp/ki/ktXzqlk6I1\n"
    "sha256:$5$abcdefgh$gruCpC7VkOTspMQTTSAR8mtlO9Upms.fwqE5y16JVM.\n"
    "sha512:$6$abcdefgh$ltjgWl6579NluT/Vi1nwEvcil.G5Nbc4NiXZaNGStk8PSwGfQv72N2CKPPrVACtLtip/cZ/1GM/O6IND4WQhG.\n"
    "#commented:{PLAIN}secret\n"
)


def basic(user: str, password: str = "secret") -> str:
    return "Authorization: Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


HTTP = """
    map $uri $off_or_not { default "realm of $uri"; /case10 off; }
"""
SERVER = """
    location = /yes { return 204; }
    location = /no { return 403; }
    location = /teapot { return 418; }
    location = /who { return 401; }
    location = /named { error_page 404 = /yes; return 404; }
"""
AUTH = "auth_basic closed; auth_basic_user_file {users}; "
OK = " echo passed;"
FORWARDED = "X-Forwarded-For: 10.0.0.9, 192.0.2.1, 10.0.0.1"
TABLE = [
    ("no credentials", AUTH + OK, (), "401", 'WWW-Authenticate: Basic realm="closed"'),
    *(
        (f"credentials by {user}", AUTH + OK, (basic(user),), "200", "passed")
        for user in ("plain", "sha", "ssha", "apr1", "md5", "sha256", "sha512")
    ),
    ("a wrong password", AUTH + OK, (basic("sha512", "other"),), "401", ""),
    ("an unknown user", AUTH + OK, (basic("nobody"),), "401", ""),
    ("off by a variable", "auth_basic $off_or_not; auth_basic_user_file {users};" + OK, (), "200", "passed"),
    ("realm by a variable", "auth_basic $off_or_not; auth_basic_user_file {users};" + OK, (), "401", "realm of /case11"),
    ("no file", "auth_basic a; auth_basic_user_file /nonexistent;" + OK, (basic("plain"),), "403", ""),
    ("a commented user", AUTH + OK, (basic("#commented"),), "401", ""),
    ("all: denied first", "deny all; " + AUTH + OK, (basic("plain"),), "403", ""),
    ("any: denied, but known", "satisfy any; deny all; " + AUTH + OK, (basic("plain"),), "200", "passed"),
    ("any: denied and unknown", "satisfy any; deny all; " + AUTH + OK, (), "401", "WWW-Authenticate: Basic"),
    ("any: allowed", "satisfy any; allow all; " + AUTH + OK, (), "200", "passed"),
    ("any: the request decides", "satisfy any; deny all; auth_request /yes;" + OK, (), "200", "passed"),
    ("any: the request refuses", "satisfy any; deny all; auth_request /no;" + OK, (), "403", ""),
    ("request: yes", "auth_request /yes;" + OK, (), "200", "passed"),
    ("request: no", "auth_request /no;" + OK, (), "403", ""),
    ("request: anything else", "auth_request /teapot;" + OK, (), "500", ""),
    ("request: 401", "auth_request /who;" + OK, (), "401", "<title>401 Authorization Required</title>"),
    (
        "request: variables of the answer",
        ("auth_request /who; auth_request_set $who '$uri $status'; error_page 401 = @after{i}; } "
        "location @after{i} { echo [$who];"),
        (basic("plain"),),
        "200",
        "[/who 401]",
    ),
    ("request: error_page of the other", "auth_request /named;" + OK, (), "200", "passed"),
    ("limit_except: named", "limit_except POST { deny all; }" + OK, (), "403", ""),
    ("limit_except: GET brings HEAD", "limit_except GET { deny all; }" + OK, (), "200", "passed"),
    ("limit_except with users", "limit_except PUT { " + AUTH + "}" + OK, (), "401", "realm"),
    ("realip", "set_real_ip_from unix:; real_ip_header X-Forwarded-For; echo $remote_addr $realip_remote_addr;",
     (FORWARDED,), "200", "10.0.0.1 unix:"),
    ("realip recursive", ("set_real_ip_from unix:; set_real_ip_from 10.0.0.0/8; real_ip_recursive on; "
     "real_ip_header X-Forwarded-For; echo $remote_addr;"), (FORWARDED,), "200", "192.0.2.1"),
    ("realip before allow", "set_real_ip_from unix:; allow 192.0.2.7; deny all;" + OK, ("X-Real-IP: 192.0.2.7",), "200", "passed"),
    ("realip before deny", "set_real_ip_from unix:; allow 192.0.2.7; deny all;" + OK, ("X-Real-IP: 192.0.2.8",), "403", ""),
    ("realip with a port", "set_real_ip_from unix:; echo $remote_addr $remote_port;", ("X-Real-IP: [2001:db8::1]:88",), "200", "2001:db8::1 88"),
    ("realip not trusted", "set_real_ip_from 10.0.0.0/8; echo $remote_addr;", ("X-Real-IP: 192.0.2.7",), "200", "unix:"),
    ("realip broken", "set_real_ip_from unix:; echo $remote_addr;", ("X-Real-IP: what",), "200", "unix:"),
    ("referer none", "valid_referers none a.test; echo [$invalid_referer];", (), "200", "[]"),
    ("referer missing", "valid_referers blocked a.test; echo [$invalid_referer];", (), "200", "[1]"),
    ("referer blocked", "valid_referers blocked a.test; echo [$invalid_referer];", ("Referer: xxxxx",), "200", "[]"),
    ("referer name", "valid_referers *.example.com; echo [$invalid_referer];", ("Referer: http://a.example.com/x",), "200", "[]"),
    ("referer path", "valid_referers example.com/y; echo [$invalid_referer];", ("Referer: http://example.com/x",), "200", "[1]"),
    ("referer regex", "valid_referers ~\\.Example\\.; echo [$invalid_referer];", ("Referer: https://www.example.org/",), "200", "[]"),
    ("referer server_names", "valid_referers server_names; echo [$invalid_referer];", ("Referer: http://other.test/",), "200", "[1]"),
    ("userid", "userid on; userid_name u; userid_expires max; userid_domain d; userid_flags secure httponly;" + OK, (), "200",
     "; expires=Thu, 31-Dec-37 23:55:55 GMT; domain=d; path=/; secure; httponly"),
    ("userid got", "userid on; echo [$uid_got][$uid_set];", ("Cookie: uid=AQIDBAUGBwgJCgsMDQ4PEA==",), "200",
     "[uid=04030201080706050C0B0A09100F0E0D][]"),
    ("userid log", "userid log; echo [$uid_set];", (), "200", "[]"),
]  # fmt: skip
