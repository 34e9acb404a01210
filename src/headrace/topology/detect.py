"""Which language a configuration file is in: by its name when that is clear, else by its first words."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.errors import ConfError
from headrace.topology.options import FLUENT, NGINX

_FLUENT_TEXT = re.compile(r"^[ \t]*(?:<(?:source|match|filter|label|system|worker)\b|@include\b)", re.MULTILINE)
_NGINX_TEXT = re.compile(r"^[ \t]*(?:(?:events|http|stream|mail)[ \t\r\n]*\{|[a-z_]+[ \t]+[^\n;{<>]*;)", re.MULTILINE)


def language(path: str) -> str:
    """FLUENT or NGINX. Raises ConfError when the file cannot be read or says nothing."""
    name = Path(path).name
    if name.endswith((".yaml", ".yml")):
        return FLUENT
    if re.search(r"(?:^|[^a-z])fluent", name):
        return FLUENT
    if re.search(r"(?:^|[^a-z])nginx", name):
        return NGINX
    try:
        text = Path(path).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise ConfError(f'open() "{path}" failed ({error.errno}: {error.strerror})') from error
    if _FLUENT_TEXT.search(text):
        return FLUENT
    if _NGINX_TEXT.search(text):
        return NGINX
    raise ConfError(f"{path} looks neither like a fluent.conf nor like an nginx.conf", hint="name it by --type")
