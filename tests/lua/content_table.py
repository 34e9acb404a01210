"""Content and filters: locations, a request to each, and what nginx answers (status; texts of head and body)."""

from __future__ import annotations

import gzip
import hashlib
import os
from base64 import urlsafe_b64encode
from pathlib import Path

GET, HEAD = "GET", "HEAD"
LONG = "n" * 60 + ".txt"
LINK = urlsafe_b64encode(hashlib.md5(b"2147483647/link secret").digest()).rstrip(b"=").decode()
OLD = hashlib.md5(b"a/bsecret").hexdigest()

HTTP = """
    charset_map one utf-8 { E1 C3A4 ; E2 E282AC ; }
    charset_map one two { E1 F1 ; }
    map $arg_e $when { default off; day 24h; bad nonsense; }
"""


def make_files(folder: Path) -> None:
    """The files that the locations send, under `root`."""
    root = folder / "root"
    (root / "list" / "sub dir").mkdir(parents=True)
    (root / "list" / "a & b<c>.txt").write_text("x" * 20480)
    (root / "list" / LONG).write_text("")
    (root / "list" / ".hidden").write_text("")
    (root / "only").mkdir()
    (root / "only" / "one.html").write_text("the only one")
    for path in (root / "list").iterdir():
        os.utime(path, (1_700_000_000, 1_700_000_000))
    (root / "plain.txt").write_text("plain")
    (root / "packed.txt").write_text("not packed")
    (root / "packed.txt.gz").write_bytes(gzip.compress(b"packed", mtime=0))
    (root / "page.html").write_text("Hello World, hello world")
    (root / "german.html").write_bytes(b"a\xe1\xe2\xe3")
    (root / "utf.html").write_bytes("aä€z".encode())
    pages = {
        "set": '<!--#set var="a" value="1$uri" --><!--#echo var="a" --><!--#echo var="none" --><!--#echo var="no" default="D" -->',
        "encoded": '<!--#set var="a" value="<&\\"" --><!--#echo var="a" --> <!--#echo var="a" encoding="none" --> <!--#echo var="arg_x" encoding="url" -->',
        "if": '<!--#if expr="$arg_x = 1" -->one<!--#elif expr="$arg_x = /^a(.)/" -->re<!--#echo var="1" --><!--#else -->else<!--#endif -->',
        "include": 'a<!--#include virtual="/said?x" -->b<!--#include virtual="/inner.shtml" -->c',
        "inner": '(<!--#echo var="uri" -->)',
        "into": '<!--#include virtual="/said" set="v" --><!--#if expr="$v" -->[<!--#echo var="v" -->]<!--#endif -->',
        "stub": '<!--#block name="s" -->stubbed<!--#endblock --><!--#include virtual="/missing" stub="s" -->',
        "wrong": 'a<!--#nothing -->b<!--#echo -->c<!--#include virtual="a" file="b" -->',
        "told": '<!--#config errmsg="oh" --><!--#nothing -->',
        "text": "<!-- a comment --><!--x--> ",
    }
    for name, text in pages.items():
        (root / f"{name}.shtml").write_text(text)


