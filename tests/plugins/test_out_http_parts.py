"""out_http's pure parts: endpoint, proxy choice, response policy, heads, authorization."""

import gzip

import pytest

from headrace.core.connect import Proxy
from headrace.core.tls_config import TlsConfig
from headrace.errors import Error, Unrecoverable
from headrace.plugins.out_http.auth import AwsCredentials, AwsSigner, basic
from headrace.plugins.out_http.endpoint import parse, template_host
from headrace.plugins.out_http.policy import DEFAULT_RETRYABLE, ResponsePolicy, parse_codes
from headrace.plugins.out_http.proxy import ProxyChoice, parse_proxy
from headrace.plugins.out_http.request import build_head, gzip_member


@pytest.mark.parametrize(
    ("url", "host", "port", "authority", "target"),
    [
        ("http://localhost:9000", "localhost", 9000, b"localhost:9000", b"/"),
        ("http://LOCALHOST/", "localhost", 80, b"localhost", b"/"),
        ("https://h", "h", 443, b"h", b"/"),
        ("https://h:80/a?b=c#frag", "h", 80, b"h:80", b"/a?b=c"),
        ("http://h?x=1", "h", 80, b"h", b"/?x=1"),
        ("http://[::1]:81/a", "::1", 81, b"[::1]:81", b"/a"),
        ('http://h/a b/\u00e9"%20', "h", 80, b"h", b"/a%20b/%C3%A9%22%20"),
        ("http://h/x\r\nEvil: 1", "h", 80, b"h", b"/x%0D%0AEvil:%201"),
        ("http://u:p@h/x", "h", 80, b"h", b"/x"),
    ],
)
def test_endpoint(url, host, port, authority, target):
    endpoint = parse(url)
    assert (endpoint.host, endpoint.port, endpoint.authority, endpoint.target) == (host, port, authority, target)


@pytest.mark.parametrize(
    "url", ["", "h:1", "ftp://h/", "http://", "http:///x", "http://h:99999/", "http://a b/", "http://h:0/"]
)
def test_what_is_no_endpoint(url):
    with pytest.raises(Error) as caught:
        parse(url)
    assert not caught.value.retryable


def test_identity_is_without_the_path():
    assert parse("http://h/a").identity == parse("http://h:80/b?c").identity
    assert parse("http://h/a").identity != parse("https://h/a").identity


def test_the_host_of_a_template():
    assert template_host("http://h:80/${tag}/%Y") == "h"
    assert template_host("http://h:${port}/x") == "h"
    assert template_host("${scheme}://h/x") == "h"
    assert template_host("http://${host}/x") is None
    assert template_host("http://logs-%d.h/x") is None
    with pytest.raises(Error):
        template_host("${url}")


TLS = TlsConfig()
ENVIRONMENT = {
    "http_proxy": "http://user:p%40ss@proxy:3128",
    "HTTPS_PROXY": "secure-proxy:3129",
    "no_proxy": "skip.example, .dot.example,10.0.0.0/8,only:81,[::1]",
}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h/", "proxy"),
        ("https://h/", "secure-proxy"),
        ("http://skip.example/", None),
        ("http://a.skip.example/", None),
        ("http://noskip.example/", "proxy"),
        ("https://a.dot.example/", None),
        ("http://10.1.2.3/", None),
        ("http://11.1.2.3/", "proxy"),
        ("http://only:81/", None),
        ("http://only:82/", "proxy"),
        ("http://[::1]/", None),
    ],
)
def test_proxy_from_the_environment(url, expected):
    proxy = ProxyChoice(None, ENVIRONMENT, TLS)(parse(url))
    assert (proxy.host if proxy else None) == expected


def test_a_configured_proxy_is_used_for_everything():
    choice = ProxyChoice("http://mine:1", ENVIRONMENT, TLS)
    assert choice(parse("https://skip.example/")).host == "mine"


def test_no_proxy_star():
    assert ProxyChoice(None, {**ENVIRONMENT, "no_proxy": "*"}, TLS)(parse("http://h/")) is None


def test_upper_case_variables():
    assert ProxyChoice(None, {"HTTP_PROXY": "p:1", "NO_PROXY": "x"}, TLS)(parse("http://h/")).port == 1


def test_proxy_credentials_are_decoded_and_not_shown():
    proxy = parse_proxy("http://user:p%40ss@proxy:3128", TLS)
    assert proxy.authorization == basic("user", "p@ss")
    assert "p@ss" not in repr(proxy)
    assert proxy.tls is None
    assert parse_proxy("https://p", TLS) == Proxy("p", 443, tls=TLS)
    with pytest.raises(Error) as caught:
        parse_proxy("socks://user:secret@proxy", TLS)
    assert "secret" not in str(caught.value)
    with pytest.raises(Error, match="no valid host and port"):
        parse_proxy("[]", TLS)


