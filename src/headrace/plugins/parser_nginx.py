"""Parser `nginx` (docs.fluentd.org, Parser Plugins, nginx): the access log's default format."""

from __future__ import annotations

import re

from headrace.conf.ruby_regexp import compile_ruby
from headrace.plugins.parser_regexp import RegexpParser


class NginxParser(RegexpParser):
    """Reads lines of nginx's access log in the combined format, with or without the forwarded address."""

    expression = RegexpParser.expression.with_default(
        compile_ruby(
            r'^(?<remote>[^ ]*) (?<host>[^ ]*) (?<user>[^ ]*) \[(?<time>[^\]]*)\] "(?<method>\S+)'
            r'(?: +(?<path>[^\"]*?)(?: +\S*)?)?" (?<code>[^ ]*) (?<size>[^ ]*)'
            r'(?: "(?<referer>[^\"]*)" "(?<agent>[^\"]*)"(?:\s+\"?(?<http_x_forwarded_for>[^\"]*)\"?)?)?$'
        )
    )
    time_format = RegexpParser.time_format.with_default("%d/%b/%Y:%H:%M:%S %z")

    # Lines with a path, without a quote or a space where none belongs: the same groups, without steps back.
    quick = re.compile(
        r'([^ \n]*) ([^ \n]*) ([^ \n]*) \[([^\]\n]*)\] "([^\s"]+)'
        r'(?: ([^ "\n]*)(?: [^\s"]*)?)" ([^ "\n]*) ([^ "\n]*)'
        r'(?: "([^"\n]*)" "([^"\n]*)"(?: "([^"\n]*)")?)?'
    )
