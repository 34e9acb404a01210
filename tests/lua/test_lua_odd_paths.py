"""Paths that only a script can make: a NUL in them, in each of the handlers of files."""

from __future__ import annotations

import pytest

SERVER = """
location /open/ { rewrite_by_lua_block { ngx.req.set_uri("/files/a\\0b", true, true) } }
location /folder/ { rewrite_by_lua_block { ngx.req.set_uri("/files\\0\\r\\nset-cookie: 1", true, true) } }
location /none/ { rewrite_by_lua_block { ngx.req.set_uri("/files/none\\0b", true, true) } }
location /slash/ { rewrite_by_lua_block { ngx.req.set_uri("/files\\0/", true, true) } }
location /try/ {
    set $name ""; rewrite_by_lua_block { ngx.var.name = "/files/a\\0b" } try_files $name =404;
}
"""


@pytest.mark.parametrize(
    ("path", "status"), [("/open/", 200), ("/folder/", 301), ("/none/", 404), ("/slash/", 403), ("/try/", 404)]
)
async def test_a_nul_ends_a_path(gateway, tmp_path, path, status):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a").write_text("a")
    await gateway.start(f"root {tmp_path};" + SERVER)
    answer = await gateway.get(path)
    assert answer.status == status
    assert "Traceback" not in gateway.log()
    if status == 301:
        assert answer.headers["location"].endswith("/files%00%0D%0Aset-cookie:%201/")