def test_codes():
    assert parse_codes(["404", 500]) == {404, 500}
    assert 599 in parse_codes(["5xx"])
    assert parse_codes(["transient"]) >= {408, 425, 429, 500, 502, 503, 504}
    assert 404 not in parse_codes(["transient"])
    for wrong in ("abc", "99", "600", "6xx", "-1", ""):
        with pytest.raises(ValueError, match="status code"):
            parse_codes([wrong])


ALL = [*range(100, 104), *range(200, 210), *range(300, 309), *range(400, 430), 451, *range(500, 512), 599]


@pytest.mark.parametrize(
    ("retryable", "again"),
    [(DEFAULT_RETRYABLE, {503}), (parse_codes(["transient"]), {408, 425, 429, *range(500, 512), 599})],
    ids=["default", "transient"],
)
def test_which_codes_are_tried_again_and_which_given_up(retryable, again):
    policy = ResponsePolicy(retryable)
    judged = {status: policy.judge(status, b"R", b"told") for status in ALL}
    assert {status for status, error in judged.items() if error is None} == set(range(200, 210))
    assert {status for status, error in judged.items() if error and error.retryable} == again
    given_up = {status for status, error in judged.items() if isinstance(error, Unrecoverable)}
    assert given_up == set(ALL) - again - set(range(200, 210))
    assert judged[400].message == "400 R told"
    assert judged[400].kind == "http_400"


def test_error_responses_that_are_only_logged():
    error = ResponsePolicy(unrecoverable=False).judge(400, b"Bad Request", b"x" * 5000)
    assert not error.retryable
    assert not isinstance(error, Unrecoverable)
    assert len(error.message) < 1100


def head_lines(**options):
    head = build_head(
        "POST",
        parse("http://h:81/a?b"),
        options.pop("fields", ()),
        keep_alive=options.pop("keep_alive", True),
        **options,
    )
    assert head.endswith(b"Content-Length: ")
    return head.split(b"\r\n")


def test_head():
    lines = head_lines(fields=[("X-A", "1"), ("x-a", "2"), ("Content-Type", "text/plain")])
    assert lines[0] == b"POST /a?b HTTP/1.1"
    assert b"Host: h:81" in lines
    assert b"x-a: 2" in lines
    assert b"X-A: 1" not in lines
    assert b"Connection: keep-alive" in lines
    assert b"Connection: close" in head_lines(keep_alive=False)


def test_head_for_a_proxy():
    lines = head_lines(forwarded=True, proxy_authorization="Basic eA==")
    assert lines[0] == b"POST http://h:81/a?b HTTP/1.1"
    assert b"Proxy-Authorization: Basic eA==" in lines


@pytest.mark.parametrize("value", ["a\r\nEvil: 1", "a\nb", "a\0b"])
def test_a_value_that_would_end_the_line_is_unrecoverable(value):
    with pytest.raises(Unrecoverable, match="X-Tag"):
        head_lines(fields=[("X-Tag", value)])


def test_a_header_may_replace_host():
    lines = head_lines(fields=[("host", "virtual")])
    assert [line for line in lines if line.lower().startswith(b"host:")] == [b"host: virtual"]


def test_gzip_member():
    packed = gzip_member(b"abc" * 100)
    assert gzip.decompress(packed) == b"abc" * 100
    assert packed == gzip_member(b"abc" * 100)


async def test_aws_signature():
    pytest.importorskip("botocore")
    clock = [0.0]
    asked = []

    async def find(region, role):
        asked.append((region, role))
        return AwsCredentials("AKIDEXAMPLE", "wJalrXUtnFEMI", "session-token", expires=clock[0] + 3600)

    signer = AwsSigner("osis", "us-east-1", None, lambda: clock[0], find)
    endpoint = parse("https://h.example/log/ingest?x=1")
    fields = dict(await signer.headers("POST", endpoint, "application/x-ndjson", b"{}\n"))
    assert set(fields) == {"X-Amz-Date", "X-Amz-Security-Token", "X-Amz-Content-SHA256", "Authorization"}
    assert fields["X-Amz-Content-SHA256"] == "ca3d163bab055381827226140568f3bef7eaac187cebd76878e0b63e9e442356"
    assert "/us-east-1/osis/aws4_request" in fields["Authorization"]
    assert (
        "SignedHeaders=content-type;host;x-amz-content-sha256;x-amz-date;x-amz-security-token"
        in fields["Authorization"]
    )
    await signer.headers("POST", endpoint, "application/x-ndjson", b"")
    assert asked == [("us-east-1", None)]
    clock[0] = 3400.0
    await signer.headers("POST", endpoint, "application/x-ndjson", b"")
    assert len(asked) == 2
