"""Parameters, declared on the class that uses them.

A class that takes configuration subclasses `Configurable` and declares descriptors:

    class HttpOutput(Output):
        endpoint = string(doc="Where to send", placeholders=True)
        open_timeout = time(default=60.0, doc="Seconds to wait for a connection")
        buffer = section(BufferSection, name="buffer")

`configure(directive, problems)` fills the instance from a tree and collects everything wrong in
`problems`, each with file:line, so that `check` reports them all at once. The manual is generated
from the same declarations. Types and their spellings are Fluentd's: docs.fluentd.org, Config File
Syntax, "Supported Data Types for Values".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar, overload

from headrace.conf.tree import Directive
from headrace.errors import ConfError, Place

T = TypeVar("T")
D = TypeVar("D")
S = TypeVar("S", bound="Configurable")


class _Marker:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


REQUIRED: Final[Any] = _Marker("REQUIRED")
USE_DEFAULT: Final[Any] = _Marker("USE_DEFAULT")
"""The value of `"#{use_default}"`: as if the parameter were absent."""

Convert = Callable[[object], T]
"""literal of the tree -> typed value; raises ValueError with a sentence for the user."""


class Problems:
    """What is wrong with a configuration: errors end `check` and `run`, warnings do not.

    unknown_is_error: False in headrace-fluentd, where an unknown parameter is a warning as in Fluentd.
    """

    def __init__(self, *, unknown_is_error: bool = True) -> None:
        self.errors: list[ConfError] = []
        self.warnings: list[ConfError] = []
        self.unknown_is_error = unknown_is_error

    def error(self, message: str, place: Place | None = None, *, hint: str = "") -> None:
        """Record an error."""
        self.errors.append(ConfError(message, place, hint=hint))

    def warn(self, message: str, place: Place | None = None, *, hint: str = "") -> None:
        """Record a warning."""
        self.warnings.append(ConfError(message, place, hint=hint))

    def raise_first(self) -> None:
        """Raise the first error, if there is one."""
        if self.errors:
            raise self.errors[0]


class Param(Generic[T]):
    """One declared parameter; on an instance it is its value."""

    def __init__(
        self,
        convert: Convert[T],
        *,
        type_name: str,
        default: Any,
        doc: str,
        secret: bool,
        alias: str | None,
        deprecated: str | None,
        obsoleted: str | None,
        placeholders: bool,
        key: str | None,
    ) -> None:
        self.convert = convert
        self.type_name = type_name
        self.default = default
        self.doc = doc
        self.secret = secret
        self.alias = alias
        self.deprecated = deprecated
        self.obsoleted = obsoleted
        self.placeholders = placeholders
        self.key = key or ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.key = self.key or name

    @overload
    def __get__(self, instance: None, owner: type) -> Param[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Param[T] | T:
        if instance is None:
            return self
        value: T = instance.__dict__.get(self.name, self.default)
        return value

    def __set__(self, instance: object, value: T) -> None:
        instance.__dict__[self.name] = value
