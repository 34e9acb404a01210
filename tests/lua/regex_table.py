"""ngx.re, snippet by snippet: the code of a content handler, and its output here and in nginx with its Lua module."""

SHOW = """
local function show(m, err)
    if not m then return ngx.say("no ", err) end
    local t = {}
    for i = 0, #m do t[#t + 1] = tostring(m[i]) end
    ngx.say(table.concat(t, "|"))
end
"""


def row(name: str, code: str, output: str) -> tuple[str, str, str]:
    return name, SHOW + code, output


TABLE: list[tuple[str, str, str]] = [
    row("match", "show(ngx.re.match('hello, 1234', '[0-9]+'))", "1234\n"),
    row("captures", "show(ngx.re.match('hello, 1234', '([0-9])[0-9]+'))", "1234|1\n"),
    row("no match", "show(ngx.re.match('hello', '[0-9]+'))", "no nil\n"),
    row("unset in the middle", "show(ngx.re.match('b', '(a)|(b)'))", "b|false|b\n"),
    row("unset at the end", "show(ngx.re.match('a', '(a)|(b)'))", "a|a|false\n"),
    row("empty capture", "show(ngx.re.match('a', '(x*)a()'))", "a||\n"),
    row("names", "local m = ngx.re.match('x7', '(?<a>x)(?<b>y)?(?<c>7)') ngx.say(m.a, m.b, m.c)", "xfalse7\n"),
    row(
        "duplicate names",
        "local m = ngx.re.match('hello', '(?<n>h)(?<n>e)(?<n>x)?', 'D') ngx.say(table.concat(m.n, '-'), m[3])",
        "h-efalse\n",
    ),
    row("options i", "show(ngx.re.match('HeLLo', 'hello', 'i'))", "HeLLo\n"),
    row("options s", "show(ngx.re.match('a\\nb', 'a.b', 's'))", "a\nb\n"),
    row("options m", "show(ngx.re.match('a\\nb', '^b$', 'm'))", "b\n"),
    row("options x", "show(ngx.re.match('ab', 'a b # c', 'x'))", "ab\n"),
    row("options a", "show(ngx.re.match('xa', 'a', 'a'))", "no nil\n"),
    row("options d", "show(ngx.re.match('hello', 'h|he|hel', 'd'))", "hel\n"),
    row("options d and captures", "show(ngx.re.match('hello', '(h)(e)', 'd'))", "he\n"),
    row("options u", "show(ngx.re.match('hello章亦', 'hello.{2}', 'u'))", "hello章亦\n".encode().decode("latin-1")),
    row("options jo", "for _ = 1, 3 do show(ngx.re.match('ab12', '([a-z]+)([0-9]+)', 'jo')) end", "ab12|ab|12\n" * 3),
    row(
        "unknown option",
        "local ok, why = pcall(ngx.re.match, 'a', 'a', 'Hu') ngx.say(ok, why:match('unknown.*'))",
        'falseunknown flag "H" (flags "Hu")\n',
    ),
    row("numbers", "show(ngx.re.match(1234, '2(3)'))", "23|3\n"),
    row("nil is text", "show(ngx.re.match(nil, 'nil'))", "nil\n"),
    row("ctx", "local c = {pos = 2} show(ngx.re.match('1a2b', '\\\\d', '', c)) ngx.say(c.pos)", "2\n4\n"),
    row("ctx without pos", "local c = {} show(ngx.re.match('1a2b', '\\\\d', '', c)) ngx.say(c.pos)", "1\n2\n"),
    row("ctx no match", "local c = {pos = 2} show(ngx.re.match('1ab', '\\\\d', '', c)) ngx.say(c.pos)", "no nil\n2\n"),
    row(
        "a table for the result",
        "local t = {9, 9, x = 1} local m = ngx.re.match('ab', '(a)', '', nil, t) ngx.say(m == t, t[0], t[1], t[2], t.x)",
        "trueaa91\n",
    ),
    row("find", "ngx.say(ngx.re.find('hello, 1234', '([0-9])([0-9]+)', 'jo'))", "811\n"),
    row("find nth", "ngx.say(ngx.re.find('hello, 1234', '([0-9])([0-9]+)', 'jo', nil, 2))", "911\n"),
    row("find nth unset", "ngx.say(ngx.re.find('a', '(a)|(b)', 'jo', nil, 2))", "nilnil\n"),
    row("find nth out", "ngx.say(ngx.re.find('a', '(a)', 'jo', nil, 2))", "nilnilnth out of bound\n"),
    row("find empty", "ngx.say(ngx.re.find('abc', ''))", "10\n"),
    row("find nothing", "ngx.say(ngx.re.find('abc', 'x'))", "nil\n"),
    row(
        "find in ctx",
        "local c = {pos = 2} ngx.say(ngx.re.find('aXaX', 'X', 'jo', c)) ngx.say(c.pos)",
        "22\n3\n",
    ),
    row("gmatch", "for m in ngx.re.gmatch('hello, world', '[a-z]+') do ngx.say(m[0]) end", "hello\nworld\n"),
    row("gmatch empty", "for m in ngx.re.gmatch('ab', 'x*') do ngx.print('[', m[0], ']') end", "[][][]"),
    row("gmatch mixed", "for m in ngx.re.gmatch('axxb', 'x*') do ngx.print('[', m[0], ']') end", "[][xx][][]"),
    row("gmatch at its end", "local it = ngx.re.gmatch('a', 'a') ngx.say(it() ~= nil, it(), it())", "truenilnil\n"),
    row("sub", "ngx.say(ngx.re.sub('hello, 1234', '([0-9])[0-9]', '[$0][$1]'))", "hello, [12][1]341\n"),
    row("sub braces", "ngx.say(ngx.re.sub('hello, 1234', '[0-9]', '${0}00'))", "hello, 1002341\n"),
    row("sub dollar", "ngx.say(ngx.re.sub('hello, 1234', '[0-9]', '$$'))", "hello, $2341\n"),
    row("sub missing group", "ngx.say(ngx.re.sub('abc', 'b', '[$3]'))", "a[]c1\n"),
    row("sub nothing", "ngx.say(ngx.re.sub('abc', 'x', 'y'))", "abc0\n"),
    row("sub number", "ngx.say(ngx.re.sub('abc', 'b', 7))", "a7c1\n"),
    row("sub function", "ngx.say(ngx.re.sub('abc', '(b)', function(m) return m[1]:upper() .. m[0] end))", "aBbc1\n"),
    row("sub function number", "ngx.say(ngx.re.gsub('a1b2', '[0-9]', function(m) return m[0] * 2 end))", "a2b42\n"),
    row("sub function dollar", "ngx.say(ngx.re.sub('abc', 'b', function() return '$0' end))", "a$0c1\n"),
    row("gsub", "ngx.say(ngx.re.gsub('hello, world', '([a-z])[a-z]+', '[$0,$1]', 'i'))", "[hello,h], [world,w]2\n"),
    row("gsub empty", "ngx.say(ngx.re.gsub('hello', '', '-'))", "-h-e-l-l-o-6\n"),
    row("gsub lookahead", "ngx.say(ngx.re.gsub('hello', 'a|(?=l)', '-'))", "he-l-lo2\n"),
    row(
        "gsub nested",
        """
local out = ngx.re.gsub('ab cd', '\\\\w+', function(m)
    return (ngx.re.gsub(m[0], '\\\\w', function(n) return n[0]:upper() .. '.' end, 'jo'))
end, 'jo') ngx.say(out)""",
        "A.B. C.D.\n",
    ),
    row("bad template", "ngx.say(ngx.re.sub('abc', 'b', '$'))", "nilnilfailed to compile the replacement template\n"),
    row(
        "named template",
        "ngx.say(ngx.re.sub('a', '(?<n>a)', '$n'))",
        "nilnilfailed to compile the replacement template\n",
    ),
    row("open template", "ngx.say(ngx.re.sub('a', 'a', '${0'))", "nilnilfailed to compile the replacement template\n"),
    row("bytes", "show(ngx.re.match('a\\0b\\255', '\\\\x00b(\\\\xff)'))", "\0b\xff|\xff\n"),
    row("split", "local r = require('ngx.re') ngx.say(table.concat(r.split('a,b,c', ','), '|'))", "a|b|c\n"),
    row("split captures", "local r = require('ngx.re') ngx.say(table.concat(r.split('a,b', '(,)'), '|'))", "a|,|b\n"),
    row("split chars", "local r = require('ngx.re') ngx.say(table.concat(r.split('abcd', ''), '|'))", "a|b|c|d\n"),
    row(
        "split pos",
        "local r = require('ngx.re') ngx.say(table.concat(r.split('a,b,c,d', ',', nil, {pos = 5}), '|'))",
        "c|d\n",
    ),
    row(
        "split max",
        "local r = require('ngx.re') ngx.say(table.concat(r.split('a,b,c,d', ',', nil, nil, 3), '|'))",
        "a|b|c,d\n",
    ),
    row("split empty end", "local r = require('ngx.re') ngx.say(table.concat(r.split('a,b,,', ','), '|'))", "a|b\n"),
    row("split empty start", "local r = require('ngx.re') ngx.say(table.concat(r.split(',a', ','), '|'))", "|a\n"),
    row("split nothing", "local r = require('ngx.re') ngx.say(#r.split('', ','))", "0\n"),
    row(
        "split into a table",
        "local r = require('ngx.re') local t = {1, 2, 3, 4} r.split('a,b', ',', nil, nil, nil, t) ngx.say(t[1], t[2], t[3], t[4])",
        "abnil4\n",
    ),
]
"""Those that both have alike; lua-resty-core is what brings the module ngx.re to nginx."""

