"""The API, snippet by snippet, through the real edge; and the same table in nginx."""

from __future__ import annotations

import pytest
from api_table import TABLE

TARGET = "/?a=&b=1%202&a=3"
FIELDS = ("X-Some: value", "X-Two: 1", "X-Two: 2")


def locations() -> str:
    return "\n".join(
        f"location = /case{i} {{ content_by_lua_block {{\n{code}\n}} }}" for i, (_, code, _) in enumerate(TABLE)
    )


async def test_table(gateway):
    await gateway.start(locations())
    wrong = []
    for i, (name, _, output) in enumerate(TABLE):
        answer = await gateway.get(f"/case{i}?a=&b=1%202&a=3", *FIELDS)
        if answer.text != output:
            wrong.append(f"{name}: {answer.text!r} is not {output!r}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.peer
def test_table_in_nginx(nginx):
    get = nginx(locations())
    wrong = []
    for i, (name, _, output) in enumerate(TABLE):
        text = get(f"/case{i}?a=&b=1%202&a=3", *FIELDS).text
        if text != output:
            wrong.append(f"{name}: {text!r} is not {output!r}")
    assert not wrong, "\n".join(wrong)
