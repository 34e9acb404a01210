"""Shared dictionaries: the table, memory that fits together whatever is done, workers, reloads, a holder that dies."""

from __future__ import annotations

import gc
import os
import signal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shdict_table import TABLE

from headrace.core import shared
from headrace.errors import ConfError
from headrace.lua.runtime import Runtime, Settings

HTTP = "\n".join(f"lua_shared_dict d{i} 100k;" for i in range(len(TABLE)))


def locations() -> str:
    return "\n".join(
        f"location = /case{i} {{ content_by_lua_block {{\nlocal d = ngx.shared.d{i}\n{code}\n}} }}"
        for i, (_, code, _) in enumerate(TABLE)
    )


async def test_table(gateway):
    await gateway.start(locations(), http=HTTP)
    wrong = []
    for i, (name, _, output) in enumerate(TABLE):
        answer = await gateway.get(f"/case{i}")
        if answer.text != output:
            wrong.append(f"{name}: {answer.text!r} is not {output!r}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.peer
def test_table_in_nginx(nginx):
    get = nginx(locations(), http=HTTP)
    wrong = []
    for i, (name, _, output) in enumerate(TABLE):
        text = get(f"/case{i}").text
        if text != output:
            wrong.append(f"{name}: {text!r} is not {output!r}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("lua_shared_dict d 1k;", 'invalid lua shared dict size "1k"'),
        ("lua_shared_dict d much;", 'invalid lua shared dict size "much"'),
        ('lua_shared_dict "" 1m;', 'invalid lua shared dict name ""'),
        ("lua_shared_dict d 1m;\nlua_shared_dict d 2m;", 'lua_shared_dict "d" is already defined as "d"'),
    ],
)
async def test_what_is_refused(gateway, line, message):
    with pytest.raises(ConfError, match=message):
        await gateway.start(http=line)


class Dict:
    """A dictionary in a VM of its own, without a gateway."""

    def __init__(self, name: str = "d", size: int = 16384) -> None:
        self.runtime = Runtime(Settings(shared_dicts={name: size}))
        self.name = name.encode()
        self._call = self.runtime.vm.lua.eval(
            b"function(name, method, ...) local d = ngx.shared[name] return d[method](d, ...) end"
        )

    def __call__(self, method: str, *args):
        return self._call(self.name, method.encode(), *args)

    def verify(self) -> int:
        return self.runtime.vm.entry("verify_dict")(self.name)


KEYS = st.sampled_from([b"a", b"b", b"cc", b"d" * 40, b"e" * 300, b"f"])
VALUES = st.one_of(st.binary(max_size=2500), st.floats(allow_nan=False), st.booleans())
STEPS = st.one_of(
    st.tuples(st.just("set"), KEYS, VALUES),
    st.tuples(st.sampled_from(["lpush", "rpush"]), KEYS, st.binary(max_size=600)),
    st.tuples(st.sampled_from(["lpop", "rpop", "delete", "get"]), KEYS),
    st.tuples(st.just("flush_all")),
    st.tuples(st.just("flush_expired")),
)


@settings(max_examples=120, deadline=None)
@given(st.lists(STEPS, max_size=120))
def test_whatever_is_done_the_memory_fits_together(steps):
    found = Dict(f"fuzz{os.urandom(4).hex()}", 8192)
    model: dict[bytes, object] = {}
    for method, *args in steps:
        result = found(method, *args)
        found.verify()
        evicted = isinstance(result, tuple) and result[-1] is True
        if method == "set" and (result[0] if isinstance(result, tuple) else result):
            model = {} if evicted else model
            model[args[0]] = args[1]
            assert found("get", args[0]) == args[1]
        elif method == "get" and args[0] in model and not isinstance(model[args[0]], list):
            assert result is None or result == model[args[0]]
        elif method != "get":
            model = {}


def test_what_was_stored_is_read_back_by_another_vm_of_the_same_name_and_size():
    first = Dict("twice", 65536)
    first("set", b"a", b"kept")
    second = Dict("twice", 65536)
    assert second("get", b"a") == b"kept"
    assert Dict("twice", 131072)("get", b"a") is None


def test_a_zone_goes_with_its_last_holder():
    kept = Dict("gone", 65536)
    kept("set", b"a", b"x")
    del kept
    gc.collect()
    assert Dict("gone", 65536)("get", b"a") is None


def test_workers_count_together():
    found = Dict("workers", 65536)
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            for _ in range(2000):
                found("incr", b"n", 1.0, 0.0)
            os._exit(0)
        children.append(child)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    assert found("get", b"n") == 6000
    assert found.verify() == 1


def test_a_holder_that_dies_leaves_an_empty_zone_that_works():
    found = Dict("dies", 65536)
    found("set", b"a", b"x")
    child = os.fork()
    if child == 0:
        lock = found.runtime.vm.entry("lock_dict")
        lock(b"dies")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert found("get", b"a") is None
    assert found("set", b"a", b"y")
    assert found("get", b"a") == b"y"
    assert found.verify() == 1


def test_a_zone_is_found_again_by_name_and_size():
    one = shared.zone("test", 4096)
    assert shared.zone("test", 4096) is one
    assert shared.zone("test", 8192) is not one
