# Makes fluentd.json: what Fluentd's own formatters, parsers and time classes do with the cases below.
#   ruby -I FLUENTD/lib tests/golden/formats/cases.rb > tests/golden/formats/fluentd.json
ENV["TZ"] = "Asia/Kolkata"
require "json"
require "fluent/config"
require "fluent/engine"
require "fluent/plugin"
require "fluent/log"
require "fluent/plugin/formatter"
require "fluent/plugin/parser"
require "fluent/test"
require "fluent/test/driver/formatter"
require "fluent/test/driver/parser"

[Fluent::Plugin::Formatter, Fluent::Plugin::Parser].each { |kind| kind.define_method(:log) { $log } }
SECONDS, NANOSECONDS = 1_700_000_000, 123_456_789

RECORDS = {
  "plain" => {"message" => "hello world", "n" => 1, "f" => 2.5, "yes" => true, "no" => false, "none" => nil},
  "nested" => {"message" => "x", "a" => {"b" => [1, {"c" => "d"}], "e" => nil}, "list" => [1.0, nil, "z"]},
  "text" => {"message" => "tab\there, \"quoted\", comma,\nnew line", "u" => "é \u{1F600} \u2028", "empty" => "", "slash" => "/<>&"},
  "numbers" => {"message" => 12, "big" => 2**70, "small" => -(2**70), "e" => 1e20, "d" => 1.5e-7, "z" => 0.0, "i" => 1e15},
  "spaces" => {"message" => " lead", "a" => "trail ", "c" => "\x01\x7f"},
  "empty" => {},
}

FORMATTERS = [
  ["json", {}], ["json", {"add_newline" => "false"}], ["json", {"newline" => "crlf"}],
  ["msgpack", {}], ["hash", {}], ["hash", {"add_newline" => "false"}],
  ["single_value", {}], ["single_value", {"message_key" => "a", "newline" => "crlf"}],
  ["ltsv", {}], ["ltsv", {"delimiter" => ",", "label_delimiter" => "=", "replacement" => "_"}],
  ["tsv", {"keys" => "message,n,none,missing"}], ["tsv", {"keys" => "a,message", "delimiter" => "|"}],
  ["csv", {"fields" => "message,n,none,a,empty"}], ["csv", {"fields" => "message,f,c,u,empty", "force_quotes" => "false"}],
  ["csv", {"fields" => "$.a.e,$.a.b[1].c,message", "delimiter" => "TAB"}],
  ["csv", {"fields" => "message,yes", "delimiter" => ";", "add_newline" => "false"}],
  ["out_file", {}], ["out_file", {"output_tag" => "false", "delimiter" => "SPACE", "utc" => "true"}],
  ["out_file", {"output_time" => "false", "delimiter" => "COMMA"}],
  ["out_file", {"time_format" => "%d/%b/%Y:%H:%M:%S.%L %z", "timezone" => "Asia/Tokyo"}],
  ["out_file", {"time_type" => "unixtime"}],
  ["stdout", {}], ["stdout", {"output_type" => "ltsv", "delimiter" => ","}],
]

