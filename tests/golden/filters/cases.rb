# What Fluentd's own filters make of records.
#   ruby -I FLUENTD/lib tests/golden/filters/cases.rb [-I of ecosystem plugins] > tests/golden/filters/fluentd.json
ENV['TZ'] = 'Asia/Kolkata'
require 'json'
require 'fluent/test'
require 'fluent/test/driver/filter'
require 'fluent/plugin/filter_record_transformer'
require 'fluent/plugin/filter_grep'

KINDS = { 'record_transformer' => Fluent::Plugin::RecordTransformerFilter, 'grep' => Fluent::Plugin::GrepFilter }
%w[record_modifier concat].each do |name|
  require "fluent/plugin/filter_#{name}"
  KINDS[name] = Fluent::Plugin.const_get("#{name.split('_').map(&:capitalize).join}Filter")
rescue LoadError
  warn "without #{name}"
end

RECORDS = [
  { 'm' => 'Hello World', 'n' => 5, 'f' => 1.5, 'nil' => nil, 'a' => { 'b' => 'c', 'l' => [1, 2] }, 'k' => 'key', 'total' => 100, 'count' => 10 },
  { 'm' => 'é "q" \\ x', 'n' => -1, 'a' => nil, 'time' => 1_362_020_400.25 },
  { 'n' => '7', 'a' => { 'b' => [] }, 'message' => 'x' },
].freeze

def rec(*lines) = "<record>\n#{lines.join("\n")}\n</record>"

CASES = [
  ['record_transformer', rec('x y', 't ${tag}', 'h a-${hostname}-b')],
  ['record_transformer', rec('n ${record["n"]}', 'm <${record["m"]}>', 'z ${record["zz"]}|')],
  ['record_transformer', rec('p ${tag_parts[0]}', 'q ${tag_parts[-1]}', 'r ${tag_prefix[1]}', 's ${tag_suffix[1]}', 'u ${tag_parts[9]}x')],
  ['record_transformer', rec('t ${time}')], ['record_transformer', rec('${tag_parts[1]}_${record["k"]} v')],
  ['record_transformer', "auto_typecast false\n#{rec('n ${record["n"]}', 'l ${record["a"]}')}"],
  ['record_transformer', "renew_record true\nkeep_keys m,zz,n\n#{rec('x 1')}"],
  ['record_transformer', 'remove_keys m,$.a.b,zz'], ['record_transformer', "renew_time_key time\nremove_keys time"],
  ['record_transformer', rec('j {"a":"${tag}","b":[1,"${tag_parts[0]}",null,true,1.5]}', 'l ["${tag}"]', "q '{\"z\":1}'")],
  ['record_transformer', rec('x __FOO__', 'y ${nope}', 'z a ${nope} b')],
  ['record_transformer', "enable_ruby true\n#{rec('avg ${record["total"] / record["count"]}')}"],
  ['record_transformer', "enable_ruby true\n#{rec('j ${record.to_json}', 'u ${record["m"].upcase}')}"],
  ['record_transformer', "enable_ruby true\n#{rec('t ${time.strftime("%Y-%m-%dT%H:%M:%S.%L%z")}', 'i ${time.to_i}', 'z ${time}')}"],
  ['record_transformer', "enable_ruby true\n#{rec('e ${tag.gsub(".", "-")}', 'l ${tag_parts.last}', 's ${tag_suffix.join("|")}')}"],
  ['record_transformer', "enable_ruby true\n#{rec('foo_${record["k"]} bar_${record["n"]}')}"],
  ['record_transformer', "enable_ruby true\n#{rec('d ${record.dig("a", "b")}', 'n ${record["a"]["b"]}')}"],
  ['record_transformer', "enable_ruby true\n#{rec('a ${record["n"]}${record["m"]}', 'b x ${1 + 1} y', 'c plain', 'd ${"#{1}"}')}"],
  ['record_transformer', "enable_ruby true\nauto_typecast false\n#{rec('a ${record["n"]}', 'b ${record["a"]}', 'c ${nil}', 'd ${1.0}')}"],
  ['record_transformer', "enable_ruby true\n#{rec('a {"x":"${record.size + 1}","${tag}":["${tag.length}"],"y":{"z":"a ${1}"}}')}"],
  ['record_transformer', "enable_ruby true\n#{rec('a ${record["m"] =~ /(W\w+)/ ? $1 : "none"}', 'b ${record["nil"] || "d"}', 'c ${record["n"].to_i > 3 ? "hi" : "lo"}')}"],
  ['record_transformer', "enable_ruby true\n#{rec('a ${record["m"].to_s.gsub(/[aeiou]/) { |v| v.upcase }}', 'b ${record.select { |k, v| v.is_a?(Numeric) }.keys}')}"],
  ['record_transformer', "enable_ruby true\n#{rec('a x [y] "z" ${tag} \\\\t')}"],
  ['grep', "<regexp>\nkey m\npattern /hello/i\n</regexp>"], ['grep', "<exclude>\nkey n\npattern /^-?\\d$/\n</exclude>"],
  ['grep', "<or>\n<regexp>\nkey $.a.b\npattern /^c$/\n</regexp>\n<regexp>\nkey message\npattern /x/\n</regexp>\n</or>"],
  ['record_modifier', rec('x y', 't ${tag}-${tag_parts[1]}', 'n ${record["n"]}', 'o ${record["t"].to_s + "!"}')],
  ['record_modifier', "remove_keys m,$.a.b"], ['record_modifier', "whitelist_keys n, k\n#{rec('x 1')}"],
  ['record_modifier', "<replace>\nkey m\nexpression /(o)(.)/\nreplace <\\2\\1>\n</replace>"],
  ['concat', "key m\nn_lines 2"], ['concat', "key message\nmultiline_start_regexp /^x/"],
].select { |kind, _| KINDS.key?(kind) }

def time_of(time) = time.is_a?(Fluent::EventTime) ? [time.sec, time.nsec] : [time.to_i, 0]

rows = CASES.map do |kind, text|
  Fluent::Test.setup
  driver = Fluent::Test::Driver::Filter.new(KINDS[kind]).configure(text)
  driver.instance.instance_variable_set(:@hostname, 'host')
  time = Fluent::EventTime.new(1_700_000_000, 123_456_789)
  driver.run(default_tag: 'a.b.c') { RECORDS.each { |record| driver.feed(time, JSON.parse(JSON.generate(record))) } }
  { kind: kind, text: text, events: driver.filtered.map { |at, record| [time_of(at), record] }, errors: driver.error_events.map { |_, _, record| record } }
rescue StandardError => e
  { kind: kind, text: text, refused: e.message }
end
puts JSON.generate(records: RECORDS, rows: rows)
