"""What a sender calls a chunk -> the id under which buffers remember the batch that it becomes (`Batch.id`).

The tag belongs to the id: a sender that names a chunk by its content (Fluent Bit does) gives equal content of
two tags one name.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

NAME_LENGTH: Final = 16
"""Characters of the shortest text that is taken for a name: 96 random bits in base64. Counters begin anew."""


def batch_id(tag: bytes, name: bytes) -> bytes | None:
    """The id, 16 bytes; None for a text that is too short to be a name that nobody else uses."""
    name = name.strip()
    if len(name) < NAME_LENGTH:
        return None
    made = blake2b(tag, digest_size=16)
    made.update(b"\0" + name)
    return made.digest()