APACHE = [
  '192.168.0.1 - - [28/Feb/2013:12:00:00 +0900] "GET / HTTP/1.1" 200 777', '192.168.0.1 - bob [28/Feb/2013:12:00:00 +0900] "GET /a?b=c HTTP/1.1" 200 - "-" "Opera/12.0"',
  '- - - [28/Feb/2013:12:00:00 +0900] "POST /x y HTTP/1.0" 0 12x "http://r/" "a b"', '::1 - - [28/Feb/2013:12:00:00 +0900] "GET" 408 -',
  '::1 - - [28/Feb/2013:12:00:00 +0900] "GET  /two   HTTP/1.1" abc 1', '::1 - - [28/Feb/2013:12:00:00 +0900] "GET /\\"q\\" HTTP/1.1" 200 5 "\\"r\\"" "a\\"g"',
  '::1 - - [28/Feb/2013:12:00:00 +0900] "-" 408 - "-" "-"', '::1 - - [28/Feb/2013:12:00:00 +0900] "" 400 0', '::1 - - [nonsense] "GET / HTTP/1.1" 200 1',
  '::1 - - [28/Feb/2013:12:00:00 +0900] "GET /only" 200 1 "a" "b" "extra"', '::1 - - [28/Feb/2013:12:00:00 +0900] "GET / HTTP/1.1\\n" 200 1',
  "first\n::1 - - [28/Feb/2013:12:00:00 +0900] \"GET / HTTP/1.1\" 200 1\nlast", "::1 - - [28/Feb/2013:12:00:00 +0900] \"GET / HTTP/1.1\" 200 1\n", "nothing", "",
].freeze
NGINX = [
  '127.0.0.1 192.168.0.1 - [28/Feb/2013:12:00:00 +0900] "GET / HTTP/1.1" 200 777 "-" "Opera/12.0" -', '127.0.0.1 h u [28/Feb/2013:12:00:00 +0900] "GET /a b HTTP/1.1" 200 777 "-" "Opera/12.0"',
  '127.0.0.1 - - [28/Feb/2013:12:00:00 +0900] "GET / HTTP/1.1" 200 777 "-" "Opera/12.0" "10.0.0.1, 10.0.0.2"', '127.0.0.1 - - [28/Feb/2013:12:00:00 +0900] "GET / HTTP/1.1" 200 777',
  '127.0.0.1 - - [28/Feb/2013:12:00:00 +0900] "" 400 0 "-" "-" "-"', '127.0.0.1 - - [28/Feb/2013:12:00:00 +0900] "GET" 400 0 "-" "-" ""', '127.0.0.1 - - [28/Feb/2013:12:00:00 +0900] "GET  /two  x" 400 0 "-" "-"',
  '127.0.0.1 - - [28/Feb/2013:12:00:00 +0900] "GET / HTTP/1.1" 200 777 "a"b" "c"', "nothing",
].freeze

