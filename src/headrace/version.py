"""Which version this is, and which versions of the originals its behaviour follows.

A literal: asking the installed package's metadata would cost every start some milliseconds. A test holds it to
pyproject.toml.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
NGINX_VERSION: Final = "1.26.3"
NGX_LUA_VERSION: Final = "0.10.26"
FLUENTD_VERSION: Final = "1.19.0"