OURS = [
    row("options J", "show(ngx.re.match('a', '(b)?\\\\1a[^]', 'Js'))", "no nil\n"),
    row(
        "bad pattern",
        "show(ngx.re.match('a', '(abc'))",
        'no pcre2_compile() failed: missing closing parenthesis in "(abc"\n',
    ),
    row(
        "bad pattern in the middle",
        "show(ngx.re.match('a', 'a)b'))",
        'no pcre2_compile() failed: unmatched closing parenthesis in "a)b" at ")b"\n',
    ),
    row(
        "bad pattern in find",
        "ngx.say(ngx.re.find('a', '['))",
        'nilnilpcre2_compile() failed: missing terminating ] for character class in "["\n',
    ),
    row(
        "bad pattern in gsub",
        "ngx.say(ngx.re.gsub('a', '*', ''))",
        'nilnilpcre2_compile() failed: quantifier does not follow a repeatable item in "*" at "*"\n',
    ),
    row("not UTF-8", "show(ngx.re.match('\\255\\254', '.', 'u'))", "no pcre_exec() failed: -23\n"),
    row("gsub of characters", "ngx.say(ngx.re.gsub('章亦', '', '-', 'u'))", "-章-亦-3\n".encode().decode("latin-1")),
    row(
        "patterns that do not fit are compiled all the same",
        "for i = 1, 600 do assert(ngx.re.match('a' .. i, 'a' .. i, i % 2 == 0 and 'jo' or 'j')) end ngx.say('ok')",
        "ok\n",
    ),
]
