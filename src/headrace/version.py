"""Which version this is, and which versions of the originals its behaviour follows."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final


def _own() -> str:
    try:
        return version("headrace")
    except PackageNotFoundError:
        return "0+unknown"


__version__: Final = _own()
NGINX_VERSION: Final = "1.26.3"
NGX_LUA_VERSION: Final = "0.10.26"
FLUENTD_VERSION: Final = "1.19.0"
