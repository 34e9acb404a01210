"""The source `http`: events by HTTP requests (https://docs.fluentd.org/input/http).

    request --> handler.py (what the head means, kept per head) --> body.py, form.py --> router

input.py      HttpInput: parameters, the listener, start and end
handler.py    the answer to each request
plan.py       what a head means: tag, format, time, extra fields, the answer's head
body.py       body -> records, compressed bodies
bounds.py     what one body may become
room.py       what all bodies together may take
form.py       URL-encoded and multipart forms
times.py      event times from texts and record fields
cors.py       which origins may send
answers.py    the bytes of answers
"""

from headrace.plugins.in_http.input import HttpInput

__all__ = ["HttpInput"]