SERVER = """
    root {root};
    location = /said { default_type text/html; echo -n said; }
    location = /more { default_type text/plain; echo -n "[$args]"; }
    location ~ \\.shtml$ { types { text/html shtml; } ssi on; }
    location ^~ /loud/ { ssi on; types { text/html shtml; } ssi_silent_errors on; alias {root}/; }
"""
GZIP = "Accept-Encoding: gzip"
SUB = "alias {root}/page.html; types {} default_type text/html; "
TABLE = [
    ("autoindex", "/list0/", "alias {root}/list/; autoindex on;", (), "200",
     ('<a href="sub%20dir/">sub dir/</a>                                           14-Nov-2023 22:13                   -\r\n'
     '<a href="a%20%26%20b%3Cc%3E.txt">a &amp; b&lt;c&gt;.txt</a>                                       14-Nov-2023 22:13               20480\r\n')),
    ("autoindex rounded", "/list1/", "alias {root}/list/; autoindex on; autoindex_exact_size off;", (), "200",
     f"{LONG[:47]}..&gt;</a> 14-Nov-2023 22:13       0\r\n"),
    ("autoindex json", "/list2/", "alias {root}/list/; autoindex on; autoindex_format json;", (), "200",
     ('[\r\n{ "name":"sub dir", "type":"directory", "mtime":"Tue, 14 Nov 2023 22:13:20 GMT" },\r\n'
     '{ "name":"a & b<c>.txt", "type":"file", "mtime":"Tue, 14 Nov 2023 22:13:20 GMT", "size":20480 },\r\n')),
    ("autoindex xml", "/list3/", "alias {root}/list/; autoindex on; autoindex_format xml;", (), "200",
     ('<?xml version="1.0"?>\r\n<list>\r\n<directory mtime="2023-11-14T22:13:20Z">sub dir</directory>\r\n'
     '<file mtime="2023-11-14T22:13:20Z" size="20480">a &amp; b&lt;c&gt;.txt</file>\r\n')),
    ("autoindex jsonp", "/list4/?callback=f", "alias {root}/only/; index none; autoindex on; autoindex_format jsonp;", (), "200",
     "/* callback */\r\nf([\r\n{"),
    ("no autoindex", "/list5/", "alias {root}/list/;", (), "403", ""),
    ("random_index", "/only/", "random_index on;", (), "200", "the only one"),
    ("empty_gif", "/gif", "empty_gif;", (), "200", "GIF89a"),
    ("stub_status", "/stub", "stub_status;", (), "200", "\nserver accepts handled requests\n "),
    ("gzip_static", "/g0/packed.txt", "alias {root}/; gzip_static on;", (GZIP,), "200", "Content-Encoding: gzip"),
    ("gzip_static refused", "/g1/packed.txt", "alias {root}/; gzip_static on;", (), "200", "not packed"),
    ("gzip_static vary", "/g2/packed.txt", "alias {root}/; gzip_static on; gzip_vary on;", (), "200", "Vary: Accept-Encoding"),
    ("gzip_static missing", "/g3/plain.txt", "alias {root}/; gzip_static always;", (), "200", "plain"),
    ("gunzip", "/g4/packed.txt", "alias {root}/; gzip_static always; gunzip on;", (), "200", "\r\n\r\npacked"),
    ("gunzip not needed", "/g5/packed.txt", "alias {root}/; gzip_static always; gunzip on;", (GZIP,), "200", "Content-Encoding: gzip"),
    ("sub_filter", "/s0", SUB + "sub_filter WORLD x; ", (), "200", "Hello x, hello world"),
    ("sub_filter twice", "/s1", SUB + "sub_filter hello $uri; sub_filter_once off;", (), "200", "/s1 World, /s1 world"),
    ("sub_filter several", "/s2", SUB + "sub_filter 'hello world' b; sub_filter hello a; sub_filter_once off;", (), "200", "\r\n\r\nb, b"),
    ("sub_filter in order", "/s7", SUB + "sub_filter hello a; sub_filter 'hello world' b; sub_filter_once off;", (), "200", "a World, a world"),
    ("sub_filter of each once", "/s3", SUB + "sub_filter l 1; sub_filter o 2;", (), "200", "He1l2 World, hello world"),
    ("sub_filter other type", "/s4", "alias {root}/plain.txt; sub_filter plain x;", (), "200", "\r\n\r\nplain"),
    ("sub_filter types", "/s5", "alias {root}/plain.txt; sub_filter_types *; sub_filter plain x;", (), "200", "\r\n\r\nx"),
    ("sub_filter of echo", "/s6", "default_type text/html; sub_filter abc x; echo -n a; echo_flush; echo -n bc;", (), "200", "\r\n\r\nx"),
    ("addition", "/a0", SUB + "add_before_body /more; add_after_body /said;", (), "200", "[]Hello World, hello worldsaid"),
    ("addition and sub_filter", "/a1", SUB + "add_before_body /said; sub_filter said x; sub_filter Hello said;", (), "200", "saidsaid World"),
    ("addition and gzip", "/a2", SUB + "add_before_body /said; gzip on; gzip_min_length 1;", (GZIP,), "200", "Content-Encoding: gzip"),
    ("addition other type", "/a3", "alias {root}/plain.txt; add_before_body /said;", (), "200", "\r\n\r\nplain"),
    ("addition of nothing", "/a4", SUB + "add_after_body /missing; log_not_found off;", (), "200", "hello world<html>"),
    ("charset", "/c0", "charset koi8-r; default_type text/html; echo -n x;", (), "200", "Content-Type: text/html; charset=koi8-r"),
    ("charset of errors", "/c1", "charset koi8-r; return 404;", (), "404", "Content-Type: text/html; charset=koi8-r"),
    ("charset other type", "/c2", "charset koi8-r; default_type image/x; echo -n x;", (), "200", "Content-Type: image/x\r\n"),
    ("charset by a variable", "/c3?c=u", "charset $arg_c; default_type text/html; echo -n x;", (), "200", "charset=u"),
    ("charset to utf-8", "/german.html", "charset utf-8; source_charset one;", (), "200", "\r\n\r\na\xc3\xa4\xe2\x82\xac?"),
    ("charset from utf-8", "/utf.html", "charset one; source_charset utf-8;", (), "200", "\r\n\r\na\xe1\xe2z"),
    ("charset byte for byte", "/c6", "alias {root}/german.html; types {} default_type text/html; charset two; source_charset one;", (), "200",
     "\r\n\r\na\xf1??"),
    ("ssi set and echo", "/set.shtml", "", (), "200", "1/set.shtml(none)D"),
    ("ssi encoding", "/encoded.shtml?x=a%20b", "", (), "200", "&lt;&amp;&quot; <&\" a%2520b"),
    ("ssi if", "/if.shtml?x=1", "", (), "200", "\r\n\r\none"),
    ("ssi elif", "/if.shtml?x=ab", "", (), "200", "\r\n\r\nreb"),
    ("ssi else", "/if.shtml", "", (), "200", "\r\n\r\nelse"),
    ("ssi include", "/include.shtml", "", (), "200", "asaidb(/inner.shtml)c"),
    ("ssi include into a variable", "/into.shtml", "", (), "200", "[said]"),
    ("ssi stub", "/stub.shtml", "", (), "200", "\r\n\r\nstubbed"),
    ("ssi errors", "/wrong.shtml", "", (), "200", "a[an error occurred while processing the directive]b[an error"),
    ("ssi silent errors", "/loud/wrong.shtml", "", (), "200", "\r\n\r\nabc"),
    ("ssi errmsg", "/told.shtml", "", (), "200", "\r\n\r\noh"),
    ("ssi text", "/text.shtml", "", (), "200", "<!-- a comment --><!--x--> "),
    ("secure_link", f"/link?m={LINK}&e=2147483647",
     'secure_link $arg_m,$arg_e; secure_link_md5 "$arg_e$uri secret"; echo $secure_link $secure_link_expires;', (), "200", "1 2147483647"),
    ("secure_link wrong", f"/link2?m={LINK}&e=2147483647",
     'secure_link $arg_m,$arg_e; secure_link_md5 "$arg_e$uri secret"; echo [$secure_link];', (), "200", "[]"),
    ("secure_link old form", f"/p/{OLD}/a/b", "secure_link_secret secret; echo $secure_link;", (), "200", "a/b"),
    ("expires by a variable", "/e0?e=day", "expires $when; echo x;", (), "200", "Cache-Control: max-age=86400"),
    ("expires by a bad one", "/e1?e=bad", "expires $when; echo x;", (), "200", "Content-Type: text/plain\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"),
    ("trailers", "/t0", "add_trailer X-A $uri; add_trailer X-B $sent_trailer_x_a; echo -n x;", (), "200", "1\r\nx\r\n0\r\nX-A: /t0\r\nX-B: /t0\r\n"),
]  # fmt: skip
