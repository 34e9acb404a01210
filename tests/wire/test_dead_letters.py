"""A chunk that was given up, seen, asked for again and delivered, with a headrace that runs all the time."""

import json

import wire_rig as rig

from headrace.testing.plugin import free_ports
from headrace.testing.process import wait_until

CONF = """
<system>
  root_dir FOLDER/root
</system>
<source>
  @type http
  bind 127.0.0.1
  port PORT
</source>
<match t>
  @type http
  @id out
  endpoint http://127.0.0.1:TARGET/t
  <buffer tag>
    @type file
    flush_mode immediate
    retry_max_times 0
  </buffer>
</match>
"""


def letters(prefix, headrace):
    done = headrace.run("headrace", "dlq", "ls", prefix / "fluent.conf", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def figures(headrace, process):
    return rig.stats(headrace, process)["pipeline"]["plugins"]["out"]


def test_a_letter_comes_back_to_its_output(prefix, headrace):
    port, target = free_ports(2)
    conf = prefix / "fluent.conf"
    text = CONF.replace("PORT", str(port)).replace("TARGET", str(target)).replace("FOLDER", str(prefix))
    conf.write_text(text + rig.NO_LOG_EVENTS)
    process = headrace("headrace", "run", str(conf))
    rig.wait_listens(port, process)
    assert rig.post(port, "/t", b'{"n": 1}').status == 200
    wait_until(lambda: len(letters(prefix, headrace)) == 1)
    (letter,) = letters(prefix, headrace)
    assert letter["plugin"] == "out"
    assert letter["tag"] == "t"
    assert letter["attempts"] == 1
    assert letter["error"]
    with rig.origin(port=target) as origin:
        done = headrace.run("headrace", "dlq", "replay", conf, "--id", letter["id"])
        assert done.returncode == 0, done.stderr
        wait_until(lambda: rig.records(origin.requests) == [{"n": 1}])
    wait_until(lambda: figures(headrace, process)["delivered"] == 1)
    assert figures(headrace, process)["unaccounted"] == 0
    assert letters(prefix, headrace) == []
    rig.kill(process)
