"""..._cache_purge: a request that takes an answer out of the cache, or, with a key that ends in `*`, all that match.

An answer that varies has a file for each of its variants, whose names the key alone does not tell: then, and for an
asterisk, the files are looked through, in slices.
https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_cache_purge
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from headrace.edge.upstream.cache.entry import read_entry

if TYPE_CHECKING:
    from headrace.edge.upstream.cache.zone import Zone

SLICE: Final = 100


async def purge(zone: Zone, key: bytes) -> int:
    """Remove what is kept under a key; returns the status to answer: 204, or 404 when there was nothing."""
    if not key.endswith(b"*"):
        digest = zone.digest(key)
        entry = read_entry(zone.file_of(digest), key)
        if entry is None:
            return 404
        entry.close()
        zone.remove(digest)
        if not entry.meta.get("vary"):
            return 204
        await _purge_all(zone, key, exact=True)
        return 204
    return 204 if await _purge_all(zone, key[:-1], exact=False) else 404


async def _purge_all(zone: Zone, start: bytes, *, exact: bool) -> int:
    found = seen = 0
    for item in zone.files():
        seen += 1
        if not seen % SLICE:
            await asyncio.sleep(0)
        entry = read_entry(item.path, None)
        if entry is None:
            continue
        entry.close()
        key = bytes.fromhex(entry.meta["key"])
        if key == start if exact else key.startswith(start):
            zone.remove(item.name)
            found += 1
    return found
