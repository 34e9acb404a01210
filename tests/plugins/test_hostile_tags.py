"""Tags and fields of events never become paths outside of the folder that the configuration names."""

from __future__ import annotations

import os

import pytest

from headrace.pipeline.context import Settings
from headrace.testing.pipelines import Kit, Script, TransientError

HOSTILE = [
    "..", ".", "../escaped", "../../escaped", "a/../../../escaped", "a/../../inside/../../escaped", "/escaped",
    "//escaped", "x\0../escaped", "..\\escaped", "~/escaped", "$HOME/escaped", "${chunk_id}/../../escaped", "a" * 300,
    "b/" * 200, "\udcff\udcfe/../../../escaped", "-rf", "new\nline", "%Y/../../escaped", "*", "", " ", "./././x",
    "a/..", "a/../..", "a/b/../../..", "....//escaped", "%2e%2e/escaped", "nul\0", "a.b.c",
]  # fmt: skip

OUTPUTS = {
    "file": """
@type file
path ROOT/inside/${tag}
append true
<buffer tag>
  flush_interval 1s
  retry_max_times 0
</buffer>
""",
    "file, field and time": """
@type file
path ROOT/inside/x.%Y%m%d.${tag[0]}.${name}
<buffer time,tag,name>
  timekey 1d
  timekey_wait 0s
  flush_mode immediate
  retry_max_times 0
</buffer>
""",
    "file, folder and file": """
@type file
path ROOT/inside/${name}/${tag}
symlink_path ROOT/inside/link
<buffer tag,name>
  flush_interval 1s
  retry_max_times 0
</buffer>
""",
    "secondary_file": """
@type script
<buffer tag>
  flush_interval 1s
  retry_max_times 0
</buffer>
<secondary>
  @type secondary_file
  directory ROOT/inside
  basename dump.${tag}
</secondary>
""",
    "file buffer": """
@type script
@id ../../escaped
<buffer tag,name>
  @type file
  path ROOT/inside/buffer
  flush_interval 1s
  retry_max_times 0
</buffer>
""",
}


@pytest.mark.parametrize("kind", list(OUTPUTS))
async def test_nothing_is_written_elsewhere(kind, tmp_path):
    outside = tmp_path / "deep" / "er"
    root = outside / "root"
    (root / "inside").mkdir(parents=True)
    text = OUTPUTS[kind].replace("ROOT", str(root))
    kit = await Kit(f"<match **>\n{text}\n</match>\n", settings=Settings(root_dir=str(root / "inside" / "own"))).start()
    for output in kit.pipeline.plugins:
        if isinstance(output, Script):
            output.then = TransientError("down")
    for number, value in enumerate(HOSTILE):
        for tag, name in ((value, "n"), ("t", value), (value, value)):
            await kit.emit(tag, {"name": name, "number": number})
    await kit.clock.elapse(5)
    await kit.work()
    assert kit.balanced()
    await kit.stop()
    found = [os.path.join(folder, name) for folder, _, names in os.walk(tmp_path) for name in names]
    assert found
    assert [path for path in found if not path.startswith(f"{root}/inside/")] == []
    assert not [path for path in os.listdir("/") if "escaped" in path]
    assert not os.path.exists(os.path.expanduser("~/escaped"))
    beside = [one for folder in (tmp_path, tmp_path / "deep", outside, root) for one in os.listdir(folder)]
    assert sorted(beside) == ["deep", "er", "inside", "root"]
