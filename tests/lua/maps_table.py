"""map, geo and split_clients: what stands in http, the requests, and the text of the answer here and in nginx."""

HTTP = r"""
map $arg_a $plain { default none; one 1; "two words" 2; TWO 22; \default escaped; "" empty; }
map $arg_a $regex { ~^x(.)(?<rest>.*)$ "$1-$rest"; ~*^AB ab; default $uri; }
map $arg_h $host_of { hostnames; default none; example.com exact; *.example.com head; .dot.org dot; mail.* tail; }
map "$arg_a:$arg_b" $both { "1:2" yes; default no; }
map $arg_a $order { ~x first; x plain; }
geo $arg_g $net { default d; 10.0.0.0/8 ten; 10.1.0.0/16 ten1; 10.1.2.3 one; 2001:db8::/32 six; 192.168.0.0/16 x; delete 192.168.0.0/16; }
geo $arg_g $range { ranges; default d; 10.0.0.0-10.0.0.255 a; 10.0.0.10-10.0.0.20 b; 10.0.1.0-10.0.1.255 c; delete 10.0.1.5-10.0.1.6; 10.0.3.0-10.0.3.9 e; delete 10.0.3.0-10.0.3.9; }
split_clients $arg_s $split { 20% a; 30.5% b; * c; }
split_clients $arg_s $half { 50% "$arg_s-a"; }
"""
SHOW = 'return 200 "$plain|$regex|$host_of|$both|$order|$net|$range|$split|$half";'

REQUESTS = [
    "",
    "a=one",
    "a=ONE",
    "a=two",
    "a=default",
    "a=xyz",
    "a=xy",
    "a=abc",
    "a=1&b=2",
    "a=x",
    "h=example.com",
    "h=a.example.com",
    "h=b.a.Example.COM",
    "h=dot.org",
    "h=a.dot.org",
    "h=mail.a.b",
    "h=mail",
    "h=example.com.",
    "h=other",
    "g=10.2.3.4",
    "g=10.1.9.9",
    "g=10.1.2.3",
    "g=2001:db8::1",
    "g=192.168.1.1",
    "g=11.0.0.1",
    "g=nonsense",
    "g=::ffff:10.1.2.3",
    "g=10.0.0.0",
    "g=10.0.0.9",
    "g=10.0.0.10",
    "g=10.0.0.20",
    "g=10.0.0.21",
    "g=10.0.1.4",
    "g=10.0.1.5",
    "g=10.0.1.7",
    "g=10.0.2.0",
    "g=10.0.3.4",
    *(f"s=client{i}" for i in range(20)),
    "s=",
    "s=a",
    "s=ab",
    "s=abc",
    "s=abcd",
]