PARSERS = [
  ["json", {}, ['{"a":1}', '[{"a":1},{"b":2}]', '[1]', '3', '{"a":', '', '{"time":1362020400,"x":"y"}',
                '{"time":1362020400.123456789,"x":1}', '{"time":"1362020400.5"}', '{"a":{"b":[1,2.5,null,true]}}']],
  ["json", {"time_format" => "%Y-%m-%d %H:%M:%S %z", "keep_time_key" => "true"}, ['{"time":"2013-02-28 12:00:00 +0900"}']],
  ["json", {"time_type" => "unixtime", "time_key" => "t"}, ['{"t":1362020400.9}', '{"t":"1362020400"}']],
  ["json", {"types" => "a:string,b:integer,c:float,d:bool,e:array,f:array:|,g:time:%Y-%m-%d %z,h:time:unixtime,i:time:float"},
   ['{"a":1,"b":"12abc","c":"1.5x","d":"yes","e":"1,2,,","f":"x|y","g":"2013-02-28 +0000","h":"1362020400","i":"1362020400.25"}',
    '{"a":null,"b":"x","c":"y","d":"no","e":"","f":5,"g":"never","b2":1}', '{"a":[1,"x"],"b":2.9,"c":3,"d":true}']],
  ["json", {"null_value_pattern" => "^-$", "null_empty_string" => "true"}, ['{"a":"-","b":"","c":"x-"}']],
  ["ltsv", {}, ["a:1\tb:2", "time:2013-02-28 12:00:00 +0900\thost:h:1", "nolabel\tx:", ""]],
  ["ltsv", {"delimiter" => ",", "label_delimiter" => "="}, ["a=1,b=2=3,c"]],
  ["ltsv", {"delimiter_pattern" => "/\\s+/", "label_delimiter" => "="}, ["a=1   b=2\tc=3"]],
  ["csv", {"keys" => "a,b,c"}, ["1,2,3", "1,,\"\"", "\"x\"\"y\",\"p,q\",z", "1", "1,2,3,4", "a\r\n", "\"a\nb\",c,d"]],
  ["csv", {"keys" => "a,b,c", "parser_engine" => "fast"}, ["1,2,3", "1,,\"\"", "\"x\"\"y\",\"p,q\",z", "1", "a\"b,c,d", "\"a,b\",\"c\"\"d\"\"e\",f\n"]],
  ["csv", {"keys" => "a,b", "delimiter" => "||"}, ["1||2", "\"x||y\"||z"]],
  ["csv", {"keys" => "time,b", "time_key" => "time", "time_format" => "%Y-%m-%dT%H:%M:%S.%N%z"}, ["2013-02-28T12:00:00.123456789+0900,x"]],
  ["tsv", {"keys" => "a,b,c"}, ["1\t2\t3", "1\t2", "1\t2\t3\t4", "\t\t"]],
  ["tsv", {"keys" => "a,b", "delimiter" => "|", "types" => "a:integer"}, ["1|x|y"]],
  ["none", {}, ["hello", ""]], ["none", {"message_key" => "log"}, ["x"]],
  ["regexp", {"expression" => '/^(?<host>\S+) \[(?<time>[^\]]*)\] (?<code>\d+)(?: (?<opt>\w+))?$/',
              "time_format" => "%d/%b/%Y:%H:%M:%S %z", "types" => "code:integer"},
   ["192.168.0.1 [28/Feb/2013:12:00:00 +0900] 200", "h [28/Feb/2013:12:00:00 +0900] 404 x", "nothing"]],
  ["regexp", {"expression" => '/^(?<a>\w+)(?<sep>[[:space:]]+)(?:(?<b>\h++)|(?<c>.*))$/', "null_empty_string" => "true"}, ["x c0fe", "x \tyes", "é"]],
  ["regexp", {"expression" => '/(?<time>.*?)\|(?<m>.*)/', "time_type" => "mixed", "time_format" => "unixtime",
              "time_format_fallbacks" => "%iso8601,%d/%b/%Y", "keep_time_key" => "true"},
   ["1362020400|a", "2013-02-28T12:00:00Z|b", "28/Feb/2013|c", "x|d"]],
  ["regexp", {"expression" => '/(?<time>.*?)\|(?<m>.*)/', "time_type" => "float", "utc" => "true", "types" => "m:array:;"}, ["1362020400.25|a;b;;c"]],
  ["apache2", {}, APACHE], ["apache2", {"keep_time_key" => "true"}, APACHE.first(1)], ["apache", {}, APACHE],
  ["nginx", {}, NGINX], ["nginx", {"types" => "code:integer,size:integer", "keep_time_key" => "true"}, NGINX.first(2)],
  ["apache_error", {}, [
    "[Wed Oct 11 14:32:52 2000] [error] [client 127.0.0.1] client denied by server configuration", "[Wed Oct 11 14:32:52 2000] [notice] Apache/2.4 configured",
    "[Wed Oct 11 14:32:52 2000] [core:error] [pid 9] [client ::1] x", "[Wed Oct 11 14:32:52.123456 2000] [core:error] [pid 9:tid 10] late", "nothing"]],
]

