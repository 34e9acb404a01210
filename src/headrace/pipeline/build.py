"""fluent.conf -> Pipeline: which plugins there are, in which label, and in which order they run.

`build_pipeline` reads a parsed configuration for one worker and touches nothing outside the process, so
that `check` can call it; everything wrong is in `problems`, all at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.conf.params import near_miss, reserved
from headrace.errors import ConfError
from headrace.pipeline.context import Context, Settings, of_kind
from headrace.pipeline.dlq import LABEL as DLQ_LABEL
from headrace.pipeline.logevents import LABEL as LOG_LABEL
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.plugin import Output, Source
from headrace.pipeline.router import Router
from headrace.pipeline.system import SystemSection

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.conf.params import Problems
    from headrace.conf.tree import Directive
    from headrace.pipeline.context import Lookup
    from headrace.pipeline.files import Files
    from headrace.pipeline.plugin import ListenSpec

ERROR_LABEL: Final = "@ERROR"
_ANY_TAG: Final = "\0"
"""A tag that only patterns for all tags take."""
_IN_WORKER: Final = ("source", "match", "filter", "label")
_IN_LABEL: Final = ("match", "filter")
_PLACES: Final = {
    "buffer": "it stands in a <match> section",
    "secondary": "it stands in a <match> section",
    "store": "it stands in a <match> section of the type copy or roundrobin",
    "server": "it stands in a <match> section of the type forward",
    "format": "it stands in a <match> section, or in a <filter> of the type stdout",
    "parse": "it stands in a <source> section, or in a <filter> of the type parser",
    "record": "it stands in a <filter> section of the type record_transformer",
    "storage": "it stands in a section of a plugin",
    "transport": "it stands in a <source> section",
}
_TOP: Final = (*_IN_WORKER, "system", "worker")


def build_pipeline(
    tree: Sequence[Directive],
    *,
    lookup: Lookup,
    problems: Problems,
    settings: Settings | None = None,
    files: Files | None = None,
    sources: bool = True,
) -> Pipeline | None:
    """Build the pipeline of worker `settings.worker_id`; None when `problems` has errors.

    lookup: plugins.registry.lookup. sources: False leaves the <source> sections out.
    """
    before = len(problems.errors)
    settings = settings or Settings()
    system = system_section(tree, problems)
    system.apply(settings)
    context = Context(lookup, problems, settings)
    if files is not None:
        context.files = files
    parts = list(_parts(tree, settings, problems))
    labels = [(directive, _label(directive, context)) for directive, _own in parts if directive.name == "label"]
    for directive, router in labels:
        if router is not None:
            _rules(directive.block or (), router, context)
            if not any(child.name == "match" for child in directive.block or ()):
                problems.error(f"<label {router.name}> has no <match> section", directive.place)
    _rules([directive for directive, _own in parts if directive.name in _IN_LABEL], context.root, context)
    _no_circles(context)
    if sources and not system.without_source:
        for directive, own in parts:
            if directive.name == "source":
                _source(directive, context, own=own)
        _each_address_once(context)
    if len(problems.errors) > before:
        return None
    return Pipeline(context, system)


def system_section(tree: Sequence[Directive], problems: Problems) -> SystemSection:
    """Read <system>; with its defaults when there is none."""
    found = [directive for directive in tree if directive.name == "system" and directive.block is not None]
    for extra in found[1:]:
        problems.error("there is a second <system> section", extra.place, hint="it may stand once")
    section = SystemSection()
    if found:
        section.configure(found[0], problems)
    return section


def _parts(tree: Sequence[Directive], settings: Settings, problems: Problems) -> Iterator[tuple[Directive, bool]]:
    """Yield the sections that this worker runs; with each, whether it stands in a <worker> section."""
    taken: set[int] = set()
    for directive in tree:
        if directive.block is None:
            problems.unknown(f'unknown parameter "{directive.name}" outside of all sections', directive.place)
        elif directive.name == "worker":
            chosen = _workers(directive, settings, problems)
            if overlap := taken & chosen:
                problems.error(f"worker {min(overlap)} has two <worker> sections", directive.place)
            taken |= chosen
            for child in directive.block:
                if child.block is None or child.name not in _IN_WORKER:
                    problems.error(f"<worker> cannot have <{child.name}>", child.place)
                elif settings.worker_id in chosen:
                    yield child, True
        elif directive.name in _IN_WORKER:
            yield directive, False
        elif directive.name not in _TOP:
            hint = _PLACES.get(directive.name) or near_miss(directive.name, _TOP)
            problems.unknown(f"unknown section <{directive.name}>", directive.place, hint=hint)


def _workers(directive: Directive, settings: Settings, problems: Problems) -> set[int]:
    """Return the workers that <worker N> or <worker N-M> names."""
    text = directive.args[0].strip() if directive.args else ""
    first, dash, last = text.partition("-")
    if not first.isdigit() or (dash and not last.isdigit()):
        problems.error("<worker> needs a worker's number, or two: <worker 0-3>", directive.place)
        return set()
    low = int(first)
    high = int(last) if dash else low
    if low > high:
        problems.error(f"<worker {text}>: the first number is greater than the last", directive.place)
        return set()
    if high >= settings.workers:
        problems.error(
            f"<worker {text}>: there is no worker {high}", directive.place, hint=f"workers is {settings.workers}"
        )
        return set()
    return set(range(low, high + 1))


def _label(directive: Directive, context: Context) -> Router | None:
    name = directive.args[0].strip() if directive.args else ""
    problems = context.problems
    if not name:
        problems.error("<label> needs a name", directive.place, hint="<label @NAME>")
    elif name == "@ROOT":
        problems.error("<label @ROOT> is not possible: it is the name of the top level", directive.place)
    elif name in context.labels:
        problems.error(f"<label {name}> appears twice", directive.place)
    else:
        router = Router(name, context.desk, context.log, quiet=name == LOG_LABEL)
        context.labels[name] = router
        if name == ERROR_LABEL:
            context.desk.collector = router
        elif name == DLQ_LABEL:
            context.desk.dlq = router
        return router
    return None


def _rules(sections: Sequence[Directive], router: Router, context: Context) -> None:
    """Make the <match> and <filter> plugins of one label, in their order."""
    problems = context.problems
    for directive in sections:
        if directive.block is None or directive.name not in _IN_LABEL:
            problems.unknown(f"a label cannot have <{directive.name}>", directive.place, hint="<match> or <filter>")
            continue
        pattern = (directive.args[0] if directive.args else "").strip() or "**"
        kind = "filter" if directive.name == "filter" else "output"
        plugin = context.make(kind, directive, router=router)
        if plugin is None:
            continue
        try:
            if kind == "filter":
                router.add_filter(pattern, plugin)
            else:
                router.add_output(pattern, plugin)
        except ValueError as error:
            problems.error(str(error), directive.place)


def _no_circles(context: Context) -> None:
    """Report labels that pass events to each other for ever, under a tag that the configuration tells of, or any."""
    routers = [context.root, *context.labels.values()]
    tags = {_ANY_TAG, *(tag for router in routers for tag in router.literal_tags())}
    told: set[int] = set()

    def walk(router: Router, tag: str, trail: tuple[Router, ...], *, filtered: bool) -> None:
        filters, taker = router.way_of(tag)
        filtered = filtered or bool(filters)
        if not isinstance(taker, Output) or id(taker) in told:
            return
        for target in taker.passes_to:
            if target in (*trail, router):
                told.add(id(taker))
                shown = "events" if tag == _ANY_TAG else f'events with the tag "{tag}"'
                (context.problems.warn if filtered else context.problems.error)(
                    f"{shown} come back to {target.name} here, and go round for ever",
                    taker.place,
                    hint="unless a filter ends them" if filtered else "send them to a label that does not lead back",
                )
            else:
                walk(target, tag, (*trail, router), filtered=filtered)

    for router in routers:
        for tag in sorted(tags):
            walk(router, tag, (), filtered=False)


def _each_address_once(context: Context) -> None:
    """Report listeners of two sources that the system would not open side by side."""
    taken: list[tuple[ListenSpec, str, str, Source]] = []
    for source in of_kind(context.plugins, Source):
        for spec in source.listeners():
            host, _, port = ("", "", spec.address) if spec.address.startswith("unix:") else spec.address.rpartition(":")
            host = "0.0.0.0" if host in {"", "*"} else host
            for before, its_host, its_port, owner in taken:
                every = "0.0.0.0" in {host, its_host} and "[" not in host + its_host
                if spec.kind == before.kind and port == its_port and (host == its_host or every):
                    context.problems.error(
                        f'{spec.address} is already listened to by "{owner.plugin_id}" ({before.address})',
                        spec.place or source.place,
                        hint="each source needs an address of its own",
                    )
                    break
            taken.append((spec, host, port, source))


def _source(directive: Directive, context: Context, *, own: bool) -> None:
    settings = context.settings
    type_name = reserved(directive, "@type")
    if type_name is not None and settings.workers > 1 and not own and settings.worker_id > 0:
        try:
            cls = context.lookup("input", type_name)
        except ConfError:
            cls = Source
        if not cls.multi_workers_ready:
            return  # what cannot be shared runs in worker 0
    context.one_worker = own or settings.workers == 1
    context.make("input", directive, router=context.root)
    context.one_worker = settings.workers == 1
