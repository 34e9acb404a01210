"""`headrace test CONF [TESTFILE...]`: unit tests of a pipeline or a gateway, in virtual time; see docs/testing.md."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any, Final

from headrace.commands.tap import coloured
from headrace.errors import ConfError, Error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.testing.trials.run import Result

HELP: Final = """\
Without TESTFILE the files CONF-without-its-ending.test.yaml and .*.test.yaml beside CONF are run; for an nginx.conf,
.test.lua and .*.test.lua. No port is opened and no log is written: outputs keep what comes to them, buffers are left
out, upstreams of a gateway are those of the test, and time is virtual.

examples:
  headrace test fluent.conf                       fluent.test.yaml beside it
  headrace test fluent.conf more/*.test.yaml      these files
  headrace test fluent.conf -k error              tests with "error" in their name
  headrace test fluent.conf --json                a JSON list, for a program
  headrace test nginx.conf                        nginx.test.lua beside it

a test file of a gateway:
  test("a user has a name", function(t)
      t:http_upstream("users.local:80", function(request) return {body = '{"name": "ann"}'} end)
      local answer = t:request{uri = "/users/1", headers = {Accept = "*/*"}}
      equal(answer.status, 200)
  end)

a test file of a pipeline:
  tests:
    - name: errors have a tag of their own
      inputs:
        - tag: app.web
          records: [{level: error, text: boom}, {level: info, text: fine}]
      expect:
        - output: errors
          events: [{tag: error.app.web, record: {level: error, text: boom}}]
        - output: everything
          count: 1
"""


def add(command: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.description = "Run unit tests of a pipeline or a gateway."
    command.epilog = HELP
    command.add_argument("conf", metavar="CONF", help="the fluent.conf, or the nginx.conf")
    command.add_argument("files", nargs="*", metavar="TESTFILE", help="files with tests (default: those beside CONF)")
    command.add_argument("-k", dest="chosen", default="", metavar="TEXT", help="only tests whose name holds TEXT")
    command.add_argument("--json", action="store_true", help="a JSON list of all tests")
    command.add_argument(
        "--plugin", action="append", default=[], dest="plugins", metavar="DIR", help="folder with plugins (out_x.py)"
    )


def run(flags: argparse.Namespace) -> int:
    """Run the tests; 1 when one fails. Raises Error when they cannot be run."""
    files, ending, running = _chosen(flags)
    if not files:
        raise Error(f"there are no tests beside {flags.conf}: name files, or write NAME{ending} (docs/testing.md)")
    results: list[Result] = []
    try:
        for result in running:
            results.append(result)
            if not flags.json:
                _show(result)
    except OSError as error:
        raise Error(f"{error.filename}: {error.strerror}") from error
    if not results:
        raise Error(f'no test has "{flags.chosen}" in its name' if flags.chosen else "there are no tests in the files")
    failed = sum(bool(result.failures) for result in results)
    if flags.json:
        sys.stdout.write(json.dumps([_row(result) for result in results], indent=1) + "\n")
    else:
        sys.stdout.write(f"{len(results) - failed} passed, {failed} failed\n")
    return 1 if failed else 0


def _chosen(flags: argparse.Namespace) -> tuple[list[str], str, Iterator[Result]]:
    """The test files, how their names end, and what runs them."""
    from headrace.topology.detect import language  # noqa: PLC0415 - other commands do without

    if language(flags.conf) != "fluent":
        from headrace.testing.gateways import script  # noqa: PLC0415 - a pipeline does without

        if flags.plugins:
            raise ConfError("--plugin is for the tests of a fluent.conf")
        files = flags.files or script.files_beside(flags.conf)
        return files, script.ENDING, script.run_all(flags.conf, files, chosen=flags.chosen)
    from headrace.testing.trials import run as trials  # noqa: PLC0415 - a gateway does without

    files = flags.files or trials.files_beside(flags.conf)
    return files, trials.ENDING, trials.run_all(flags.conf, files, plugins=flags.plugins, chosen=flags.chosen)


def _row(result: Result) -> dict[str, Any]:
    return {
        "name": result.case.name,
        "file": result.case.place.file,
        "line": result.case.place.line,
        "passed": not result.failures,
        "failures": [
            {"file": one.place.file, "line": one.place.line, "message": one.message, "diff": one.diff}
            for one in result.failures
        ],
        "notes": result.notes,
    }


def _show(result: Result) -> None:
    if not result.failures:
        sys.stdout.write(f"ok    {result.case.name}\n")
        return
    colours = {"-": "\x1b[31m", "+": "\x1b[32m"} if coloured() else {}
    lines = [f"FAIL  {result.case.name}"]
    for one in result.failures:
        lines.append(f"  {one.place}: {one.message}")
        for line in one.diff:
            colour = colours.get(line[:1], "")
            lines.append(f"    {colour}{line}\x1b[0m" if colour else f"    {line}")
    if any(line[:1] == "-" for one in result.failures for line in one.diff):
        lines.append("    (- is expected, + is what came)")
    lines += [f"  {note}" for note in result.notes[:20]]
    text = "\n".join(lines) + "\n"
    sys.stdout.write(text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"))
