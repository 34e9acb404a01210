# What Ruby finds: pattern, options, subject -> names and spans. Run by hand: ruby cases.rb > ruby.json
# With a seed as the argument: random patterns instead of the table.
require 'json'
$VERBOSE = nil

PATTERNS = [
  'abc', 'a.c', 'a|bc|', '(a)(b)?', '(?<n>a)(b)', '(?<n>a)(?<m>b)?', "(?'q'x+)y", '(?<a-b>x)', '(?<@t>.)', '(?<1a>x)',
  '^a', 'a$', '^', '$', '\Aa', 'a\z', 'a\Z', '\Ga', 'x*^', '^$', '(^|x)b', '(?=^)b?',
  'a{2}?', 'a{1,2}+', 'a{,2}', 'x{,}', 'a{2}{3}', 'a**', 'a+?', 'a*?b', 'a++b', 'a*+a', 'a?+a', '*a', 'a|*', '(a{2,1})', 'a{',
  '(?i)AbC', 'a(?i)b|c', '(?i:a)b', '(?-i:a)b', '(?m:.)', '(?mi-x:a.)', '(?x: a b # c
  c)', 'a(?#comment)b', '(?x)a\ b',
  '\d+', '\D', '\w+', '\W', '\s', '\S+', '\h+', '\H', '\R', '\b.', '\B.', '\bé', 'é\b', '(?u:\w+)', '(?u:\d)', '(?a:[[:alpha:]])',
  '[a-c]+', '[^a-c]+', '[]a]', '[a\]]+', '[a-]+', '[-a]+', '[a\-z]+', '[\w.]+', '[^\s]+', '[a-z&&[^aeiou]]+', '[a&&b]', '[a[bc]]+',
  '[^a[bc]]+', '[\b]', '[[:alpha:]]+', '[[:^alpha:]]', '[[:punct:]]+', '[[:space:]]+', '[[:alnum:]_-]+', '[[:digit:]]+', '[[:upper:]]',
  '[[:lower:]]+', '[[:xdigit:]]+', '[[:cntrl:]]', '[[:graph:]]+', '[[:print:]]+', '[[:blank:]]', '[[:word:]]+', '[[:foo:]]',
  '\p{Alpha}+', '\p{^Alpha}', '\P{Alpha}', '\p{L}+', '\p{Lu}', '\p{Greek}+', '[\p{L}\d]+', '\p{Nope}', '[z-a]', '[a-\d]', '[]', '[a',
  '\t\n\r\f\v\a\e', '\x41', '\u0042', '\u{43 44}', '\cA', '\101', '\0', '\xc3\xa9', '\xff', '\y', '\q', '\/', '\-', '\.', '\\',
  '(a)\1', '(a)\k<1>', '(a)\k<-1>', '(?<n>a)\k<n>', '(?<n>a)(b)\1', '\k<x>', '(?<n>a|b\g<n>c)', '(a|b\g<1>c)', '\g<1>(a)', '\10',
  '(?<n>a)|(?<n>b)', '(?<n>a)?(?(<n>)b|c)', '(a)?(?(1)b|c)', '(?(<n>)b|c)',
  '(?=a)a', '(?!a).', '(?<=a)b', '(?<!a)b', '(?<!a|bc)d', '(?<=a|bc)d', '(?<=\s)\S+', '(?>a+)b', '(?>a|ab)c', 'ab\Kc',
  '(?~abc)', '/\*(?~\*/)\*/', '(', ')', '(?', '(?<', '(?<>a)', 'a]', 'a}', '\X', 'e\u0301', '.', '..', '[^\n]+',
  '^(?<host>[^ ]*) [^ ]* (?<user>[^ ]*) \[(?<time>[^\]]*)\] "(?<method>\S+)(?: +(?<path>[^ ]*) +\S*)?" (?<code>[^ ]*) (?<size>[^ ]*)$',
  '^(?<level>\w+):\s*(?<message>.*)$', '(?<key>[^=\s]+)=(?<value>"[^"]*"|\S+)', '^(?<time>\d{4}-\d{1,2}-\d{1,2} \d{1,2}:\d{1,2}:\d{1,2}) \[(?<thread>.*)\] (?<level>[^\s]+)(?<message>.*)',
].freeze
SUBJECTS = [
  '', 'a', 'abc', 'ab', 'aab', 'aaaaaa', 'ABC', 'xabcabcx', "a\n", "x\nab\n", "\n", "a\nb", 'b', 'bc d', 'abcd', 'é', 'aé', 'Éa ñandú',
  'Ωμέγα 42', '٣', 'x{,}', "\t\n\r\f\v\a\e", "\r\n", "a]-z.", '$+<=>^`|~.,!', '_w-9 ', "\u00a0\u2003", "e\u0301", 'bad', 'bbacc', 'DEADbeef',
  'aa', 'BCD', "\x01\b", 'y q / - . \\', '/* x */ */', 'xyz', "a b\nc d", 'ab c', 'STRASSE straße ss ß', 'CD', 'A',
  '192.168.0.1 - - [28/Feb/2013:12:00:00 +0900] "GET / HTTP/1.1" 200 777', 'INFO: all is well', 'k="v w" z=1',
  '2013-3-03 14:27:33 [main] INFO  Main - Start', 'a;b',
].freeze

def found(pattern, options, subject)
  match = pattern.match(subject)
  match && (0...match.size).map { |index| match.begin(index) && [match.begin(index), match.end(index)] }
end

def row(text, options)
  pattern = Regexp.new(text, options)
  { pattern: text, options: options, names: pattern.names, found: SUBJECTS.map { |subject| found(pattern, options, subject) } }
rescue RegexpError => e
  { pattern: text, options: options, error: e.message }
end

def random_pattern(random, depth)
  atoms = ['a', 'b', 'c', '.', '\d', '\w', '\s', '[a-c]', '[^a]', '[a-z&&[^b]]', '^', '$', '\b', '\h', 'é', '[[:alpha:]]', '\A', '\z', '\Z', '[^\n]', '\n', '\W', '[\W]', '[^\w]']
  pick = random.rand(depth.positive? ? 12 : 4)
  case pick
  when 0..4 then atoms.sample(random: random)
  when 5 then "(#{random_pattern(random, depth - 1)})"
  when 6 then "(?:#{random_pattern(random, depth - 1)})" + ['', '*', '+', '?', '{1,2}', '*?', '++', '{2}?', '{,2}', '+?'].sample(random: random)
  when 7 then "#{random_pattern(random, depth - 1)}|#{random_pattern(random, depth - 1)}"
  when 8 then "(?#{['=', '!', '>', 'i:', 'm:', '-i:'].sample(random: random)}#{random_pattern(random, depth - 1)})"
  when 9 then atoms.first(10).sample(random: random) + ['*', '+', '?', '{1,2}', '*?', '++', '{2}'].sample(random: random)
  else random_pattern(random, depth - 1) + random_pattern(random, depth - 1)
  end
end

rows =
  if ARGV[0]
    random = Random.new(ARGV[0].to_i)
    Array.new(3000) { row(random_pattern(random, 4), [0, 0, 0, 1, 4].sample(random: random)) }
  else
    PATTERNS.flat_map { |text| [row(text, 0)] + (text =~ /[a-z.]/ ? [row(text, 1), row(text, 4)] : []) }
  end
puts JSON.generate(subjects: SUBJECTS, rows: rows)
