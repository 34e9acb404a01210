"""slice: the same requests here and in nginx, and what the origin is asked for."""

from __future__ import annotations

import pytest

SERVER = """
    location = /file {{ alias {folder}/file; }}
    location = /small {{ alias {folder}/small; }}
    location ~ ^/sliced/(.*)$ {{ slice 10; proxy_set_header Range $slice_range; proxy_pass http://unix:{sock}:/$1; }}
    location = /asked {{ echo -n $slice_range; }}
"""
DATA = bytes(range(48, 48 + 35))
TABLE = [
    ("whole", "/sliced/file", (), 200, DATA),
    ("range within a piece", "/sliced/file", ("Range: bytes=3-5",), 206, DATA[3:6]),
    ("range over pieces", "/sliced/file", ("Range: bytes=8-22",), 206, DATA[8:23]),
    ("range from a piece on", "/sliced/file", ("Range: bytes=20-",), 206, DATA[20:]),
    ("smaller than a piece", "/sliced/small", (), 200, b"small"),
    ("missing", "/sliced/none", (), 404, None),
]


def make(folder) -> None:
    (folder / "file").write_bytes(DATA)
    (folder / "small").write_bytes(b"small")
    folder.chmod(0o755)


def check(answers) -> None:
    found = [
        (row[0], answer.status, answer.body if row[4] else None) for row, answer in zip(TABLE, answers, strict=True)
    ]
    assert found == [(name, status, body) for name, _, _, status, body in TABLE]
    assert answers[2].headers["content-range"] == "bytes 8-22/35"
    assert answers[0].headers["content-length"] == "35"


async def test_slice(gateway, tmp_path):
    make(tmp_path)
    await gateway.start(SERVER.format(folder=tmp_path, sock=gateway.path))
    check([await gateway.get(row[1], *row[2]) for row in TABLE])


@pytest.mark.peer
def test_slice_in_nginx(nginx, tmp_path):
    make(tmp_path)
    get = nginx(SERVER.format(folder=tmp_path, sock=tmp_path / "nginx" / "http.sock"))
    check([get(row[1], *row[2]) for row in TABLE])
