"""The entry points. Each imports only the command it runs, so that `headrace version` starts at once."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """`headrace`: returns the exit status."""
    from headrace.commands import main as command  # noqa: PLC0415 - see above

    return command.main(_arguments(argv))


def nginx_main(argv: Sequence[str] | None = None) -> int:
    """`headrace-nginx`, nginx's command line."""
    from headrace.commands import nginx as command  # noqa: PLC0415 - see above

    return command.main(_arguments(argv))


def fluentd_main(argv: Sequence[str] | None = None) -> int:
    """`headrace-fluentd`, fluentd's command line."""
    from headrace.commands import fluentd as command  # noqa: PLC0415 - see above

    return command.main(_arguments(argv))


def resty_main(argv: Sequence[str] | None = None) -> int:
    """`headrace-resty`, resty's command line."""
    from headrace.commands import resty as command  # noqa: PLC0415 - see above

    return command.main(_arguments(argv))


def _arguments(argv: Sequence[str] | None) -> list[str]:
    # What a start makes is there to stay: looking for garbage in it is a tenth of the time to the first answer.
    # Workers collect again (supervisor.worker).
    gc.disable()
    return list(sys.argv[1:] if argv is None else argv)
