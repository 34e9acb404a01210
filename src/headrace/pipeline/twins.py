"""The journals of a buffer's twins in other workers, where the disk has to have what one of them has written.

A batch that is sent again may come to another worker than before. That one knows that its twin has written the batch
(seen.py), but not whether the disk has it. It brings the twin's files there itself: a sync of a file is one of all that
was written to it, by whomever.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.pipeline.files import Files


def sync_twins(folders: Iterable[str], files: Files) -> bool:
    """Bring every segment in some buffers' folders to the disk; False when one of them cannot be.

    It takes the time of the syncs, which is rare: an acknowledgement was lost, and the sender came to another worker.
    """
    try:
        for folder in folders:
            for slot in files.listdir(folder):
                place = os.path.join(folder, slot)
                if slot.startswith("journal.") and not files.is_file(place):
                    _sync(place, files)
    except OSError:
        return False
    return True


def _sync(slot: str, files: Files) -> None:
    for name in files.listdir(slot):
        if not name.endswith(".journal"):
            continue
        try:
            fd = files.open_read(os.path.join(slot, name))
        except FileNotFoundError:  # everything in it is delivered
            continue
        try:
            files.sync(fd)
        finally:
            files.close(fd)
    files.sync_dir(slot)
