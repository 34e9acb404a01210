"""ngx.emit where it stands alone; with a pipeline: tests/wire/test_both_in_one.py."""

from __future__ import annotations

import pytest

from headrace.edge import log


@pytest.fixture
def taken(monkeypatch):
    records = []
    monkeypatch.setattr(log, "sinks", log.sinks)
    log.sinks.append(lambda tag, at, record: records.append((tag, at, record)))
    yield records
    log.sinks.clear()


async def test_records(gateway, taken):
    await gateway.content("""
        ngx.say(ngx.emit("a.b", {text = "x", n = 1.5, yes = true, none = ngx.null, deep = {a = {1}}}))
        ngx.say(ngx.emit(7, {}))
        ngx.say(ngx.emit("bytes", {b = "\\255"}))
        ngx.say(ngx.emit("list", {1, 2}))
        ngx.say(ngx.emit("function", {f = print}))
        ngx.say(pcall(ngx.emit, "tag"))
        ngx.say(pcall(ngx.emit))
    """)
    lines = (await gateway.get()).text.splitlines()
    assert lines[:3] == ["true", "true", "true"]
    assert lines[3] == "nila record has names: an array is none"
    assert lines[4].startswith("nilCannot serialise function")
    assert "table expected, got nil" in lines[5]
    assert "string expected, got nil" in lines[6]
    assert [(tag, record) for tag, _, record in taken] == [
        ("a.b", {"text": "x", "n": 1.5, "yes": True, "none": None, "deep": {"a": [1]}}),
        ("7", {}),
        ("bytes", {"b": "\udcff"}),
    ]


async def test_without_a_pipeline(gateway):
    await gateway.content('ngx.say(ngx.emit("a", {b = 1}))')
    assert (await gateway.get()).text == "nilno pipeline in this process\n"
