"""The built-in directive families, one file each; the order is that of their handlers within a phase."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.edge.families.access import AccessFamily
from headrace.edge.families.addition import AdditionFamily
from headrace.edge.families.auth_basic import AuthBasicFamily
from headrace.edge.families.auth_request import AuthRequestFamily
from headrace.edge.families.autoindex import AutoindexFamily, RandomIndexFamily
from headrace.edge.families.cgi import FastcgiFamily, ScgiFamily, UwsgiFamily
from headrace.edge.families.charset import CharsetFamily
from headrace.edge.families.compress import BrotliFamily, ZstdFamily
from headrace.edge.families.dav import DavFamily
from headrace.edge.families.echo import EchoFamily
from headrace.edge.families.flv import FlvFamily
from headrace.edge.families.geo import GeoFamily
from headrace.edge.families.grpc import GrpcFamily
from headrace.edge.families.gzip import GzipFamily
from headrace.edge.families.gzip_static import GzipStaticFamily
from headrace.edge.families.headers import HeadersFamily
from headrace.edge.families.http import HttpFamily
from headrace.edge.families.http2 import Http2Family
from headrace.edge.families.limit_conn import LimitConnFamily
from headrace.edge.families.limit_req import LimitReqFamily
from headrace.edge.families.locations import LocationFamily
from headrace.edge.families.logs import LogFamily
from headrace.edge.families.main import MainFamily
from headrace.edge.families.maps import MapFamily
from headrace.edge.families.memcached import MemcachedFamily, MemcFamily
from headrace.edge.families.mirror import MirrorFamily
from headrace.edge.families.more_headers import MoreHeadersFamily
from headrace.edge.families.old_clients import OldClientsFamily
from headrace.edge.families.proxy import ProxyFamily
from headrace.edge.families.python import PythonFamily
from headrace.edge.families.rate import RateFamily
from headrace.edge.families.realip import RealipFamily
from headrace.edge.families.redis2 import Redis2Family
from headrace.edge.families.referer import RefererFamily
from headrace.edge.families.resolver import ResolverFamily
from headrace.edge.families.rewrite import RewriteFamily
from headrace.edge.families.secure_link import SecureLinkFamily
from headrace.edge.families.set_misc import SetMiscFamily
from headrace.edge.families.settings import SettingsFamily
from headrace.edge.families.slice import SliceFamily
from headrace.edge.families.small_content import SmallContentFamily
from headrace.edge.families.srcache import SrcacheFamily
from headrace.edge.families.ssi import SsiFamily
from headrace.edge.families.static import FileFamily, StaticFamily
from headrace.edge.families.sub_filter import SubFamily
from headrace.edge.families.tls import TlsFamily
from headrace.edge.families.upstream import UpstreamFamily
from headrace.edge.families.userid import UseridFamily

if TYPE_CHECKING:
    from headrace.edge.registry import Family


def builtin() -> list[Family]:
    """Fresh instances of all built-in families."""
    return [
        MainFamily(),
        HttpFamily(),
        SettingsFamily(),
        ResolverFamily(),
        Http2Family(),
        MapFamily(),
        GeoFamily(),
        LocationFamily(),
        RewriteFamily(),
        RealipFamily(),
        LimitReqFamily(),
        LimitConnFamily(),
        RefererFamily(),
        AccessFamily(),
        AuthBasicFamily(),
        AuthRequestFamily(),
        HeadersFamily(),
        OldClientsFamily(),
        UseridFamily(),
        GzipFamily(),
        RateFamily(),
        TlsFamily(),
        AdditionFamily(),
        SliceFamily(),
        SubFamily(),
        CharsetFamily(),
        SsiFamily(),
        SecureLinkFamily(),
        RandomIndexFamily(),
        StaticFamily(),
        AutoindexFamily(),
        DavFamily(),
        FlvFamily(),
        BrotliFamily(),
        ZstdFamily(),
        GzipStaticFamily(),
        FileFamily(),
        MirrorFamily(),
        SmallContentFamily(),
        PythonFamily(),
        UpstreamFamily(),
        ProxyFamily(),
        FastcgiFamily(),
        MemcFamily(),
        ScgiFamily(),
        UwsgiFamily(),
        MemcachedFamily(),
        Redis2Family(),
        GrpcFamily(),
        EchoFamily(),
        SetMiscFamily(),
        SrcacheFamily(),
        MoreHeadersFamily(),
        LogFamily(),
    ]
