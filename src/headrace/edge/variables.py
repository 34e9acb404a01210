"""Variables: names of a configuration that stand for parts of a request, its answer and its connection.

A name is resolved to a getter once, when the configuration is built; a getter returns bytes, or None for "not
found" (nothing in a text, `-` in a log). The core's own are in corevars.py. Directives declare more: `set`, named
captures, map, and the families of other rooms. https://nginx.org/en/docs/varindex.html
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.edge.corevars import CORE, HOSTNAME, PREFIXES, SETTERS
from headrace.edge.log import WARN
from headrace.edge.upstream import state as upstream
from headrace.errors import ConfError

if TYPE_CHECKING:
    from headrace.edge.request import Request
    from headrace.errors import Place

Getter = Callable[["Request"], bytes | None]
Setter = Callable[["Request", bytes], None]


class Variables:
    """The variables of one configuration. hostname: of this machine, in lower case.

    core, prefixes, setters: what is there before any directive (http's, unless another room has its own).
    """

    hostname: str = HOSTNAME

    def __init__(
        self,
        core: Mapping[str, Getter] | None = None,
        prefixes: Sequence[tuple[str, Callable[[str], Getter]]] = (*PREFIXES, *upstream.PREFIXES),
        setters: Mapping[str, Setter] = SETTERS,
    ) -> None:
        self._core: Mapping[str, Getter] = {**CORE, **upstream.VARIABLES} if core is None else core
        self._prefixes = prefixes
        self._getters: dict[str, Getter] = dict(self._core)
        self._setters: dict[str, Setter] = dict(setters)
        self._slots: set[str] = set()
        self._wanted: dict[str, Place | None] = {}
        self._cache: dict[bytes, Getter | None] = {}

    def declare(self, name: str, place: Place | None = None, *, warn: bool = False) -> None:
        """Declare a variable that is stored in the request: `set`, a named capture.

        warn: it is empty until it is set, and a use before that is logged (uninitialized_variable_warn).
        """
        name = name.lower()
        if name in self._setters:
            return
        if name in self._core:
            raise ConfError(f'the duplicate "{name}" variable', place)
        self._slots.add(name)
        if warn and name not in self._getters:
            found = self._by_prefix(name)
            key = name.encode()
            self._getters[name] = _set_variable(key) if found is None else _set_over(key, found)

    def define(self, name: str, getter: Getter) -> None:
        """Define a variable of a family: it is there from now on, and cannot be changed."""
        self._getters.setdefault(name, getter)

    def getter(self, name: str, place: Place | None = None) -> Getter:
        """The getter of a name; unknown ones are taken for variables that a later directive declares."""
        name = name.lower()
        found = self._lookup(name)
        if found is not None:
            return found
        self._wanted.setdefault(name, place)
        late = self._slot(name)

        def get(request: Request) -> bytes | None:
            defined = self._getters.get(name)
            return defined(request) if defined else late(request)

        return get

    def unknown(self) -> list[tuple[str, Place | None]]:
        """Names that were used and never declared, with where they were used first."""
        return [(name, place) for name, place in self._wanted.items() if self._lookup(name) is None]

    def find(self, name: bytes) -> Getter | None:
        """The getter of a name at run time, None when there is no such variable."""
        try:
            return self._cache[name]
        except KeyError:
            found = self._lookup(name.decode("latin-1").lower())
            if len(self._cache) < 4096:
                self._cache[name] = found
            return found

    def setter(self, name: bytes) -> Setter:
        """The setter of a name. Raises KeyError when unknown, ValueError when it cannot be changed."""
        text = name.decode("latin-1").lower()
        if text in self._setters:
            return self._setters[text]
        if text in self._slots:
            slot = name.lower()
            return lambda request, value: request.set_slot(slot, value)
        if self._lookup(text) is not None:
            raise ValueError(f'variable "{text}" not changeable')
        raise KeyError(text)

    def _lookup(self, name: str) -> Getter | None:
        if name in self._slots:
            fallback = self._getters.get(name)
            return self._slot(name) if fallback is None else fallback
        found = self._getters.get(name)
        if found is not None:
            return found
        return self._by_prefix(name)

    def _by_prefix(self, name: str) -> Getter | None:
        for prefix, make in self._prefixes:
            if name.startswith(prefix):
                return make(name[len(prefix) :])
        return None

    @staticmethod
    def _slot(name: str) -> Getter:
        key = name.encode("latin-1")

        def get(request: Request) -> bytes | None:
            return request.get_slot(key)

        return get


def _set_over(name: bytes, otherwise: Getter) -> Getter:
    """A variable such as $http_x that a `set` somewhere overlays."""

    def get(request: Request) -> bytes | None:
        value = request.get_slot(name)
        return otherwise(request) if value is None else value

    return get


def _set_variable(name: bytes) -> Getter:
    def get(request: Request) -> bytes | None:
        value = request.get_slot(name)
        if value is None:
            if name in request.variables():
                return None  # a script has cleared it
            if request.location.warn_uninitialized:
                request.log_error(WARN, b'using uninitialized "%b" variable' % name)
            return b""
        return value

    return get
