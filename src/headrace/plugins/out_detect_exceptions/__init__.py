"""Output `detect_exceptions`.

- output.py      the parameters, the streams and what goes on
- traces.py      one stream: lines of a stack trace become one message
- rules.py       how stack traces look, by language
"""

from headrace.plugins.out_detect_exceptions.output import DetectExceptionsOutput

__all__ = ["DetectExceptionsOutput"]
