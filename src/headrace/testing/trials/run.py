"""Cases, one after the other, each with a pipeline of its own."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.conf import fluent
from headrace.conf.params import Problems
from headrace.errors import Error
from headrace.plugins.folder import Folders
from headrace.testing.trials import cases
from headrace.testing.trials.compare import Failure, compare
from headrace.testing.trials.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.conf.tree import Directive
    from headrace.testing.trials.cases import Case

ENDING: Final = ".test.yaml"


@dataclass
class Result:
    """What became of a case. notes: shown beside failures."""

    case: Case
    failures: list[Failure]
    notes: list[str] = field(default_factory=list)


def files_beside(conf: str) -> list[str]:
    """The test files of a configuration: NAME.test.yaml and NAME.*.test.yaml beside it."""
    path = Path(conf)
    found = [*path.parent.glob(f"{path.stem}{ENDING}"), *path.parent.glob(f"{path.stem}.*{ENDING}")]
    return sorted(map(str, found))


def run_all(conf: str, files: Sequence[str], *, plugins: Sequence[str] = (), chosen: str = "") -> Iterator[Result]:
    """Run the cases of all files whose name holds `chosen`. Raises ConfError, OSError."""
    problems = Problems()
    tree = fluent.load(conf, worker_id="0", problems=problems)
    problems.raise_first()
    folders = Folders(plugins)
    every = [case for path in files for case in cases.read(path)]
    for case in every:
        if chosen in case.name:
            yield asyncio.run(_run(case, tree, folders))


async def _run(case: Case, tree: Sequence[Directive], folders: Folders) -> Result:
    stage = Stage(tree, folders.lookup, case.at)
    try:
        seen = await stage.play(case.inputs)
    except Error as error:
        return Result(case, [Failure(case.place, str(error))], stage.seen.notes)
    failures = compare(case, seen)
    return Result(case, failures, seen.notes)
