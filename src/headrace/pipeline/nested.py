"""What stands within a section whose own parameters are wrong: it is checked all the same.

A plugin makes what is nested in it when it is provisioned, and one with a wrong value is not. Then the sections are
looked at here, by what their names mean, so that everything wrong is known at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from headrace.conf.declare import declared_sections
from headrace.conf.params import reserved
from headrace.errors import ConfError
from headrace.pipeline.compat import converted
from headrace.pipeline.plugin import Output

if TYPE_CHECKING:
    from headrace.conf.tree import Directive
    from headrace.pipeline.context import Context
    from headrace.pipeline.plugin import Plugin
    from headrace.pipeline.settings import BufferSection

_KINDS: Final = {"format": "formatter", "parse": "parser", "store": "output", "service_discovery": "sd"}
"""Section -> the kind of the plugin it describes."""


def check(context: Context, plugin: Plugin, section: Directive) -> None:
    """Report what is wrong in the sections of a plugin that is not provisioned."""
    for declared in declared_sections(type(plugin)):
        kind = _KINDS.get(declared.key)
        if declared.cls is not None or kind is None:
            continue  # read with the plugin's own parameters, or handled below
        for child in section.children(declared.key):
            if child.block is None:
                continue
            default = plugin.old_style.get(declared.key) or plugin.nested_types.get(declared.key)
            type_name = reserved(child, "@type") or default
            if type_name and not (kind == "parser" and type_name == default):  # that one is the plugin itself
                context.make(kind, child, default_type=type_name, router=plugin.router)
    if isinstance(plugin, Output):
        _check_buffer(context, plugin, section)
        check_secondary(context, plugin)


def check_secondary(context: Context, output: Output) -> None:
    """Report what is wrong in the <secondary> of an output whose buffer cannot be."""
    given = output.secondary_section
    if given is None:
        return
    type_name = reserved(given, "@type") or output.type_
    try:
        cls = context.lookup("output", type_name)
    except ConfError as error:
        context.problems.error(error.message, error.place or given.place, hint=error.hint)
        return
    cls().configure(converted(cls, given, context.lookup, context.problems), context.problems)


def _check_buffer(context: Context, output: Output, section: Directive) -> None:
    from headrace.pipeline.settings import configured, with_defaults  # noqa: PLC0415 - it needs the base classes

    for given in section.children("buffer"):
        if given.block is None:
            continue
        defaults = output.buffer_defaults
        directive = with_defaults(given, defaults, output.default_chunk_keys)
        type_name = reserved(directive, "@type") or defaults.get("@type", "memory")
        try:
            cls = context.lookup("buffer", type_name)
        except ConfError as error:
            context.problems.error(error.message, given.place, hint=error.hint)
            continue
        configured(cast("BufferSection", cls()), directive, context.problems)
