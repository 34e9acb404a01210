"""The configure arguments of `-V` and `ngx.config.nginx_configure()`: what of nginx has a counterpart here.

Scripts read them to decide what they may use. A module is there when the directive it is known by is; those
that nginx builds by default are named when they are missing, as `--without-...`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.conf.check import Spec

OPTIONAL: Final = {
    "--with-http_ssl_module": "ssl_certificate",
    "--with-http_v2_module": "http2",
    "--with-http_realip_module": "set_real_ip_from",
    "--with-http_addition_module": "add_after_body",
    "--with-http_sub_module": "sub_filter",
    "--with-http_dav_module": "dav_methods",
    "--with-http_flv_module": "flv",
    "--with-http_mp4_module": "mp4",
    "--with-http_gunzip_module": "gunzip",
    "--with-http_gzip_static_module": "gzip_static",
    "--with-http_random_index_module": "random_index",
    "--with-http_secure_link_module": "secure_link",
    "--with-http_stub_status_module": "stub_status",
    "--with-http_auth_request_module": "auth_request",
    "--with-http_slice_module": "slice",
    "--with-stream": "stream",
    "--with-stream_ssl_module": "proxy_ssl",
    "--with-stream_ssl_preread_module": "ssl_preread",
    "--with-stream_realip_module": "stream",
    "--with-mail": "mail",
    "--add-module=ndk-nginx-module": "content_by_lua_block",
    "--add-module=lua-nginx-module": "content_by_lua_block",
    "--add-module=echo-nginx-module": "echo",
    "--add-module=headers-more-nginx-module": "more_set_headers",
    "--add-module=memc-nginx-module": "memc_pass",
    "--add-module=srcache-nginx-module": "srcache_fetch",
}
"""Argument -> the directive that shows the module is there."""

DEFAULT: Final = {
    "http_charset": "charset",
    "http_gzip": "gzip",
    "http_ssi": "ssi",
    "http_userid": "userid",
    "http_access": "allow",
    "http_auth_basic": "auth_basic",
    "http_mirror": "mirror",
    "http_autoindex": "autoindex",
    "http_geo": "geo",
    "http_map": "map",
    "http_split_clients": "split_clients",
    "http_referer": "valid_referers",
    "http_rewrite": "rewrite",
    "http_proxy": "proxy_pass",
    "http_fastcgi": "fastcgi_pass",
    "http_uwsgi": "uwsgi_pass",
    "http_scgi": "scgi_pass",
    "http_grpc": "grpc_pass",
    "http_memcached": "memcached_pass",
    "http_limit_conn": "limit_conn",
    "http_limit_req": "limit_req",
    "http_empty_gif": "empty_gif",
    "http_browser": "modern_browser",
    "http_upstream_hash": "hash",
    "http_upstream_ip_hash": "ip_hash",
    "http_upstream_least_conn": "least_conn",
    "http_upstream_random": "random",
    "http_upstream_keepalive": "keepalive",
    "http_upstream_zone": "zone",
    "stream_pass": "pass",
    "mail_pop3": "pop3_auth",
    "mail_imap": "imap_auth",
    "mail_smtp": "smtp_auth",
}
"""Module nginx builds by default -> the directive that shows it is there."""


def configure_arguments(specs: Iterable[Mapping[str, Spec]]) -> str:
    """All arguments for a gateway that knows the directives of `specs`, in one line."""
    known = {name for table in specs for name in table}
    there = [argument for argument, directive in OPTIONAL.items() if directive in known]
    missing = [f"--without-{module}_module" for module, directive in DEFAULT.items() if directive not in known]
    if "proxy_cache" not in known:
        missing.append("--without-http-cache")
    return " ".join(["--with-compat", "--with-debug", "--with-threads", *there, *missing])
