"""Output and filter stdout, output null, and the <inject> section, seen through a pipe."""

import json
import os
import re

import pytest

from headrace.pipeline.context import Settings
from headrace.plugins.out_null import NullOutput
from headrace.testing.pipelines import Direct, Kit

TIME = 1_700_000_000_123_456_789


@pytest.fixture
def printed():
    """(descriptor to print to, function that reads what was printed)."""
    reader, writer = os.pipe()

    def read():
        os.set_blocking(reader, False)
        try:
            return os.read(reader, 1 << 20)
        except BlockingIOError:
            return b""

    yield writer, read
    os.close(reader)
    os.close(writer)


async def start(text, fd, **settings):
    return await Kit(text, settings=Settings(stdout_fd=fd, hostname="here", **settings)).start()


async def test_a_line_for_people(printed):
    fd, read = printed
    kit = await start("<match **>\n@type stdout\n</match>", fd)
    await kit.emit("app.web", {"a": 1}, {"b": "é"}, time=TIME)
    first, second, end = read().decode().split("\n")
    assert re.fullmatch(r'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.123456789 [+-]\d{4} app\.web: \{"a":1\}', first)
    assert second.endswith('app.web: {"b":"é"}')
    assert end == ""
    await kit.stop()


async def test_formats_get_one_newline(printed):
    fd, read = printed
    text = "<match **>\n@type stdout\n<format>\n@type json\nadd_newline false\n</format>\n</match>"
    kit = await start(text, fd)
    await kit.emit("t", {"a": 1}, {"a": 2})
    assert read() == b'{"a":1}\n{"a":2}\n'
    await kit.stop()


async def test_output_type_takes_its_own_parameters(printed):
    fd, read = printed
    text = "<match **>\n@type stdout\n<format>\noutput_type csv\nfields a,b\ndelimiter TAB\n</format>\n</match>"
    kit = await start(text, fd)
    await kit.emit("t", {"a": 1, "b": 2})
    assert read().endswith(b' t: "1"\t"2"\n')
    await kit.stop()


def test_a_parameter_that_neither_formatter_has_is_unknown():
    kit = Kit("<match **>\n@type stdout\n<format>\noutput_type json\nfeilds a\n</format>\n</match>")
    assert 'unknown parameter "feilds"' in kit.errors[0]


@pytest.mark.parametrize("buffer", ["", "<buffer>\nflush_interval 1s\n</buffer>\n"])
async def test_use_logger_false_prints_to_standard_output_wherever_the_log_is(printed, tmp_path, buffer):
    fd, read = printed
    with (tmp_path / "log").open("ab", buffering=0) as log:
        for line, console in (("", False), ("use_logger true\n", False), ("use_logger false\n", True)):
            kit = await start(f"<match **>\n@type stdout\n{line}{buffer}</match>", log.fileno(), console_fd=fd)
            await kit.emit("t", {"a": 1})
            await kit.stop()
            assert read().endswith(b't: {"a":1}\n') is console, line
    assert (tmp_path / "log").read_bytes().count(b"\n") == 2


async def test_buffered(printed):
    fd, read = printed
    kit = await start("<match **>\n@type stdout\n<buffer>\nflush_interval 1s\n</buffer>\n</match>", fd)
    await kit.emit("t", {"a": 1})
    assert read() == b""
    await kit.clock.elapse(1.1)
    assert read().endswith(b'{"a":1}\n')
    await kit.emit("t", {"a": 2})
    await kit.stop()
    assert read().endswith(b'{"a":2}\n')


async def test_inject(printed):
    fd, read = printed
    inject = "<inject>\nhostname_key h\nworker_id_key w\ntag_key t\ntime_key at\n{}\n</inject>"
    for lines, at in [
        ("", 1700000000.123456),
        ("time_type unixtime", 1700000000),
        ("time_type unixtime_millis", 1700000000123),
        ("time_type unixtime_micros", 1700000000123456),
        ("time_type unixtime_nanos", TIME),
        ("time_type string\nutc true", "2023-11-14T22:13:20Z"),
        ("time_type string\ntimezone +09:00\ntime_format %H:%M:%S.%L", "07:13:20.123"),
    ]:
        text = f"<match **>\n@type stdout\n{inject.format(lines)}\n<format>\n@type json\n</format>\n</match>"
        kit = await start(text, fd, worker_id=3)
        await kit.emit("x.y", {"a": 1}, time=TIME)
        assert json.loads(read()) == {"a": 1, "h": "here", "w": 3, "t": "x.y", "at": at}
        await kit.stop()


def test_a_hostname_key_cannot_be_a_chunk_key():
    kit = Kit("<match **>\n@type stdout\n<inject>\nhostname_key h\n</inject>\n<buffer h>\n</buffer>\n</match>")
    assert "cannot be a chunk key" in kit.errors[0]


async def test_a_record_without_a_form_goes_to_error_alone(printed):
    fd, read = printed
    text = """
    <match **>
      @type stdout
      <format>
        @type json
        invalid_values reject
      </format>
    </match>
    <label @ERROR>
      <match **>
        @type direct
      </match>
    </label>
    """
    kit = await start(text, fd)
    await kit.emit("t", {"a": 1}, {"a": float("nan")}, {"a": 3})
    assert read() == b'{"a":1}\n{"a":3}\n'
    assert len(kit.of(Direct).events) == 1
    await kit.stop()


async def test_the_filter_prints_and_passes_the_same_records(printed):
    fd, read = printed
    text = """
    <filter **>
      @type stdout
      <inject>
        tag_key tag
      </inject>
      <format>
        @type json
      </format>
    </filter>
    <match **>
      @type direct
    </match>
    """
    kit = await start(text, fd)
    await kit.emit("t", {"a": 1})
    assert read() == b'{"a":1,"tag":"t"}\n'
    assert [record for _, _, record in kit.of(Direct).events] == [{"a": 1}]
    await kit.stop()


async def test_null_drops():
    kit = await Kit("<match **>\n@type null\n</match>").start()
    await kit.emit("t", {"a": 1}, {"a": 2})
    assert kit.of(NullOutput).stats() == {"dropped": 2}
    await kit.stop()


async def test_null_that_never_flushes_keeps_its_buffer():
    text = (
        "<match **>\n@type null\nnever_flush true\n<buffer>\nflush_interval 1s\nretry_forever true\n</buffer>\n</match>"
    )
    kit = await Kit(text).start()
    await kit.emit("t", {"a": 1})
    await kit.clock.elapse(10)
    assert kit.stats()["delivered"] == 0
    assert kit.stats()["retries"] > 0
    await kit.stop()
