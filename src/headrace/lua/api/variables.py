"""ngx.var: the variables of requests and sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


class VariablesApi:
    """requests: live requests, or sessions, by handle."""

    def __init__(self, requests: Mapping[int, Any]) -> None:
        self.requests = requests

    def functions(self) -> dict[str, Callable[..., Any]]:
        """See the package."""
        return {name: getattr(self, name) for name in ("get_var", "get_capture", "set_var")}

    def get_var(self, request_id: int, name: bytes) -> bytes | None:
        """A variable by its name."""
        value: bytes | None = self.requests[request_id].var(name)
        return value

    def get_capture(self, request_id: int, index: float) -> bytes | None:
        """A capture of the last regular expression of the configuration, `$1` and so on."""
        captures: Sequence[bytes | None] = self.requests[request_id].captures
        return captures[int(index)] if 0 <= index < len(captures) else None

    def set_var(self, request_id: int, name: bytes, value: bytes | None) -> bytes | None:
        """Set a variable, or clear it (None); returns why that cannot be."""
        request = self.requests[request_id]
        try:
            request.set_var(name, b"" if value is None else value)
            if value is None and request.get_slot(name.lower()) is not None:
                request.set_slot(name.lower(), None)  # reads as nil; in the configuration as an empty text
        except KeyError:
            return (
                b'variable "%b" not found for writing; maybe it is a built-in variable that is not changeable ' % (name)
                + b"or you forgot to use \"set $%b '';\" in the config file to define it first" % name
            )
        except ValueError:
            return b'variable "%b" not changeable' % name
        return None
