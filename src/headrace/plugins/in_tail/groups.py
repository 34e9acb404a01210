"""How much may be read: `read_bytes_limit_per_second` of a file, and lines of a <group>.

Both belong to the path, not to the file that has it: whoever rotates its log gets no second share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.conf.params import Configurable, hash_, integer, regexp, section, time
from headrace.conf.values import as_regexp

if TYPE_CHECKING:
    import re

    from headrace.conf.params import Problems

UNLIMITED: Final = -1
_CONTAINERS: Final = (
    r"/^\/var\/log\/containers\/"
    r"(?<podname>[a-z0-9]([-a-z0-9]*[a-z0-9])?(\/[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)"
    r"_(?<namespace>[^_]+)_(?<container>.+)-(?<docker_id>[a-z0-9]{64})\.log$/"
)


class RuleSection(Configurable):
    """Which files make up a group, and how much it may emit."""

    match = hash_(
        default=None,
        value_type=as_regexp,
        doc="Named group of the pattern -> pattern that it must match; all of them must; absent: every file",
    )
    limit = integer(default=UNLIMITED, doc="Lines of all files of the group in rate_period; -1: no limit, 0: none")

    def validate(self, problems: Problems) -> None:
        """Check the number."""
        if self.limit < UNLIMITED:
            problems.error('parameter "limit" must be -1 (no limit) or more', self.place_of("limit"))


class GroupSection(Configurable):
    """Files are put into groups by their paths."""

    pattern = regexp(default=as_regexp(_CONTAINERS), doc="Pattern of paths, with named groups; default: Kubernetes")
    rate_period = time(default=5.0, doc="Seconds in which the limits of the rules count")
    rules = section(RuleSection, name="rule", multi=True, required=True, doc="A group; the most specific rule counts")

    def validate(self, problems: Problems) -> None:
        """Check that the rules name groups of the pattern."""
        known = self.pattern.groupindex
        for rule in self.rules:
            for name in (rule.match or {}).keys() - known:
                problems.warn(
                    f'<rule> "match" names {name}, which is no group of the pattern',
                    rule.place_of("match") or rule.place,
                )


class Group:
    """Some paths that share a limit of lines in a period. Each has an equal part of it."""

    def __init__(self, limit: int, period: float) -> None:
        self.limit = limit
        self.period = period
        self.paths: set[str] = set()

    @property
    def share(self) -> int:
        """Lines of one path in a period."""
        return self.limit if self.limit <= 0 else max(self.limit // max(len(self.paths), 1), 1)


class Groups:
    """Finds the group of a path. `strays`: paths that the pattern does not match; their group has no limit."""

    def __init__(self, settings: GroupSection) -> None:
        self._pattern = settings.pattern
        self._default = Group(UNLIMITED, settings.rate_period)
        self._rules: list[tuple[dict[str, re.Pattern[str]], Group]] = []
        same: dict[tuple[tuple[str, str], ...], Group] = {}
        known = self._pattern.groupindex
        # The rule with more conditions counts: sorting is stable, so of equal ones the first.
        for rule in sorted(settings.rules, key=lambda rule: -len(rule.match or {})):
            wanted = {name: pattern for name, pattern in (rule.match or {}).items() if name in known}
            key = tuple(sorted((name, pattern.pattern) for name, pattern in wanted.items()))
            group = same.setdefault(key, Group(rule.limit, settings.rate_period))
            self._rules.append((wanted, group))
        self.strays = 0

    def find(self, path: str) -> Group:
        """The group of a path."""
        match = self._pattern.search(path)
        if match is None:
            self.strays += 1
            return self._default
        for wanted, group in self._rules:
            if all(pattern.search(match[name] or "") for name, pattern in wanted.items()):
                return group
        return self._default


class Quota:
    """What a path may still read. bytes_limit: a second, -1 for no limit."""

    __slots__ = ("_bytes", "_bytes_since", "_lines", "_lines_since", "bytes_limit", "group")

    def __init__(self, bytes_limit: int, group: Group | None) -> None:
        self.bytes_limit = bytes_limit
        self.group = group
        self._bytes = 0
        self._bytes_since: float | None = None
        self._lines = 0
        self._lines_since: float | None = None

    @property
    def limited(self) -> bool:
        """Whether there is a limit at all."""
        return self.bytes_limit > 0 or (self.group is not None and self.group.limit >= 0)

    @property
    def barred(self) -> bool:
        """Whether nothing is ever read."""
        return self.group is not None and self.group.limit == 0

    def bytes_left(self, now: float, wanted: int) -> int:
        """How many of `wanted` bytes may be read now; 0: none before `wait`."""
        if self.bytes_limit <= 0:
            return wanted
        if self._bytes_since is None or now - self._bytes_since >= 1.0:
            self._bytes_since = now
            self._bytes = 0
        return max(min(wanted, self.bytes_limit - self._bytes), 0)

    def lines_left(self, now: float, wanted: int) -> int:
        """How many of `wanted` lines may be emitted now."""
        group = self.group
        if group is None or group.limit < 0:
            return wanted
        if self._lines_since is None or now - self._lines_since >= group.period:
            self._lines_since = now
            self._lines = 0
        return max(min(wanted, group.share - self._lines), 0)

    def count(self, size: int, lines: int) -> None:
        """Note what was read."""
        self._bytes += size
        self._lines += lines

    def wait(self, now: float) -> float:
        """Seconds until something may be read again, after one of the two said 0."""
        ends = []
        if self.bytes_limit > 0 and self._bytes >= self.bytes_limit and self._bytes_since is not None:
            ends.append(self._bytes_since + 1.0)
        group = self.group
        if group is not None and group.limit >= 0 and self._lines >= group.share and self._lines_since is not None:
            ends.append(self._lines_since + group.period)
        return max(max(ends, default=now) - now, 0.01)
