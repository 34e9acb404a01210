"""Files that configurations include and that every nginx has: mime.types, fastcgi_params, proxy_params, ...

A file of the user's wins; ours stands in where the one that is named does not exist.
"""

from __future__ import annotations

import os
from typing import Final

NAMES: Final = frozenset(
    {"mime.types", "fastcgi_params", "fastcgi.conf", "proxy_params", "scgi_params", "uwsgi_params"}
)


def read_file(path: str) -> bytes:
    """The bytes of a configuration file, or of ours with the same name when there is none. Raises OSError.

    An opener for conf.files.Files.
    """
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        name = os.path.basename(path)
        if name not in NAMES:
            raise
        with open(os.path.join(os.path.dirname(__file__), "files", name), "rb") as file:
            return file.read()
