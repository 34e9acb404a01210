"""Plugins that are files of a folder: DIR/out_pigeon.py is what `@type pigeon` of a <match> means.

Rules:
- The names are Fluentd's: in_, out_, filter_, parser_, formatter_, buf_, storage_, sd_ and the plugin's name; a
  package (out_pigeon/__init__.py) does as well. The plugin is the one class there that derives from the base class
  of its kind; classes whose name begins with an underscore do not count.
- A folder goes before the built-ins and the installed packages, and an earlier folder before a later one: who names
  a folder wants what is in it.
- A file is executed when a configuration first names it, and again at a reload. What it imports from its own folder
  is found there.
- Files of Ruby are not loaded. They are told of, and who needs one hears that its file is Ruby.
"""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.errors import ConfError
from headrace.pipeline.context import BASES
from headrace.plugins import registry

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import ModuleType

    from headrace.conf.params import Problems
    from headrace.pipeline.plugin import Plugin

_MODULES: Final = "headrace_plugins"  # the name of loaded modules in sys.modules begins with it
_SHOWN: Final = 5  # names of files in one message

_WORK: Final = {
    "filter": ("filter", "filter_batch", "filter_later"),
    "formatter": ("format",),
    "output": ("write", "process", "try_write", "emit"),
    "parser": ("parse", "parse_lines"),
}
"""Methods of which a plugin overrides at least one."""


class Folders:
    """Plugins of folders first, then everybody's. optional: folders that may be missing, such as the default one."""

    def __init__(self, paths: Sequence[str], *, optional: Sequence[str] = ()) -> None:
        every = [Path(path).absolute() for path in (*paths, *optional)]
        self._missing = [Path(path) for path in paths if not Path(path).is_dir()]
        self._folders = [path for path in dict.fromkeys(every) if path.is_dir()]
        self._loaded: dict[tuple[str, str], type[Plugin]] = {}

    def report(self, problems: Problems) -> None:
        """Warn of folders that are missing, and of Ruby in the others."""
        for path in self._missing:
            problems.warn(f"the plugin folder {path} does not exist")
        for folder in self._folders:
            ruby = sorted(file.name for file in folder.glob("*.rb"))
            if ruby:
                more = f" and {len(ruby) - _SHOWN} more" if len(ruby) > _SHOWN else ""
                problems.warn(
                    f"plugins of {folder} are not loaded, for they are Ruby: {', '.join(ruby[:_SHOWN])}{more}",
                    hint="headrace's plugins are Python: docs/plugins.md",
                )

    def names(self, kind: str) -> list[str]:
        """All names that a `@type` of this kind may have, sorted."""
        prefix = registry.PREFIXES[kind] + "_"
        found = {path.stem.removeprefix(prefix) for path in self._candidates() if path.stem.startswith(prefix)}
        return sorted({*registry.names(kind), *found})

    def lookup(self, kind: str, name: str) -> type[Plugin]:
        """The class of a plugin, as `registry.lookup`. Raises ConfError for a file that holds none."""
        known = self._loaded.get((kind, name))
        if known is not None:
            return known
        path = self._find(f"{registry.PREFIXES[kind]}_{name}")
        if path is None:
            return self._elsewhere(kind, name)
        made = self._loaded[kind, name] = _load(kind, name, path)
        return made

    def _candidates(self) -> Iterable[Path]:
        for folder in self._folders:
            yield from folder.glob("*.py")
            yield from (path.parent for path in folder.glob("*/__init__.py"))

    def _find(self, stem: str) -> Path | None:
        if not stem.replace("-", "_").isidentifier():
            return None  # a name with a slash leaves the folder
        for folder in self._folders:
            for path in (folder / f"{stem}.py", folder / stem / "__init__.py"):
                if path.is_file():
                    return path
        return None

    def _elsewhere(self, kind: str, name: str) -> type[Plugin]:
        try:
            return registry.lookup(kind, name)
        except ConfError as error:
            stem = f"{registry.PREFIXES[kind]}_{name}"
            for folder in self._folders:
                if (folder / f"{stem}.rb").is_file():
                    raise ConfError(
                        f'{kind} plugin "{name}" is Ruby: {folder / stem}.rb',
                        hint=f"write it in Python as {stem}.py (docs/plugins.md)",
                    ) from None
            built_in = registry.names(kind)
            near = registry.near(name, [known for known in self.names(kind) if known not in built_in])
            raise ConfError(error.message, hint=f'did you mean "{near}"?' if near else error.hint) from None


def _load(kind: str, name: str, path: Path) -> type[Plugin]:
    package = path.name == "__init__.py"
    folder = path.parent.parent if package else path.parent
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    module = _execute(kind, name, path, f"{_MODULES}_{path.parent.name if package else path.stem}")
    base = BASES[kind]
    found = {
        value
        for key, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, base)
        and not key.startswith("_")
        and (value.__module__ == module.__name__ or value.__module__.startswith(f"{module.__name__}."))
    }
    if len(found) == 1:
        (cls,) = found
        methods = _WORK.get(kind, ())
        if methods and all(getattr(cls, method) is getattr(base, method) for method in methods):
            raise ConfError(f'{path}: {cls.__name__} has no method "{methods[0]}"', hint="docs/plugins.md")
        return cls
    if not found:
        raise ConfError(
            f'{path} defines no {kind} plugin "{name}"',
            hint=f"it needs a class that derives from headrace.pipeline.plugin.{base.__name__}",
        )
    names = ", ".join(sorted(cls.__name__ for cls in found))
    raise ConfError(
        f"{path} defines several {kind} plugins: {names}",
        hint="one file has one; begin the names of the others with an underscore",
    )


def _execute(kind: str, name: str, path: Path, module_name: str) -> ModuleType:
    """Run the file as a module. Raises ConfError for whatever it raises."""
    locations = [str(path.parent)] if path.name == "__init__.py" else None
    spec = spec_from_file_location(module_name, path, submodule_search_locations=locations)
    assert spec is not None
    assert spec.loader is not None
    for old in [key for key in sys.modules if key == module_name or key.startswith(f"{module_name}.")]:
        del sys.modules[old]
    module = sys.modules[module_name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        sys.modules.pop(module_name, None)
        where = _line_of(error, path)
        raise ConfError(
            f'{kind} plugin "{name}" cannot be loaded from {path}{where}: {type(error).__name__}: {error}'
        ) from error
    return module


def _line_of(error: Exception, path: Path) -> str:
    """Where in the file an error came up, as ":LINE"."""
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f":{line}" if line else ""