TIME_TEXTS = [
  ["%Y-%m-%d %H:%M:%S", {}, "2013-02-28 12:00:00"], ["%Y-%m-%d %H:%M:%S", {"utc" => "true"}, "2013-02-28 12:00:00"],
  ["%Y-%m-%d %H:%M:%S", {"timezone" => "Europe/Berlin"}, "2013-07-28 12:00:00"],
  ["%Y-%m-%d %H:%M:%S", {"timezone" => "-03:30"}, "2013-07-28 12:00:00"],
  ["%d/%b/%Y:%H:%M:%S %z", {}, "28/Feb/2013:12:00:00 +0900"], ["%Y-%m-%dT%H:%M:%S.%N%z", {}, "2013-02-28T12:00:00.123456789Z"],
  ["%Y-%m-%dT%H:%M:%S.%L%z", {}, "2013-02-28T12:00:00.5+05:30"], ["%Y-%m-%d %H:%M:%S,%L", {}, "2013-02-28 12:00:00,042"],
  ["%iso8601", {}, "2013-02-28T12:00:00Z"], ["%iso8601", {}, "2013-02-28T12:00:00.123456789+09:00"],
  ["%s", {}, "1362020400"], ["%s.%N", {}, "1362020400.000000001"], ["%a %b %e %H:%M:%S %Y", {}, "Thu Feb  7 12:00:00 2013"],
  ["%A, %d-%b-%y %H:%M:%S %Z", {}, "Thursday, 28-Feb-13 12:00:00 GMT"], ["%I:%M:%S %p %m/%d/%Y", {}, "01:02:03 PM 02/28/2013"],
  ["%Y%m%d%H%M%S", {"utc" => "true"}, "20130228120000"], ["%Y %j %H", {"utc" => "true"}, "2013 059 10"],
  ["%FT%T%z", {}, "2013-02-28T12:00:00-0800"], ["%Y-%m", {"utc" => "true"}, "2013-02"],
  ["%Y-%m-%d", {}, "nothing"], ["%Y-%m-%d", {"utc" => "true"}, "2013-02-28 and more"],
  ["%Y-%m-%dT%H:%M:%S.%3N%z", {}, "2013-02-28T12:00:00.123Z"], ["%Y-%m-%d %H:%M:%S.%6N %z", {}, "2013-02-28 12:00:00.123456 -0100"],
  ["%b %d %H:%M:%S %Y", {"utc" => "true"}, "Feb 28 12:00:00 2013"], ["%B %e, %Y %l:%M %P", {"utc" => "true"}, "February  3, 2013  1:05 am"],
  ["%d.%m.%y %k:%M", {"utc" => "true"}, "01.02.69  9:05"], ["%C%y-%m-%d", {"utc" => "true"}, "1999-12-31"],
  ["%D %T", {"utc" => "true"}, "02/28/13 12:34:56"], ["%F %R", {"utc" => "true"}, "2013-02-28 12:34"], ["%c", {"utc" => "true"}, "Thu Feb 28 12:00:00 2013"],
  ["%x %X", {"utc" => "true"}, "02/28/13 12:34:56"], ["%r %F", {"utc" => "true"}, "12:00:01 AM 2013-02-28"], ["%r %F", {"utc" => "true"}, "12:00:01 PM 2013-02-28"],
  ["%v %T", {"utc" => "true"}, "28-FEB-2013 12:00:00"], ["%Y/%m/%d %H:%M:%S.%N", {"utc" => "true"}, "2013/02/28 12:00:00.1"],
  ["%Y-%m-%d %H:%M:%S %Z", {}, "2013-02-28 12:00:00 JST"], ["%Y-%m-%d %H:%M:%S %Z", {}, "2013-02-28 12:00:00 PST"], ["%Y-%m-%d %H:%M:%S %Z", {}, "2013-02-28 12:00:00 +05:30"],
  ["%Y-%m-%d %H:%M:%S %z", {}, "2013-02-28 12:00:00 UTC"], ["%Y-%m-%d %H:%M:%S %z", {}, "2013-02-28 12:00:00 -08"], ["%Y-%m-%d %H:%M:%S%z", {}, "2013-02-28 12:00:00Z"],
  ["%Y-%m-%d %H:%M:%S", {"utc" => "true"}, "2013-02-28 23:59:60"], ["%Y-%m-%d %H:%M:%S", {"utc" => "true"}, "2013-02-30 12:00:00"], ["%Y-%m-%d %H:%M:%S", {"utc" => "true"}, "2013-02-28 24:00:00"],
  ["%Y-%m-%d %H:%M:%S", {"utc" => "true"}, "2013-02-28 25:00:00"], ["%Y-%m-%d %H:%M:%S", {"utc" => "true"}, "2013-2-8 1:2:3"], ["%Y-%m-%d", {"utc" => "true"}, " 2013-02-28"],
  ["%Q", {}, "1362020400123"], ["%s", {}, "-1"], ["%G-W%V-%u", {"utc" => "true"}, "2013-W09-4"], ["%Y-%U-%w", {"utc" => "true"}, "2013-08-4"],
  ["[%d/%b/%Y %H:%M:%S]", {"utc" => "true"}, "[28/FEB/2013 12:00:00]"], ["%%%Y", {"utc" => "true"}, "%2013"], ["%Y%n%m", {"utc" => "true"}, "2013  02"], ["%H:%M:%S.%L %d-%m-%Y", {"utc" => "true"}, "12:00:00.999999 28-02-2013"],
  ["%Y-%m-%dT%H:%M:%S%:z", {}, "2013-02-28T12:00:00+09:00"], ["%iso8601", {}, "2013-02-28 12:00:00"], ["%iso8601", {}, "2013-02-28"], ["%iso8601", {"timezone" => "+0900"}, "2013-02-28T12:00:00"], ["%iso8601", {}, "20130228T120000Z"],
  [nil, {}, "2013-02-28 12:00:00 +0900"], [nil, {}, "2013-02-28T12:00:00.123456789Z"], [nil, {}, "2013-02-28 12:00:00"],
  [nil, {}, "Thu, 28 Feb 2013 12:00:00 GMT"], [nil, {}, "Thu Feb 28 12:00:00 2013"],
  [nil, {}, "20130228T120000Z"], [nil, {}, "2013/02/28 12:00:00.5"], [nil, {}, "2013-02-28"], [nil, {}, "nothing at all"],
]

