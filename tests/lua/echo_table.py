"""The echo module: what stands in the location of each case, and its body here and in nginx.

Requests are POSTs of `posted` to /caseN?a=1 with the field X-Some: value.
"""

LOCATIONS = """
location = /one { echo one; }
location = /two { echo_sleep 0.02; echo two; }
location = /show { echo "$echo_request_method $uri?$args"; }
location = /body { echo_request_body; echo "[$http_content_length]"; }
location = /setter { set $shared "by sub"; echo done; }
"""

TABLE: list[tuple[str, str, str]] = [
    ("echo", "echo hello;", "hello\n"),
    ("words", "echo hello big world;", "hello big world\n"),
    ("nothing", "echo;", "\n"),
    ("no newline", "echo -n hello; echo world;", "helloworld\n"),
    ("no options", "echo -- -n;", "-n\n"),
    ("variables", "echo $arg_a $uri;", "1 URI\n"),
    ("duplicate", "echo_duplicate 3 ab; echo;", "ababab\n"),
    ("duplicate by variable", "set $n 2; echo_duplicate $n $n;", "22"),
    ("flush", "echo a; echo_flush; echo b;", "a\nb\n"),
    ("sleep", "echo a; echo_sleep 0.01; echo b;", "a\nb\n"),
    ("read body", "echo_read_request_body; echo_request_body;", "posted"),
    ("body variable", "echo_read_request_body; echo $echo_request_body;", "posted\n"),
    ("location", "echo a; echo_location /one; echo b;", "a\none\nb\n"),
    ("location with args", "echo_location /show x=1;", "GET /show?x=1\n"),
    ("location with args in the uri", "echo_location /show?y=2;", "GET /show?y=2\n"),
    ("two that wait", "echo_location /two; echo_location /one;", "two\none\n"),
    ("async in order", "echo_location_async /two; echo_location_async /one; echo end;", "two\none\nend\n"),
    ("subrequest", "echo_subrequest DELETE /show -q x=1;", "DELETE /show?x=1\n"),
    ("subrequest with a body", "echo_subrequest POST /body -b abc;", "abc[3]\n"),
    ("subrequest async", "echo_subrequest_async PUT /show; echo end;", "PUT /show?\nend\n"),
    ("variables of its own", 'set $shared ""; echo_location /setter; echo $shared;', "done\n\n"),
    ("foreach", "echo_foreach_split , a,b,c; echo item $echo_it; echo_end; echo end;", "item a\nitem b\nitem c\nend\n"),
    ("foreach by variable", "set $l 'x&y'; echo_foreach_split '&' $l; echo -n $echo_it; echo_end;", "xy"),
    ("exec", "echo_exec /one;", "one\n"),
    ("exec with args", "echo_exec /show z=3;", "POST /show?z=3\n"),
    ("status", "echo_status 404; echo gone;", "gone\n"),
    ("before and after", "echo_before_body <; echo_after_body >; echo x;", "<\nx\n>\n"),
    ("around another content", "echo_before_body -n [; echo_after_body -n ]; return 200 abc;", "[abc]"),
    ("around a special page", "echo_after_body after; return 201 x;", "xafter\n"),
    ("methods", "echo $echo_request_method $echo_client_request_method $request_method;", "POST POST POST\n"),
    ("head", "echo $echo_client_request_headers;", "HEAD\n"),
    ("timer", "echo_reset_timer; echo_sleep 0.001; echo ok;", "ok\n"),
    ("in if", "if ($arg_a) { echo yes; } echo no;", "yes\n"),
    ("rewritten", "rewrite ^ /one last;", "one\n"),
    ("missing", "echo_location /nothing-here; echo after;", "MISSING"),
]
