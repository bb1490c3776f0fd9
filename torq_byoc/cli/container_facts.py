"""The header of a container file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torq_byoc.files import read_ordinary
from torq_byoc.npu_model.container import CONTAINER_FILE, FORMAT_VERSION, section_table


def container_facts(path: Path) -> dict[str, Any]:
    """Version, size and section table of a container that was read before.

    Raises:
        ProgramFormatError: the file changed and is no container any more.
    """
    data = read_ordinary(path, CONTAINER_FILE)
    sections = section_table(data, str(path))
    return {
        "path": str(path),
        "format_version": int.from_bytes(data[8:12], "little"),
        "reads_up_to": FORMAT_VERSION,
        "bytes": len(data),
        "sections": [{"name": s.name, "bytes": s.size, "sha256": s.sha256.hex()} for s in sections],
    }
