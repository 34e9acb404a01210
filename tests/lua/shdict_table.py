"""Shared dictionaries, snippet by snippet: the code of a content handler, and its output here and in nginx.

Each snippet has a dictionary `d` of its own name; what a store returns as its third value is left out where the two
count memory differently.
"""

TABLE: list[tuple[str, str, str]] = [
    ("get nothing", "ngx.say(d:get('a'))", "nil\n"),
    ("set and get", "ngx.say(d:set('a', 32)) ngx.say(d:get('a'))", "truenilfalse\n32\n"),
    (
        "types",
        "d:set('s', 'x\\0y') d:set('b', false) d:set('t', true) d:set('n', 3.25) ngx.say(#d:get('s'), d:get('b'), d:get('t'), d:get('n'))",
        "3falsetrue3.25\n",
    ),
    ("nil removes", "d:set('a', 1) ngx.say(d:set('a', nil)) ngx.say(d:get('a'))", "truenilfalse\nnil\n"),
    ("delete", "d:set('a', 1) ngx.say(d:delete('a')) ngx.say(d:get('a'))", "truenilfalse\nnil\n"),
    ("flags", "d:set('a', 1, 0, 199) ngx.say(d:get('a'))", "1199\n"),
    ("keys are text", "d:set(12, 'x') ngx.say(d:get('12'), d:get(12))", "xx\n"),
    ("nil key", "ngx.say(d:get(nil)) ngx.say(d:set(nil, 1))", "nilnil key\nnilnil key\n"),
    ("empty key", "ngx.say(d:get('')) ngx.say(d:set('', 1))", "nilempty key\nnilempty key\n"),
    ("long key", "ngx.say(d:set(('k'):rep(65536), 1))", "nilkey too long\n"),
    ("bad value", "ngx.say(d:set('a', {}))", "nilbad value type\n"),
    ("bad exptime", "ngx.say((select(2, pcall(d.set, d, 'a', 1, -1))):match('bad.*'))", 'bad "exptime" argument\n'),
    (
        "add",
        "ngx.say(d:add('a', 1)) ngx.say(d:add('a', 2)) ngx.say(d:get('a'))",
        "truenilfalse\nfalseexistsfalse\n1\n",
    ),
    (
        "replace",
        "ngx.say(d:replace('a', 1)) d:set('a', 1) ngx.say(d:replace('a', 2)) ngx.say(d:get('a'))",
        "falsenot foundfalse\ntruenilfalse\n2\n",
    ),
    ("safe_add", "ngx.say(d:safe_add('a', 1)) ngx.say(d:safe_add('a', 1))", "truenilfalse\nfalseexistsfalse\n"),
    ("incr", "d:set('a', 32) ngx.say(d:incr('a', 10)) ngx.say(d:get('a'))", "42\n42\n"),
    ("incr nothing", "ngx.say(d:incr('a', 10))", "nilnot found\n"),
    ("incr with init", "ngx.say(d:incr('a', 10, 1)) ngx.say(d:incr('a', 10, 1))", "11nilfalse\n21nilfalse\n"),
    ("incr of text", "d:set('a', 'x') ngx.say(d:incr('a', 1))", "nilnot a number\n"),
    ("incr by text", "d:set('a', 1) ngx.say(d:incr('a', '2'))", "3\n"),
    ("expiry", "d:set('a', 1, 0.02) ngx.say(d:get('a')) ngx.sleep(0.05) ngx.say(d:get('a'))", "1\nnil\n"),
    ("stale", "d:set('a', 1, 0.02) ngx.sleep(0.05) ngx.say(d:get_stale('a'))", "1niltrue\n"),
    ("not stale", "d:set('a', 1, 9, 7) ngx.say(d:get_stale('a'))", "17false\n"),
    ("stale nothing", "ngx.say(d:get_stale('a'))", "nil\n"),
    (
        "incr of an expired one",
        "d:set('a', 5, 0.02) ngx.sleep(0.05) ngx.say(d:incr('a', 1)) ngx.say(d:incr('a', 1, 0))",
        "nilnot found\n1nilfalse\n",
    ),
    ("init_ttl", "d:incr('a', 1, 0, 0.02) ngx.say(d:get('a')) ngx.sleep(0.05) ngx.say(d:get('a'))", "1\nnil\n"),
    (
        "ttl",
        "d:set('a', 1) d:set('b', 1, 100) ngx.say(d:ttl('a'), math.ceil(d:ttl('b'))) ngx.say(d:ttl('c'))",
        "0100\nnilnot found\n",
    ),
    (
        "expire",
        "d:set('a', 1) ngx.say(d:expire('a', 100)) ngx.say(math.ceil(d:ttl('a'))) ngx.say(d:expire('b', 1))",
        "true\n100\nnilnot found\n",
    ),
    ("expire for ever", "d:set('a', 1, 5) d:expire('a', 0) ngx.say(d:ttl('a'))", "0\n"),
    ("flush_all", "d:set('a', 1) d:flush_all() ngx.say(d:get('a')) ngx.say(d:get_stale('a'))", "nil\nnil\n"),
    (
        "flush_expired",
        "d:set('a', 1, 0.01) d:set('b', 1, 0.01) d:set('c', 1) ngx.sleep(0.03) ngx.say(d:flush_expired(1), d:flush_expired(), d:flush_expired())",
        "110\n",
    ),
    (
        "get_keys",
        "for _, k in ipairs{'a', 'b', 'c'} do d:set(k, 1) end local k = d:get_keys() table.sort(k) ngx.say(table.concat(k, ','), #d:get_keys(2), #d:get_keys(0))",
        "a,b,c23\n",
    ),
    (
        "get_keys without the expired",
        "d:set('a', 1, 0.01) d:set('b', 1) ngx.sleep(0.03) ngx.say(d:get_keys()[1])",
        "b\n",
    ),
    (
        "push and pop",
        "ngx.say(d:lpush('l', 'a'), d:lpush('l', 7), d:rpush('l', 'z'), d:llen('l')) ngx.say(d:lpop('l'), d:rpop('l'), d:lpop('l')) ngx.say(d:lpop('l')) ngx.say(d:llen('l'))",
        "1233\n7za\nnil\n0\n",
    ),
    (
        "list and value",
        "d:rpush('l', 1) ngx.say(d:get('l')) d:set('a', 1) ngx.say(d:lpush('a', 1)) ngx.say(d:llen('a')) ngx.say(d:rpop('a'))",
        "nilvalue is a list\nnilvalue not a list\nnilvalue not a list\nnilvalue not a list\n",
    ),
    ("a list becomes a value", "d:rpush('l', 1) ngx.say(d:set('l', 2)) ngx.say(d:get('l'))", "truenilfalse\n2\n"),
    ("bad list value", "ngx.say(d:lpush('l', true))", "nilbad value type\n"),
    (
        "long values",
        "d:set('a', ('x'):rep(5000)) ngx.say(#d:get('a')) d:set('a', 'y') ngx.say(d:get('a'))",
        "5000\ny\n",
    ),
    ("names", "ngx.say(ngx.shared.nothing, type(ngx.shared))", "niltable\n"),
    ("capacity", "ngx.say(d:capacity(), d:free_space() > 0)", "102400true\n"),
    ("no memory when safe", "ngx.say(d:safe_set('a', ('x'):rep(200000)))", "falseno memoryfalse\n"),
    (
        "eviction",
        "local forced = 0 for i = 1, 300 do local ok, err, f = d:set('k' .. i, ('v'):rep(1000)) assert(ok, err) if f then forced = forced + 1 end end ngx.say(forced > 100, d:get('k1') == nil, #d:get('k300'))",
        "truetrue1000\n",
    ),
]
