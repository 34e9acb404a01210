"""Local time of a zone, in the whole process, for one test."""

import os
import time
from contextlib import contextmanager

from headrace.plugins.expressions import ruby_time


def _forget():
    time.tzset()
    ruby_time._printed.cache_clear()
    ruby_time._formatter.cache_clear()


@contextmanager
def local_zone(name):
    before = os.environ.get("TZ")
    os.environ["TZ"] = name
    _forget()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    _forget()
