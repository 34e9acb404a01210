"""Parameters, declared on the class that uses them.

A class that takes configuration subclasses `Configurable` and declares descriptors:

    class HttpOutput(Output):
        endpoint = string(doc="Where to send", placeholders=True)
        open_timeout = time(default=60.0, doc="Seconds to wait for a connection")
        buffer = section(BufferSection, argument="chunk_keys")
        formatter = raw_section(name="format", doc="Read by the formatter plugin")

`configure(directive, problems)` fills the instance from a tree and collects everything wrong in
`problems`, each with file:line, so that `check` reports them all at once. The manual is generated
from the same declarations. Types and their spellings are Fluentd's: docs.fluentd.org, Config File
Syntax, "Supported Data Types for Values"; they live in `conf.values`.

Every factory takes `default` (absent: the parameter is required; None: it may be nil) and the options
of `Options`. A list or dict given as a default is copied for each instance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack, overload

from headrace.conf import values
from headrace.conf.declare import (
    Configurable,
    Param,
    Section,
    declared,
    declared_params,
    declared_sections,
    literal_of,
    reserved,
)
from headrace.conf.problems import Problems, near_miss
from headrace.conf.values import REQUIRED, USE_DEFAULT

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Sequence

    from headrace.conf.tree import Directive

__all__ = [
    "REQUIRED",
    "USE_DEFAULT",
    "Configurable",
    "Param",
    "Problems",
    "Section",
    "any_",
    "array",
    "boolean",
    "declared",
    "declared_params",
    "declared_sections",
    "enum",
    "hash_",
    "integer",
    "literal_of",
    "near_miss",
    "number",
    "raw_section",
    "regexp",
    "reserved",
    "section",
    "size",
    "string",
    "symbol_list",
    "time",
]

T = TypeVar("T")
S = TypeVar("S", bound=Configurable)


class _DocRequired(TypedDict):
    doc: str


class Options(_DocRequired, total=False):
    """What every factory takes; see `Param`."""

    secret: bool
    alias: str | None
    deprecated: str | None
    obsoleted: str | None
    placeholders: bool
    key: str | None


def _float(default: Any) -> Any:
    return float(default) if isinstance(default, int) else default


@overload
def string(default: None, **options: Unpack[Options]) -> Param[str | None]: ...
@overload
def string(default: str = ..., **options: Unpack[Options]) -> Param[str]: ...
def string(default: Any = REQUIRED, **options: Unpack[Options]) -> Param[Any]:
    """Text."""
    return Param(values.as_string, type_name="string", default=default, **options)


@overload
def integer(default: None, **options: Unpack[Options]) -> Param[int | None]: ...
@overload
def integer(default: int = ..., **options: Unpack[Options]) -> Param[int]: ...
def integer(default: Any = REQUIRED, **options: Unpack[Options]) -> Param[Any]:
    """A whole number."""
    return Param(values.as_integer, type_name="integer", default=default, **options)


@overload
def number(default: None, **options: Unpack[Options]) -> Param[float | None]: ...
@overload
def number(default: float = ..., **options: Unpack[Options]) -> Param[float]: ...
def number(default: Any = REQUIRED, **options: Unpack[Options]) -> Param[Any]:
    """A number with or without a fraction (Fluentd's float)."""
    return Param(values.as_number, type_name="float", default=_float(default), **options)


@overload
def boolean(default: None, **options: Unpack[Options]) -> Param[bool | None]: ...
@overload
def boolean(default: bool = ..., **options: Unpack[Options]) -> Param[bool]: ...
def boolean(default: Any = REQUIRED, **options: Unpack[Options]) -> Param[Any]:
    """True or False."""
    return Param(values.as_boolean, type_name="bool", default=default, **options)


@overload
def size(default: None, **options: Unpack[Options]) -> Param[int | None]: ...
@overload
def size(default: int = ..., **options: Unpack[Options]) -> Param[int]: ...
def size(default: Any = REQUIRED, **options: Unpack[Options]) -> Param[Any]:
    """Bytes."""
    return Param(values.as_size, type_name="size", default=default, **options)


@overload
def time(default: None, **options: Unpack[Options]) -> Param[float | None]: ...
@overload
def time(default: float = ..., **options: Unpack[Options]) -> Param[float]: ...
def time(default: Any = REQUIRED, **options: Unpack[Options]) -> Param[Any]:
    """Seconds, as float."""
    return Param(values.as_time, type_name="time", default=_float(default), **options)


@overload
def enum(choices: Sequence[str], default: None, **options: Unpack[Options]) -> Param[str | None]: ...
@overload
def enum(choices: Sequence[str], default: str = ..., **options: Unpack[Options]) -> Param[str]: ...
def enum(choices: Sequence[str], default: Any = REQUIRED, **options: Unpack[Options]) -> Param[Any]:
    """One of `choices`."""
    return Param(values.as_enum(choices), type_name="enum: " + ", ".join(choices), default=default, **options)


@overload
def symbol_list(choices: Sequence[str], default: None, **options: Unpack[Options]) -> Param[list[str] | None]: ...
@overload
def symbol_list(choices: Sequence[str], default: list[str] = ..., **options: Unpack[Options]) -> Param[list[str]]: ...
def symbol_list(choices: Sequence[str], default: Any = REQUIRED, **options: Unpack[Options]) -> Param[Any]:
    """An array of which every element is one of `choices`."""
    convert = values.as_array(values.as_enum(choices))
    return Param(convert, type_name="array of " + ", ".join(choices), default=default, **options)


@overload
def array(default: None, **options: Unpack[Options]) -> Param[list[str] | None]: ...
@overload
def array(default: list[str] = ..., **options: Unpack[Options]) -> Param[list[str]]: ...
@overload
def array(default: None, *, value_type: Callable[[object], T], **options: Unpack[Options]) -> Param[list[T] | None]: ...
@overload
def array(
    default: list[T] = ..., *, value_type: Callable[[object], T], **options: Unpack[Options]
) -> Param[list[T]]: ...
def array(
    default: Any = REQUIRED, *, value_type: Callable[[object], Any] = values.as_string, **options: Unpack[Options]
) -> Param[Any]:
    """A list, from JSON or from text with commas. value_type: a converter of `conf.values`."""
    return Param(values.as_array(value_type), type_name="array", default=default, **options)


@overload
def hash_(default: None, **options: Unpack[Options]) -> Param[dict[str, Any] | None]: ...
@overload
def hash_(default: dict[str, Any] = ..., **options: Unpack[Options]) -> Param[dict[str, Any]]: ...
@overload
def hash_(
    default: None, *, value_type: Callable[[object], T], **options: Unpack[Options]
) -> Param[dict[str, T] | None]: ...
@overload
def hash_(
    default: dict[str, T] = ..., *, value_type: Callable[[object], T], **options: Unpack[Options]
) -> Param[dict[str, T]]: ...
def hash_(
    default: Any = REQUIRED, *, value_type: Callable[[object], Any] = values.as_any, **options: Unpack[Options]
) -> Param[Any]:
    """A dict, from JSON or from `key:value,key:value`. value_type: a converter of `conf.values`."""
    return Param(values.as_hash(value_type), type_name="hash", default=default, **options)


@overload
def regexp(default: None, **options: Unpack[Options]) -> Param[re.Pattern[str] | None]: ...
@overload
def regexp(default: re.Pattern[str] = ..., **options: Unpack[Options]) -> Param[re.Pattern[str]]: ...
def regexp(default: Any = REQUIRED, **options: Unpack[Options]) -> Param[Any]:
    """A pattern in Ruby's syntax, compiled for `re`."""
    return Param(values.as_regexp, type_name="regexp", default=default, **options)


def any_(default: Any = REQUIRED, **options: Unpack[Options]) -> Param[Any]:
    """The literal as it is: str, list or dict."""
    return Param(values.as_any, type_name="any", default=default, **options)


@overload
def section(
    cls: type[S],
    *,
    name: str | None = None,
    multi: Literal[False] = False,
    required: bool = False,
    argument: str | None = None,
    doc: str = "",
) -> Section[S]: ...
@overload
def section(
    cls: type[S],
    *,
    name: str | None = None,
    multi: Literal[True],
    required: bool = False,
    argument: str | None = None,
    doc: str = "",
) -> Section[list[S]]: ...
def section(
    cls: type[Configurable],
    *,
    name: str | None = None,
    multi: bool = False,
    required: bool = False,
    argument: str | None = None,
    doc: str = "",
) -> Section[Any]:
    """Declare a section that `cls` reads: an instance (with defaults when absent), or a list when multi."""
    return Section(cls, name=name, multi=multi, required=required, argument=argument, doc=doc)


@overload
def raw_section(
    *, name: str | None = None, multi: Literal[False] = False, required: bool = False, doc: str = ""
) -> Section[Directive | None]: ...
@overload
def raw_section(
    *, name: str | None = None, multi: Literal[True], required: bool = False, doc: str = ""
) -> Section[list[Directive]]: ...
def raw_section(*, name: str | None = None, multi: bool = False, required: bool = False, doc: str = "") -> Section[Any]:
    """Declare a section that somebody else reads: its Directive (None when absent), or a list when multi."""
    return Section(None, name=name, multi=multi, required=required, doc=doc)
