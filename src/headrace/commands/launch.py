"""What every command does to start: build the plan, say what is wrong, hand over to the master."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.conf.params import Problems
from headrace.errors import ConfError, Error
from headrace.supervisor.admin.rundir import masters
from headrace.supervisor.master import Master
from headrace.topology.plan import Plan
from headrace.topology.plan import build as build_plan

if TYPE_CHECKING:
    from headrace.topology.options import Options

Say = Callable[[str, ConfError], None]
"""Called with "emerg", "alert" or "warn" and each thing that is wrong."""


def build(options: Options, say: Say, *, probe: bool = False) -> Plan | None:
    """The plan; None when there is none, after everything that is wrong was said.

    probe: whether the pipeline's listeners are tried.
    """
    problems = Problems(unknown_is_error=options.unknown_is_error)
    try:
        plan = build_plan(options, problems)
        if probe and plan is not None and plan.pipeline is not None:
            plan.pipeline.probe(problems, running=bool(masters()))
    except ConfError as error:
        problems.errors.append(error)
        plan = None
    except Error as error:
        problems.error(error.message)
        plan = None
    for level, finding in problems.findings():
        say("emerg" if level == "error" else finding.level, finding)
    return None if problems.errors else plan


def rebuild(options: Options) -> Plan:
    """The plan for a reload; raises Error that tells everything that is wrong."""
    problems = Problems(unknown_is_error=options.unknown_is_error)
    try:
        plan = build_plan(options, problems)
    except ConfError as error:
        raise Error(str(error), kind="configuration") from error
    if problems.errors or plan is None:
        errors = [str(finding) for level, finding in problems.findings() if level == "error"]
        raise Error("; ".join(errors), kind="configuration")
    return plan


def serve(plan: Plan, options: Options) -> int:
    """Run until told to stop; the exit status. Raises Error when it cannot start."""
    fd = plan.errors_fd if plan.process.daemon else None
    return Master(plan, lambda: rebuild(options)).run(output=fd if options.pipeline else None, errors=fd)
