"""Arrays as npz: the same bytes for the same arrays."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

import numpy as np


def npz_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Arrays under any names, which ``numpy.savez`` cannot write for ones such as "file"."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, np.asanyarray(array), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), content.getvalue())
    return buffer.getvalue()
