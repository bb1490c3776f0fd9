"""Writing arrays as npz: whole or not at all, and the same bytes for the same arrays."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from torq_byoc.npu_model.container import write_file_atomically


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays under any names, which ``numpy.savez`` cannot for ones such as "file".

    Raises:
        EnvironmentProblem: the file cannot be written; nothing is left behind.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, np.asanyarray(array), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), content.getvalue())
    write_file_atomically(path, buffer.getvalue())
