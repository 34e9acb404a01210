"""Sessions whose peer a script chooses: edge's steering, with what a session has of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.edge.upstream.steer import Steered

if TYPE_CHECKING:
    from headrace.edge.upstream.peers import Group
    from headrace.stream.settings import ProxySettings


class SessionSteered(Steered):
    """The chooser of a session. settings: those of its server, with what the script has changed."""

    def __init__(self, group: Group, session: Any, script: Any) -> None:
        super().__init__(group, session, script)
        self.session = session
        self.settings: ProxySettings = session.server.proxy

    def ask(self) -> int:
        """See Steered."""
        self.session.phase = "connect"
        try:
            return self.script(self.session, self)
        finally:
            self.session.phase = ""

    @property
    def most(self) -> int:
        """See Steered."""
        return self.settings.next_tries

    def set_timeouts(self, connect: float, send: float, _read: float) -> None:
        """See Steered; sessions have one time for both directions."""
        now = self.settings
        self.settings = replace(now, connect_timeout=connect or now.connect_timeout, timeout=send or now.timeout)

    def last_failure(self) -> tuple[str, int] | None:
        """See Steered; there is no status."""
        return None if self.failure is None else (self.failure, 0)
