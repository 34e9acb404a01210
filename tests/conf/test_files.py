"""The files of a configuration: what was read, in order, and what cannot be read."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from headrace.conf import fluent, nginx
from headrace.conf.files import Files, Lines
from headrace.errors import ConfError


def test_a_dump_has_every_file_once_in_order(tmp_path) -> None:
    (tmp_path / "nginx.conf").write_text("include a.conf;\ninclude b.conf;\ninclude a.conf;\n")
    (tmp_path / "a.conf").write_text("a 1;\n")
    (tmp_path / "b.conf").write_text("b 2;\n")
    files = Files()
    tree = nginx.load("nginx.conf", prefix=str(tmp_path), files=files)
    assert [directive.name for directive in tree] == ["a", "b", "a"]
    assert [path for path, _ in files.read] == [str(tmp_path / name) for name in ("nginx.conf", "a.conf", "b.conf")]
    assert files.dump().startswith(f"# configuration file {tmp_path}/nginx.conf:\ninclude a.conf;")


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(ConfError) as caught:
        nginx.load("/nonexistent/nginx.conf")
    assert str(caught.value) == 'open() "/nonexistent/nginx.conf" failed (2: No such file or directory)'


def test_a_folder_is_not_a_file(tmp_path) -> None:
    with pytest.raises(ConfError, match=r"failed \(21: Is a directory\)"):
        fluent.load(str(tmp_path))


def test_bytes_that_are_not_utf8_survive(tmp_path) -> None:
    (tmp_path / "f.conf").write_bytes(b"a \xff\xfe\n")
    assert fluent.load(str(tmp_path / "f.conf"))[0].args[0].encode("utf-8", "surrogateescape") == b"\xff\xfe"


def test_includes_are_sorted_and_start_at_the_main_folder(tmp_path) -> None:
    (tmp_path / "conf.d" / "deep").mkdir(parents=True)
    for name in ("10-b", "9-a", "A", "é"):
        (tmp_path / "conf.d" / f"{name}.conf").write_text(f"{name} 1;")
    (tmp_path / "conf.d" / "A.conf").write_text("include conf.d/deep/x;")
    (tmp_path / "conf.d" / "deep" / "x").write_text("deep 1;")
    (tmp_path / "conf.d" / ".hidden.conf").write_text("hidden 1;")
    (tmp_path / "nginx.conf").write_text("include conf.d/*.conf;")
    assert [directive.name for directive in nginx.load("nginx.conf", prefix=str(tmp_path))] == [
        "10-b",
        "9-a",
        "deep",
        "é",
    ]


def test_lines() -> None:
    lines = Lines("a\nbc\n\nd", "f")
    assert [lines.line(offset) for offset in range(8)] == [1, 1, 2, 2, 2, 3, 4, 4]


@pytest.mark.peer
@pytest.mark.skipif(not shutil.which("nginx"), reason="nginx is not installed")
@pytest.mark.parametrize(
    "text",
    [
        "events {}\n}",
        "events {};",
        "events {} {",
        "events {\n",
        'events {}\nhttp { server_name "x"y; }',
        'events {}\nhttp { server_name "x; }\n\n',
        "events {}\nhttp { include nofile; }",
        "events {}\nhttp { include a b; }",
        "events {}\nhttp { server { listen 80 } }",
        "events {}\nhttp { server { listen 80;\n",
    ],
)
def test_nginx_says_the_same(tmp_path, text: str) -> None:
    (tmp_path / "nginx.conf").write_text(text)
    command = ["nginx", "-t", "-p", str(tmp_path), "-c", "nginx.conf"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    with pytest.raises(ConfError) as caught:
        nginx.load("nginx.conf", prefix=str(tmp_path))
    caught.value.hint = ""
    assert f": {caught.value}\n" in said
