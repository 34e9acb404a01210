# What Ruby makes of the expressions that record_transformer knows: ruby cases.rb > ruby.json
ENV['TZ'] = 'Asia/Kolkata'
require 'json'
require 'time'
require 'cgi'
require 'digest'
require 'base64'
$VERBOSE = nil
RECORD = {
  's' => 'Hello World', 'n' => 7, 'm' => -7, 'f' => 2.5, 'z' => 0, 'l' => [3, 1, 2], 'w' => ['b', nil, 'a', 'b'], 'a' => { 'b' => 'c d', 'l' => [1, { 'x' => 'y' }] },
  'j' => '{"k":[1,2]}', 'nil' => nil, 't' => true, 'u' => "Grüße ☃", 'p' => "  pad\t\n", 'num' => '42abc', 'fl' => '3.7xyz', 'csv' => 'a,b,,c,,', 'e' => '', 'kv' => 'k=v; k2=v2',
  'path' => '/var/log/app/web.log', 'ts' => '2013-02-28T12:00:00+09:00', 'epoch' => 1362020400.123, 'level' => 'WARN', 'url' => 'a b&c=d/é',
}.freeze
EXPRESSIONS = <<~'TEXT'.lines.map(&:chomp).reject(&:empty?)
  record["s"]
  record["nothing"]
  record["s"].upcase
  record["s"].downcase + record["u"].upcase
  record["u"].capitalize.swapcase
  record["p"].strip + "|" + record["p"].lstrip + "|" + record["p"].rstrip + "|" + record["p"].chomp
  record["num"].to_i + record["fl"].to_f
  record["e"].to_i + record["nil"].to_i
  record["s"].to_s.length
  record["u"].size.to_s + "/" + record["u"].bytesize.to_s
  record["csv"].split(",")
  record["csv"].split(",", -1)
  record["csv"].split(",", 2)
  record["csv"].split(/,+/)
  record["s"].split("")
  record["p"].split
  record["kv"].split("; ").map { |x| x.split("=") }.to_h
  record["kv"].split(/; ?/).each_with_index.map { |x, i| "#{i}:#{x}" }
  record["kv"].scan(/(\w+)=(\w+)/)
  record["kv"].scan(/\w+=/)
  record["s"].sub("o", "0")
  record["s"].gsub("o", "0")
  record["s"].gsub(/[aeiou]/) { |m| m.upcase }
  record["s"].gsub(/(l+)/) { "<#{$1}>" }
  record["s"].gsub(/(?<first>l)(l)?/, '[\k<first>]')
  record["s"].gsub(/(l)(o)?/, '\2\1\0\\\\')
  record["s"].gsub(/[eo]/, "e" => "3", "o" => "*")
  record["s"].sub(/^(\w+) (\w+)$/, '\2 \1')
  record["s"].tr("a-y", "b-z")
  record["s"].tr("^a-z", "*")
  record["s"].delete("l")
  record["s"].squeeze + record["s"].squeeze("l")
  record["s"].count("lo")
  record["s"].reverse
  record["s"].index("o").to_s + record["s"].rindex("o").to_s
  record["s"].index("zz")
  record["s"][0]
  record["s"][-1]
  record["s"][0, 4]
  record["s"][0..4]
  record["s"][0...4]
  record["s"][6..]
  record["s"][-5..-2]
  record["s"][20]
  record["s"][20..]
  record["s"][/W(or)/]
  record["s"][/W(or)/, 1]
  record["s"]["World"]
  record["s"]["nope"]
  record["s"].slice(0, 3)
  record["s"].start_with?("He") && record["s"].end_with?("ld", "x")
  record["s"].include?("lo W")
  record["s"].match?(/world/i)
  record["s"].match(/(?<a>W)(o)?/)[1]
  record["s"].match(/nothing/)&.captures
  record["s"].match(/(\w+) (\w+)/).captures
  record["s"] =~ /W/
  record["s"] !~ /W/
  record["s"] =~ /(W)orl/ ? $1 : "none"
  record["nil"] =~ /x/
  record["s"].partition(" ")
  record["path"].rpartition("/").last
  record["path"].split("/").last.sub(/\.log\z/, "")
  record["s"].ljust(15, ".") + record["s"].rjust(15) + record["s"].center(16, "ab")
  record["s"].chars.first(3).join("-")
  record["s"].chop + record["s"].chr
  record["s"].delete_prefix("He").delete_suffix("ld")
  record["s"].hex.to_s + "ff".hex.to_s + "0x1f".to_i(16).to_s + "z".ord.to_s
  record["s"] * 2
  record["s"].between?("A", "Z")
  record["s"].casecmp?("hello world")
  record["s"] <=> "I"
  "a" "b" 'c'
  "tab\there \#{no} #{1 + 1} \u00e9 \x41 \e"
  'single #{no} \n \' \\'
  %w[a b c].join(",")
  %q(a (b) c) + %Q(#{1}) + %(x)
  record["n"] + 1
  record["n"] / 2
  record["m"] / 2
  record["m"] % 3
  record["n"] % -3
  record["n"].fdiv(2)
  record["n"] / 2.0
  record["n"] ** 2
  -record["n"].abs
  record["m"].abs
  record["n"].to_f / record["z"]
  record["n"] / record["z"]
  record["f"].round + record["f"].floor + record["f"].ceil + record["f"].truncate
  -2.5.round
  1234.5678.round(2)
  1234.5678.round(-2)
  1234.floor(-2)
  1.005.round(2)
  2.675.round(2)
  0.1 + 0.2
  1e20
  1e-5
  100.0
  1e100.to_i.to_s.length
  record["n"].to_s(2) + record["n"].to_s + 255.to_s(16)
  record["n"].even? || record["n"].odd?
  record["n"].zero?
  record["n"].between?(1, 10)
  record["n"].clamp(1, 5)
  record["n"].divmod(2)
  record["n"].chr.length
  65.chr
  1_000_000
  0xff + 0b11
  record["n"] & 3 | 8 ^ 1
  1 << 4 >> 2
  record["n"] > 5 and record["n"] <= 7
  not record["t"]
  !record["t"] || record["nil"].nil?
  record["n"] == 7.0
  record["n"] == "7"
  record["t"] == 1
  record["nil"] || record["e"] || "default"
  record["nil"] && "x"
  record["nil"] ? 1 : record["z"] ? 2 : 3
  record["e"].empty? ? "empty" : record["e"]
  record["nil"].to_s + record["t"].to_s
  record["nil"].to_a
  record["nil"].upcase
  record["nothing"]["x"]
  record["nothing"]&.upcase
  record["a"]["b"]
  record["a"]["l"][1]["x"]
  record["a"].dig("l", 1, "x")
  record.dig("a", "zz", "x")
  record.fetch("s")
  record.fetch("zz", "d")
  record.fetch("zz") { |k| k + "!" }
  record.fetch("zz")
  record.key?("s") && record.has_key?("n") && !record.include?("zz")
  record["a"].keys + record["a"].values
  record["a"].length
  record["a"].merge("z" => 1, "b" => 2)
  record["a"].select { |k, v| k == "b" }
  record["a"].reject { |k, v| v.is_a?(Array) }
  record["a"].map { |k, v| "#{k}" }.sort
  record["a"].to_a.length
  record["a"].any? { |k, v| k == "l" }
  record.values_at("n", "z")
  record.slice("n", "z")
  record["a"].transform_values(&:to_s)
  record["a"].to_json
  record["l"].to_s + record["a"].to_s
  {"x" => 1, y: 2}.to_json
  { a: 1 }.keys.first.to_s
  record["l"].sort
  record["l"].sort { |a, b| b <=> a }
  record["l"].sort_by { |x| -x }
  record["l"].max.to_s + record["l"].min.to_s + record["l"].sum.to_s
  record["l"].first.to_s + record["l"].last.to_s
  record["l"].first(2) + record["l"].last(2)
  record["l"][0] + record["l"][-1]
  record["l"][1..]
  record["l"][5]
  record["l"].join("-")
  record["l"].reverse.include?(2)
  record["l"].map { |x| x * 2 }.select { |x| x > 2 }.inject(:+)
  record["l"].inject { |sum, x| sum + x }
  record["l"].reduce(10) { |sum, x| sum + x }
  record["l"].each_slice(2).to_a
  record["l"].find { |x| x > 1 }
  record["l"].partition { |x| x > 1 }
  record["l"].all? { |x| x.is_a?(Integer) }
  record["l"].zip([1, 2])
  record["l"] + [4] - [1]
  record["l"] & [1, 2]
  record["w"].compact.uniq.sort
  record["w"].count("b")
  record["w"].tally
  record["w"].group_by { |x| x.nil? }
  [[1, [2]], 3].flatten
  [1, "a", nil, true, 2.0].inspect
  (1..3).to_a
  (1..3).include?(2)
  [3, 1].minmax
  if record["n"] > 5 then "big" elsif record["n"] > 2 then "mid" else "small" end
  if record["z"] > 5; "big"; else; "small"; end
  unless record["nil"]; "none"; end
  "x" if record["nil"]
  "x" unless record["nil"]
  case record["level"] when "WARN", "WARNING" then 4 when /ERR/ then 3 else 6 end
  case record["n"] when 0..5 then "low" when Integer then "int" end
  case when record["n"] > 5 then "gt" else "le" end
  x = record["n"]; y = x * 2; x + y
  x = 1; x += 2; x
  x = nil; x ||= 5; x
  begin; record["nil"].upcase; rescue; "oops"; end
  record["nil"].upcase rescue "oops"
  Integer("x") rescue -1
  Integer("42") + Float("1.5")
  format("%05d|%-6s|%+.2f|%x|%o|%e|%%|%3s", 42, "ab", 3.14159, 255, 8, 12345.678, "c")
  "%s and %p" % ["a", "a"]
  "%.3f" % 2.0
  "%08b" % 37
  "%<a>d %{b}" % {a: 1, b: "x"}
  sprintf("%c%5.1f", "x", 2.25)
  JSON.parse(record["j"])["k"]
  JSON.parse("nope")
  JSON.generate([1, nil, "x"])
  Time.at(record["epoch"]).utc.iso8601(3)
  Time.at(1362020400).strftime("%Y-%m-%d %H:%M:%S %z")
  Time.at(1362020400).to_s
  Time.at(1362020400).utc.to_s
  Time.at(1362020400, 123456, :usec).nsec
  Time.at(1362020400).localtime("+09:00").strftime("%H %:z")
  Time.parse(record["ts"]).to_i
  Time.iso8601(record["ts"]).utc.strftime("%FT%TZ")
  Time.strptime("28/Feb/2013:12:00:00 +0900", "%d/%b/%Y:%H:%M:%S %z").to_i
  (Time.at(1362020400) - Time.at(1362020000)).to_s
  (Time.at(1362020400) + 60).to_i
  Time.at(1362020400).utc.year + Time.at(1362020400).utc.month + Time.at(1362020400).utc.wday
  Time.utc(2013, 2, 28, 3).to_i
  Time.at(1362020400) > Time.at(0)
  CGI.escape(record["url"]) + CGI.unescape("a+b%26")
  record["n"].is_a?(Numeric) && record["s"].is_a?(String)
  record["n"].class.to_s + record["s"].class.name + record["nil"].class.to_s
  record["s"].respond_to?(:upcase)
  record["s"].then { |x| x + "!" }
  record["s"].frozen?.to_s.length > 0
  record["u"].scrub.valid_encoding?
  record["u"].encode("UTF-8", invalid: :replace)
  record["s"].eql?("Hello World")
  record["s"] == 'Hello World' && record["n"] != 8
  record["s"] + record["n"]
  record["n"] + "x"
  record["n"] > "x"
  record["nil"] > 1
  [1, [2, nil]].to_json + "é".to_json + 1.5.to_json
  record["s"].length > 5 ? record["s"][0..4] + "..." : record["s"]
  record["s"].unknown_method
  "a-b_c".split(/[-_]/).map(&:capitalize).join
  "2024-01-02".split("-").map(&:to_i).sum
  "k=v".split("=", 2).last
  "abc".each_char.to_a
  ("a".."c").include?("b")
  "%d%%" % 50
  record["path"][/[^\/]+$/]
  "a.b.c".split(".")[0..1].join(".")
  "ÄÖ".downcase + "straße".upcase
  "x".nil?.to_s + nil.inspect + :sym.to_s
  "line1\nline2\n".lines.map(&:chomp)
  "a  b".squeeze(" ").split(" ")
  require 'digest'; Digest::MD5.hexdigest(record["u"]) + Digest::SHA256.hexdigest("a")
  Base64.strict_encode64(record["u"]) + Base64.encode64("x" * 50) + Base64.decode64("YWI=")
  record["s"].gsub(/\e\[([;\d]+)?m/, '').match(/\{.*\}/m)&.to_s
  {"INFO" => 6, "WARN" => 4}[record["level"]] || 7
  !!record["s"] && !record["nil"]
  record["s"] && record["s"].include?("ERROR") ? "ERROR" : "INFO"
  if record["s"] && record["s"].include?("World"); record["n"] > 5 ? "validation_error" : "general"; else; ""; end
  record["x"] ? record["x"] : record["y"] ? record["y"] : record["s"]
  record["path"].sub("-#{record["n"]}", "").sub(/\.log$/, "")
  record.map { |k, v| [k.upcase, v] }.to_h.keys.first(2)
  record["s"].to_s.encode('UTF-8', invalid: :replace, undef: :replace, replace: '?')
  record["path"].split('/')[1..-1].join('.')
  (Time.at(1362020400).to_f * 1000).to_i.to_s + Time.at(1362020400).utc.strftime('%FT%T.%3NZ')
  "12:34:56".split(":").map(&:to_i).inject(0) { |a, b| a * 60 + b }
TEXT

def plain(value)
  case value
  when Float then value.nan? || value.infinite? ? value.to_s : value
  when Hash then value.to_h { |key, item| [key.to_s, plain(item)] }
  when Array then value.map { |item| plain(item) }
  when Symbol then value.to_s
  when String, Integer, true, false, nil then value
  else value.to_s
  end
end

def value(record, text)
  { expression: text, value: plain(eval(text)) }
rescue StandardError, SyntaxError => e
  { expression: text, error: e.class.name }
end

puts JSON.generate(record: RECORD, rows: EXPRESSIONS.map { |text| value(Marshal.load(Marshal.dump(RECORD)), text) })