TIME_FORMATS = [
  [nil, {}], [nil, {"utc" => "true"}], [nil, {"timezone" => "+09:00"}], ["%Y-%m-%d %H:%M:%S.%N %z", {}],
  ["%Y-%m-%dT%H:%M:%S.%3N%:z", {"timezone" => "Asia/Tokyo"}], ["%s.%6N", {}], ["%d/%b/%Y:%H:%M:%S %z", {"timezone" => "-0330"}],
  ["%A %a %B %b %C %c %D %d %e %F %G %g %H %h %I %j %k %l %M %m %n %P %p %R %r %S %T %t %U %u %V %W %w %X %x %Y %y", {"utc" => "true"}],
  ["%L|%1N|%9N|%12N|%%N|%%%L|100%%", {}], ["%-d %-m %e %^a %^B %_H %Z", {"utc" => "true"}],
]

def bytes(text) = text.dup.force_encoding("ASCII-8BIT").unpack1("H*")

def time_of(time)
  return nil if time.nil?
  return "now" if time.to_i > 1_750_000_000
  time.is_a?(Fluent::EventTime) ? [time.sec, time.nsec] : [time.to_i, 0]
end

def value_of(value)
  case value
  when Fluent::EventTime then {"event time" => [value.sec, value.nsec]}
  when Hash then value.to_h { |key, item| [key, value_of(item)] }
  when Array then value.map { |item| value_of(item) }
  else value
  end
end

def conf_of(parameters) = parameters.map { |key, value| "#{key} #{value}" }.join("\n")

formats = FORMATTERS.flat_map do |type, parameters|
  RECORDS.map do |name, record|
    plugin = Fluent::Plugin.new_formatter(type, parent: nil)
    plugin.configure(Fluent::Config.parse(conf_of(parameters), "test", "", syntax: :v1))
    text = begin
      bytes(plugin.format("app.tag", Fluent::EventTime.new(SECONDS, NANOSECONDS), record))
    rescue StandardError => e
      e.class.name
    end
    {"type" => type, "parameters" => parameters, "record" => name, "text" => text}
  end
end

parses = PARSERS.flat_map do |type, parameters, texts|
  texts.map do |text|
    plugin = Fluent::Plugin.new_parser(type, parent: nil)
    plugin.configure(Fluent::Config.parse(conf_of(parameters), "test", "", syntax: :v1))
    events = []
    begin
      plugin.parse(text.dup) { |time, record| events << [time_of(time), value_of(record)] }
    rescue StandardError => e
      events = e.class.name
    end
    {"type" => type, "parameters" => parameters, "text" => text, "events" => events}
  end
end

class Times
  include Fluent::Configurable
  include Fluent::TimeMixin::Parser
  include Fluent::TimeMixin::Formatter
end

texts = TIME_TEXTS.map do |format, parameters, text|
  times = Times.new
  times.configure(Fluent::Config.parse(conf_of(parameters), "test", "", syntax: :v1))
  found = begin
    time_of(times.time_parser_create(format: format).parse(text))
  rescue StandardError => e
    "error"
  end
  {"format" => format, "parameters" => parameters, "text" => text, "time" => found}
end

forms = TIME_FORMATS.map do |format, parameters|
  times = Times.new
  times.configure(Fluent::Config.parse(conf_of(parameters), "test", "", syntax: :v1))
  formatter = times.time_formatter_create(format: format)
  {"format" => format, "parameters" => parameters, "text" => formatter.format(Fluent::EventTime.new(SECONDS, NANOSECONDS))}
end

puts JSON.pretty_generate("records" => RECORDS, "formatters" => formats, "parsers" => parses, "times" => texts, "time_formats" => forms)
