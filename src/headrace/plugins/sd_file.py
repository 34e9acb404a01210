"""`<service_discovery> @type file`: the nodes that a YAML or JSON file lists, read again when it changes.

The file is looked at every second. While what it holds is no list of nodes, the last good one stays, and one
warning tells what is wrong with it.

https://docs.fluentd.org/service_discovery/file
"""

from __future__ import annotations

import codecs
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headrace.conf.params import string
from headrace.errors import ConfError
from headrace.pipeline.discovery import Service, ServiceDiscovery
from headrace.plugins.sd_static import wrong

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.conf.params import Problems
    from headrace.core.clock import Deadline

INTERVAL: Final = 1.0
"""Seconds between two looks at the file."""

_TYPES: Final[dict[str, tuple[str, tuple[type, ...]]]] = {
    "host": ("text", (str,)),
    "port": ("a whole number", (int,)),
    "name": ("text", (str, type(None))),
    "weight": ("a whole number", (int,)),
    "standby": ("true or false", (bool, type(None))),
    "username": ("text", (str, type(None))),
    "password": ("text", (str, type(None))),
    "shared_key": ("text", (str, type(None))),
}


class FileDiscovery(ServiceDiscovery):
    """Nodes from a file."""

    path = string(
        default="/etc/fluent/sd.yaml", doc="The file; its name ends with .json, or it is YAML ($DEFAULT_SD_FILE_PATH)"
    )
    conf_encoding = string(default="utf-8", doc="Encoding of the file")

    def validate(self, problems: Problems) -> None:
        """Read the file once, so that `check` finds what is wrong in it."""
        default = os.environ.get("DEFAULT_SD_FILE_PATH")
        if default and self.directive is not None and not any(self.directive.children("path")):
            self.path = default
        try:
            codecs.lookup(self.conf_encoding)
        except LookupError:
            problems.error(f'unknown encoding "{self.conf_encoding}"', self.place_of("conf_encoding"))
            return
        try:
            self._services = tuple(self._read())
        except ConfError as error:
            problems.error(error.message, self.place_of("path"), hint=error.hint)

    async def start(self) -> None:
        """Read the file as it is now, and look at it from now on."""
        self._timer: Deadline | None = self.context.clock.deadline(INTERVAL, self._look)
        self._mark: object = None
        self._refresh()

    def _look(self) -> None:
        assert self._timer is not None
        self._timer.reschedule(INTERVAL)
        self._refresh()

    def _refresh(self) -> None:
        mark = self._identity()
        if mark == self._mark:
            return
        self._mark = mark
        try:
            services = self._read()
        except ConfError as error:
            self.log.warning("%s; the %d nodes known before are kept", error.message, len(self.services))
            return
        self.found(services)

    def _identity(self) -> object:
        """What changes when the file does."""
        try:
            now = os.stat(self.path)
        except OSError as error:
            return error.errno
        return now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns

    def _read(self) -> list[Service]:
        """The nodes of the file. Raises ConfError: there is no such file, or it is no list of nodes."""
        path = self.path
        try:
            text = Path(path).read_text(encoding=self.conf_encoding)
        except OSError as error:
            raise ConfError(f"{path} cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise ConfError(f"{path} is not {self.conf_encoding}: {error}") from error
        try:
            entries = _parser(path)(text)
        except (ValueError, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else error
            raise ConfError(f"{path}: {reason}") from error
        if not isinstance(entries, list):
            raise ConfError(f"{path} holds no list of nodes", hint="each with host and port")
        return [_service(path, number, entry) for number, entry in enumerate(entries, 1)]

    async def stop(self) -> None:
        """Look no more."""
        timer, self._timer = getattr(self, "_timer", None), None
        if timer is not None:
            timer.cancel()


def _parser(path: str) -> Callable[[str], Any]:
    """By the name of the file; both raise ValueError."""
    return json.loads if path.endswith(".json") else _yaml


def _yaml(text: str) -> Any:
    import yaml  # noqa: PLC0415 - only this plugin needs it

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def _service(path: str, number: int, entry: object) -> Service:
    where = f"{path}, node {number}"
    if not isinstance(entry, dict):
        raise ConfError(f"{where} is no mapping")
    for name in ("host", "port"):
        if entry.get(name) is None:
            raise ConfError(f"{where} has no {name}")
    values: dict[str, Any] = {}
    for name, value in entry.items():
        if name not in _TYPES:
            raise ConfError(f'{where}: unknown parameter "{name}"')
        wanted, types = _TYPES[name]
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise ConfError(f"{where}: {name} must be {wanted}")
        if value is not None:
            values[name] = value
    service = Service(**values)
    for message in wrong(service):
        raise ConfError(f"{where}: {message}")
    return service
