"""Parser `apache`: Apache's access log by one pattern, kept for old configurations; `apache2` is its better."""

from __future__ import annotations

from headrace.conf.ruby_regexp import compile_ruby
from headrace.plugins.parser_regexp import RegexpParser


class ApacheParser(RegexpParser):
    """Reads lines of Apache's access log, common or combined; every field is a text."""

    expression = RegexpParser.expression.with_default(
        compile_ruby(
            r'^(?<host>[^ ]*) [^ ]* (?<user>[^ ]*) \[(?<time>[^\]]*)\] "(?<method>\S+)(?: +(?<path>[^ ]*) +\S*)?" '
            r'(?<code>[^ ]*) (?<size>[^ ]*)(?: "(?<referer>[^\"]*)" "(?<agent>[^\"]*)")?$'
        )
    )
    time_format = RegexpParser.time_format.with_default("%d/%b/%Y:%H:%M:%S %z")
