"""The parameters of in_tail (docs.fluentd.org, Input Plugins, tail), and what is wrong with some of them together."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from headrace.conf.params import array, boolean, enum, integer, raw_section, section, size, string, time
from headrace.pipeline.plugin import Source
from headrace.pipeline.timezone import zone
from headrace.plugins.in_tail.encodings import codec_of
from headrace.plugins.in_tail.groups import GroupSection
from headrace.plugins.in_tail.patterns import expand_braces, has_braces, is_extended, is_glob, path_pattern

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.conf.params import Problems

LEAST_BYTES: Final = 8192
_RESERVED: Final = ("/", "*", "%")


class TailParameters(Source):
    """Base of the source: what can be configured."""

    old_style: ClassVar[Mapping[str, str]] = {"parse": ""}

    path = string(doc="Files to follow, several with path_delimiter between; `*` and strftime conversions")
    path_delimiter = string(default=",", doc="What stands between two paths")
    glob_policy = enum(
        ("backward_compatible", "extended", "always"),
        default="backward_compatible",
        doc="What makes a path a pattern: `*`; extended: `?` and `[]` too; always: `{}` too",
    )
    tag = string(doc="Tag of the events; `*` is the path with dots for slashes")
    exclude_path = array(default=[], doc="Paths and patterns that are left out")
    rotate_wait = time(default=5.0, doc="Seconds for which a rotated file is read on, and to its end in any case")
    pos_file = string(default=None, doc="The file of positions, in Fluentd's format")
    pos_file_compaction_interval = time(default=None, doc="Seconds between two compactions of pos_file")
    read_from_head = boolean(default=False, doc="Read files that are there at start, and unknown, from the beginning")
    refresh_interval = time(default=60.0, doc="Seconds between two searches; inotify finds new files sooner")
    read_lines_limit = integer(default=1000, doc="Lines of one emit at most")
    read_bytes_limit_per_second = size(
        default=-1, doc="Bytes that are read of one path in a second, 8192 at least; -1: no limit"
    )
    multiline_flush_interval = time(
        default=None, doc="Seconds after its last line when a text of several lines counts as whole"
    )
    emit_unmatched_lines = boolean(default=False, doc="A line that does not match is emitted as unmatched_line")
    enable_watch_timer = boolean(default=True, doc="Look at files by a timer, beside inotify")
    enable_stat_watcher = boolean(default=True, doc="Use inotify")
    encoding = string(default=None, doc="Encoding of the lines (a name of Ruby's)")
    from_encoding = string(default=None, doc="Encoding of the files, from which lines are converted to `encoding`")
    path_key = string(default=None, doc="Field for the path of the file")
    open_on_every_update = boolean(default=False, doc="Close a file when it was read to its end")
    limit_recently_modified = time(
        default=None, doc="Seconds: of the files of a pattern only those that were modified since"
    )
    skip_refresh_on_startup = boolean(default=False, doc="Look for files only after refresh_interval")
    ignore_repeated_permission_error = boolean(default=False, doc="Tell once of a file that cannot be read")
    path_timezone = string(default=None, doc="Time zone of strftime conversions in paths; default: local")
    follow_inodes = boolean(default=False, doc="Positions belong to inodes, not to paths")
    max_line_size = size(default=None, doc="Longer lines are left out (bytes, with the line end)")
    parse_section = raw_section(name="parse", required=True, doc="The parser of lines")
    group = section(GroupSection, name="group", doc="Limits of lines for groups of files")

    paths: list[str]

    def validate(self, problems: Problems) -> None:
        """Check what one parameter cannot know alone. Most messages are Fluentd's."""
        super().validate(problems)
        self._validate_paths(problems)
        self._validate_encodings(problems)
        if not self.enable_watch_timer and not self.enable_stat_watcher:
            problems.error("either of enable_watch_timer or enable_stat_watcher must be true", self.place)
        if self.pos_file is None:
            if self.follow_inodes:
                problems.error(
                    "Can't follow inodes without pos_file configuration parameter", self.place_of("follow_inodes")
                )
            if self.pos_file_compaction_interval is not None:
                problems.warn(
                    "pos_file_compaction_interval has no effect without pos_file",
                    self.place_of("pos_file_compaction_interval"),
                )
            problems.warn(
                "'pos_file PATH' parameter is not set to a 'tail' source: after a restart, and across a reload, lines "
                "are lost or read again",
                self.place,
            )
        limit = self.read_bytes_limit_per_second
        if limit > 0:
            place = self.place_of("read_bytes_limit_per_second")
            if not self.enable_watch_timer:
                problems.error("Need to enable watch timer when using log throttling feature", place)
            if limit < LEAST_BYTES:
                problems.warn(
                    f"Should specify greater equal than {LEAST_BYTES}. Use {LEAST_BYTES} for "
                    "read_bytes_limit_per_second",
                    place,
                )
                self.read_bytes_limit_per_second = LEAST_BYTES
        for name in ("read_lines_limit", "refresh_interval", "pos_file_compaction_interval", "max_line_size"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                problems.error(f'parameter "{name}" must be more than 0', self.place_of(name))
        if not self.tag:
            problems.error('parameter "tag" must not be empty', self.place_of("tag"))

    def _validate_paths(self, problems: Problems) -> None:
        policy, delimiter, place = self.glob_policy, self.path_delimiter, self.place_of("path")
        if policy == "always" and delimiter == ",":
            problems.error(
                'cannot use glob_policy as always with the default path_delimiter: `,"', self.place_of("glob_policy")
            )
        if policy == "extended" and has_braces(self.path) and is_extended(self.path):
            problems.error(
                f'cannot include curly braces with glob patterns in `{self.path}". Use glob_policy always instead.',
                place,
            )
        if delimiter in _RESERVED or not delimiter:
            text = ", ".join(_RESERVED)
            problems.error(f"{text} are reserved words: {delimiter}", self.place_of("path_delimiter"))
            return
        self.paths = list(dict.fromkeys(path for part in self.path.split(delimiter) if (path := part.strip())))
        if not self.paths:
            problems.error("tail: 'path' parameter is required on tail input", place)
        for name, paths in (("path", self.paths), ("exclude_path", self.exclude_path)):
            for path in paths:
                try:
                    for one in expand_braces(path) if is_glob(path, policy) else ():
                        path_pattern(one)
                except ValueError as error:
                    problems.error(f'parameter "{name}": {error}', self.place_of(name))
        try:
            zone(self.path_timezone)
        except ValueError as error:
            problems.error(f'parameter "path_timezone": {error}', self.place_of("path_timezone"))

    def _validate_encodings(self, problems: Problems) -> None:
        if self.from_encoding is not None and self.encoding is None:
            problems.error(
                "tail: 'from_encoding' parameter must be specified with 'encoding' parameter.",
                self.place_of("from_encoding"),
            )
        for name in ("encoding", "from_encoding"):
            text = getattr(self, name)
            if text is None:
                continue
            try:
                codec = codec_of(text)
            except ValueError as error:
                problems.error(f'parameter "{name}": {error}', self.place_of(name))
                continue
            if name == "encoding" and codec.startswith(("utf-16", "utf-32")):
                problems.error(
                    f'parameter "encoding": records cannot be {text}',
                    self.place_of(name),
                    hint=f"from_encoding {text} and encoding UTF-8",
                )
        if self.encoding is not None and self.encoding == self.from_encoding:
            problems.warn("'encoding' and 'from_encoding' are same encoding. No effect", self.place_of("from_encoding"))
