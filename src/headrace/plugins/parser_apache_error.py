"""Parser `apache_error` (docs.fluentd.org, Parser Plugins, apache_error): Apache's error log."""

from __future__ import annotations

from headrace.conf.ruby_regexp import compile_ruby
from headrace.plugins.parser_regexp import RegexpParser


class ApacheErrorParser(RegexpParser):
    """Reads lines of Apache's error log."""

    expression = RegexpParser.expression.with_default(
        compile_ruby(
            r"^\[[^ ]* (?<time>[^\]]*)\] \[(?<level>[^\]]*)\](?: \[pid (?<pid>[^\]]*)\])?"
            r"( \[client (?<client>[^\]]*)\])? (?<message>.*)$"
        )
    )
