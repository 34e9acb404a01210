"""`headrace-fluentd --setup`: a sample configuration to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Final

SAMPLE: Final = """\
# Events come in over HTTP and are written to standard output. Try it:
#   headrace-fluentd -c fluent.conf
#   curl -d 'json={"hello":"world"}' http://127.0.0.1:9880/debug.test

<source>
  @type http
  bind 127.0.0.1
  port 9880
</source>

<match debug.**>
  @type stdout
</match>

# What no other section takes goes to files, one for each tag and day.
<match **>
  @type file
  path "#{ENV.fetch('HEADRACE_DATA', '/tmp/headrace')}/${tag}"
  <buffer tag, time>
    timekey 1d
    timekey_wait 10m
  </buffer>
</match>
"""


def install(folder: str) -> int:
    """Write the sample to `folder`/fluent.conf unless there is one; the exit status."""
    target = Path(folder) / "fluent.conf"
    try:
        (target.parent / "plugin").mkdir(parents=True, exist_ok=True)
        with target.open("x", encoding="utf-8") as file:
            file.write(SAMPLE)
    except FileExistsError:
        print(f"{target} already exists.")  # noqa: T201 - the command's answer
    except OSError as error:
        print(f"cannot write {target}: {error.strerror}")  # noqa: T201 - the command's answer
        return 1
    else:
        print(f"Installed {target}.")  # noqa: T201 - the command's answer
    return 0
