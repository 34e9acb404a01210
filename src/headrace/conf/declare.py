"""The descriptors behind `conf.params`, and the class that is filled by them.

`Param` and `Section` read on an instance as their value. They define no `__set__` at run time, so that
after `configure` an attribute is an ordinary entry of the instance's dict and costs nothing more.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, cast, overload

from headrace.conf.problems import Problems, near_miss
from headrace.conf.values import REQUIRED, USE_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.conf.tree import Directive
    from headrace.errors import Place

T = TypeVar("T")

RESERVED_OLD_NAMES = {"@type": "type", "@id": "id", "@log_level": "log_level"}
"""The reserved parameters and their names before Fluentd 0.12, still taken with a warning."""


class _Declared(Generic[T]):
    """What a parameter and a section have in common."""

    name: str = ""
    key: str = ""
    doc: str = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.key = self.key or name

    def initial(self) -> T:
        """Return the value while nothing is configured. Raises AttributeError where there is none."""
        raise NotImplementedError

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Self | T:
        if instance is None:
            return self
        value = instance.__dict__[self.name] = self.initial()
        return value

    if TYPE_CHECKING:

        def __set__(self, instance: object, value: T) -> None: ...


class Param(_Declared[T]):
    """One declared parameter; on an instance it is its value.

    key: the name in the configuration (the attribute's name unless told). type_name: for the manual.
    secret: never printed. alias: a second name. deprecated, obsoleted: what to do instead; the first
    warns, the second is an error. placeholders: the text may hold `${...}` and `%Y`.
    """

    def __init__(
        self,
        convert: Callable[[object], T],
        *,
        type_name: str,
        default: Any = REQUIRED,
        doc: str,
        secret: bool = False,
        alias: str | None = None,
        deprecated: str | None = None,
        obsoleted: str | None = None,
        placeholders: bool = False,
        key: str | None = None,
    ) -> None:
        self.convert = convert
        self.type_name = type_name
        self.default = default
        self.nullable = default is None
        """Whether nil may be given; a subclass with another default takes it, too."""
        self.doc = doc
        self.secret = secret
        self.alias = alias
        self.deprecated = deprecated
        self.obsoleted = obsoleted
        self.placeholders = placeholders
        self.key = key or ""

    @property
    def required(self) -> bool:
        """Whether the configuration must give it."""
        return self.default is REQUIRED and self.obsoleted is None

    @property
    def keys(self) -> tuple[str, ...]:
        """Every name under which the configuration may give it."""
        return (self.key, self.alias) if self.alias else (self.key,)

    def with_default(self, default: T) -> Param[T]:
        """Return the same declaration with another default, for a subclass."""
        other = copy.copy(self)
        other.default = default
        return other

    def initial(self) -> T:
        """Return the default; a list or dict as a copy."""
        if self.default is REQUIRED:
            if self.obsoleted is not None:
                return cast("T", None)
            raise AttributeError(f'the parameter "{self.key}" is required and not configured')
        return cast("T", copy.copy(self.default) if isinstance(self.default, (list, dict)) else self.default)

    def fill(self, instance: Configurable, directive: Directive, problems: Problems) -> None:
        """Convert the value that `directive` gives and set it on `instance`."""
        place = directive.place
        if self.obsoleted is not None:
            problems.error(f'parameter "{directive.name}" is removed', place, hint=self.obsoleted)
            return
        if self.deprecated is not None:
            problems.warn(f'parameter "{directive.name}" is deprecated', place, hint=self.deprecated)
        literal = literal_of(directive)
        if literal is USE_DEFAULT:
            if self.required:
                problems.error(f'parameter "{self.key}" is required and has no default', place)
            return
        if literal is None:
            if self.required:
                problems.error(f'parameter "{self.key}" is required, but nil is given', place)
            elif not self.nullable:
                hint = 'leave it out, or write "#{use_default}" in the place of use_nil'
                problems.error(f'parameter "{directive.name}" cannot be nil', place, hint=hint)
            else:
                instance.__dict__[self.name] = None
            return
        try:
            instance.__dict__[self.name] = self.convert(literal)
        except (ValueError, OverflowError) as error:
            shown = "the value is wrong" if self.secret else str(error)
            hint = ""
            if literal == "nil":
                hint = 'nil is written "#{use_nil}"' if self.nullable else "leave it out for its default"
            problems.error(f'parameter "{directive.name}": {shown}', place, hint=hint)


class Section(_Declared[T]):
    """A declared section; on an instance an object of its class, or a list of them when multi.

    With no class the section is kept raw: the Directive (None when absent), or a list of them. That is
    for sections which another plugin reads, such as `<format>` or `<store>`.
    argument: the parameter of the class that takes the argument of the tag, `<buffer ARGUMENT>`.
    """

    def __init__(
        self,
        cls: type[Configurable] | None,
        *,
        name: str | None = None,
        multi: bool = False,
        required: bool = False,
        argument: str | None = None,
        doc: str = "",
    ) -> None:
        self.cls = cls
        self.key = name or ""
        self.multi = multi
        self.required = required
        self.argument = argument
        self.doc = doc

    def initial(self) -> T:
        """Return an empty list, an object with its defaults, or None for a raw section."""
        value: object = [] if self.multi else self.cls() if self.cls else None
        return cast("T", value)

    def fill(self, instance: Configurable, found: list[Directive], problems: Problems) -> None:
        """Configure one object for each section found and set it on `instance`."""
        if self.required and not found:
            problems.error(f"a <{self.key}> section is required", instance.place)
        if not self.multi:
            for extra in found[1:]:
                problems.error(f"there is a second <{self.key}> section", extra.place, hint="it may stand once")
            del found[1:]
        made = [self._make(directive, problems) for directive in found]
        if self.multi:
            instance.__dict__[self.name] = made
        elif made:
            instance.__dict__[self.name] = made[0]

    def _make(self, directive: Directive, problems: Problems) -> Configurable | Directive:
        if self.cls is None:
            return directive
        made = self.cls()
        if self.argument is not None:
            made.take_argument(self.argument, directive, problems)
        elif any(directive.args):
            problems.unknown(f"<{self.key}> takes no argument", directive.place)
        made.configure(directive, problems)
        return made


class Configurable:
    """A class whose parameters are declared as attributes.

    directive: the section it was configured from, None while it has only defaults.
    """

    directive: Directive | None = None
    _argument: tuple[str, Directive] | None = None
    _declared: ClassVar[dict[str, Param[Any] | Section[Any]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        found: dict[str, Param[Any] | Section[Any]] = {}
        for base in reversed(cls.__mro__):
            for name, value in vars(base).items():
                if isinstance(value, (Param, Section)):
                    found[name] = value
                elif name in found:  # a subclass took the parameter away
                    del found[name]
        cls._declared = found

    @property
    def present(self) -> bool:
        """Whether the configuration has this section at all."""
        return self.directive is not None

    @property
    def place(self) -> Place | None:
        """Where the section begins."""
        return self.directive.place if self.directive else None

    def place_of(self, key: str) -> Place | None:
        """Where the parameter `key` is given; where the section begins if it is not."""
        given = list(self.directive.children(key)) if self.directive else []
        return given[-1].place if given else self.place

    def configure(self, directive: Directive, problems: Problems) -> None:
        """Fill the values from `directive`; everything wrong goes to `problems`."""
        self.directive = directive
        before = problems.broken
        params = {key: item for item in declared_params(type(self)) for key in item.keys}
        sections = {item.key: item for item in declared_sections(type(self))}
        given: dict[str, Directive] = {}
        nested: dict[str, list[Directive]] = {}
        for child in directive.block or ():
            if child.block is not None:
                if child.name in sections:
                    nested.setdefault(child.name, []).append(child)
                else:
                    self._unknown_section(child, params, sections, problems)
            elif key := _known_key(child, params, directive, problems):
                item = params[key]
                if item.name in given:
                    problems.warn(f'parameter "{child.name}" is given twice; the last one counts', child.place)
                given[item.name] = child
            else:
                self._unknown_param(child, params, sections, problems)
        for item in {id(item): item for item in params.values()}.values():
            if item.name in given:
                item.fill(self, given[item.name], problems)
            elif not (self._argument and self._argument[0] == item.name):
                if item.required:
                    problems.error(
                        f'parameter "{item.key}" is required', directive.place, hint=f"in {_title(directive)}"
                    )
                else:
                    self.__dict__.setdefault(item.name, item.initial())
        for section in sections.values():
            section.fill(self, nested.get(section.key, []), problems)
        if problems.broken == before:
            self.validate(problems)
        self.validate_values(problems)

    def validate(self, problems: Problems) -> None:
        """Check what one parameter cannot know alone; called when every value is well-formed."""

    def validate_values(self, problems: Problems) -> None:
        """Check parameters that have a default, each by itself; called also when others are wrong."""

    def take_argument(self, name: str, directive: Directive, problems: Problems) -> None:
        """Fill the parameter `name` from the argument of the section's tag, if it has one."""
        if any(directive.args):
            self._argument = (name, directive)
            item = self._declared[name]
            assert isinstance(item, Param)
            item.fill(self, directive, problems)

    def placeholder_texts(self) -> Iterator[tuple[Param[Any], object]]:
        """Yield the parameters that may hold placeholders, with their values, None left out."""
        for item in declared_params(type(self)):
            if item.placeholders and (value := getattr(self, item.name)) is not None:
                yield item, value

    @staticmethod
    def _unknown_section(
        child: Directive, params: dict[str, Param[Any]], sections: dict[str, Section[Any]], problems: Problems
    ) -> None:
        hint = f'"{child.name}" is a parameter: {child.name} VALUE' if child.name in params else ""
        problems.unknown(f"unknown section <{child.name}>", child.place, hint=hint or near_miss(child.name, sections))

    @classmethod
    def hint_for(cls, name: str) -> str:
        """What to do about a parameter that is unknown here and known elsewhere; "" when there is nothing to say."""
        return ""

    @classmethod
    def _unknown_param(
        cls, child: Directive, params: dict[str, Param[Any]], sections: dict[str, Section[Any]], problems: Problems
    ) -> None:
        name = child.name
        hint = f'"{name}" is a section: <{name}> ... </{name}>' if name in sections else ""
        hint = hint or cls.hint_for(name) or near_miss(name, params)
        problems.unknown(f'unknown parameter "{name}"', child.place, hint=hint)


def literal_of(directive: Directive) -> object:
    """Return the literal of a parameter: its first value, else its first argument, else ""."""
    if directive.values:
        return directive.values[0]
    return directive.args[0] if directive.args else ""


def reserved(directive: Directive, key: str) -> str | None:
    """Return the text of `@type`, `@id`, `@label` or `@log_level` of a section, or None.

    Old names without the `@` count where the new one is absent; `configure` warns about them.
    """
    for name in (key, RESERVED_OLD_NAMES.get(key)):
        found = None
        for child in directive.children(name) if name else ():
            if child.block is None:
                found = child
        if found is not None and isinstance(literal := literal_of(found), str):
            return literal
    return None


def declared_params(cls: type[Configurable]) -> list[Param[Any]]:
    """The parameters of a class in the order of their declaration, bases first."""
    return [item for item in cls._declared.values() if isinstance(item, Param)]


def declared_sections(cls: type[Configurable]) -> list[Section[Any]]:
    """The sections of a class in the order of their declaration, bases first."""
    return [item for item in cls._declared.values() if isinstance(item, Section)]


def declared(cls: type[Configurable]) -> Iterator[Param[Any] | Section[Any]]:
    """Yield every declaration of a class: its parameters, then its sections."""
    yield from declared_params(cls)
    yield from declared_sections(cls)


def _known_key(child: Directive, params: dict[str, Param[Any]], parent: Directive, problems: Problems) -> str | None:
    if child.name in params:
        return child.name
    for key, old in RESERVED_OLD_NAMES.items():
        if child.name == old and key in params and not any(parent.children(key)):
            problems.warn(f'"{old}" is deprecated', child.place, hint=f"write {key}")
            return key
    return None


def _title(directive: Directive) -> str:
    kind = reserved(directive, "@type")
    head = " ".join((directive.name, *filter(None, directive.args)))
    return f"<{head}> @type {kind}" if kind else f"<{head}>"
