"""Named machines, and hardware descriptions as YAML files.

A preset is one line of ``_PRESETS``: its name and what differs from the SL2610.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from torq_byoc.errors import HardwareConfigError, TorqError, require_known
from torq_byoc.files import Expected, read_text
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.config_data import check_machine, config_from_dict, config_to_dict, content_hash
from torq_byoc.npu_model.strict_yaml import parse_yaml

__all__ = ["config_from_yaml", "content_hash", "load_config", "preset", "preset_names", "to_yaml"]

MAX_YAML_BYTES = 64 * 1024
_YAML_FILE = Expected(
    HardwareConfigError,
    "the hardware description",
    "give a YAML mapping as `torq_byoc.npu_model.presets.to_yaml` writes it",
    MAX_YAML_BYTES,
)

_KIB = 1024
_PRESETS: dict[str, dict[str, Any]] = {
    "sl2610": {},
    "sl2610-1slice": {"slices": 1},
    "lram64": {"lram_bytes": 64 * _KIB},
    "lram128": {"lram_bytes": 128 * _KIB},
    "lram192": {"lram_bytes": 192 * _KIB},
    "lram256": {"lram_bytes": 256 * _KIB},
    "lram384": {"lram_bytes": 384 * _KIB},
    "lram1024": {"lram_bytes": 1024 * _KIB},
    "4slice": {"slices": 4},
}


def preset_names() -> tuple[str, ...]:
    """Names that ``load_config`` knows without a file."""
    return tuple(_PRESETS)


def preset(name: str) -> NpuConfig:
    """A machine by name.

    Raises:
        HardwareConfigError: no preset has that name; names the nearest one.
    """
    require_known(
        HardwareConfigError,
        "hardware preset",
        [name],
        _PRESETS,
        where="hardware",
        why=f"{len(_PRESETS)} presets are known, and no .yaml file is named",
        otherwise=", or give the path of a .yaml file",
    )
    config = NpuConfig(name=name, **_PRESETS[name])
    check_machine(config)
    return config


def load_config(name_or_path: str | os.PathLike[str]) -> NpuConfig:
    """A machine by preset name or from a YAML file (anything with a folder or a ``.yaml``/``.yml`` ending).

    Raises:
        HardwareConfigError: an unknown preset, an unreadable file, or an impossible machine.
    """
    text = os.fspath(name_or_path)
    if text in _PRESETS:
        return preset(text)
    path = Path(text)
    if path.suffix.lower() in (".yaml", ".yml") or path.parent != Path() or path.is_absolute():
        return config_from_yaml(read_text(path, _YAML_FILE), text)
    return preset(text)


def to_yaml(config: NpuConfig) -> str:
    """The whole machine as YAML, fields in the order of the description; ``config_from_yaml`` reads it back."""
    return str(yaml.safe_dump(config_to_dict(config), sort_keys=False, default_flow_style=False))


def config_from_yaml(text: str, where: str = "hardware YAML") -> NpuConfig:
    """A machine from YAML text; fields left out keep the SL2610's value.

    Raises:
        HardwareConfigError: malformed YAML, an alias, a repeated or unknown key, a wrong type, or an
            impossible machine.
    """
    if len(text) > MAX_YAML_BYTES:
        raise _malformed(where, f"{len(text)} characters, at most {MAX_YAML_BYTES} are read")
    try:
        data = parse_yaml(text)
    except ValueError as error:
        raise _malformed(where, str(error)) from error
    if not isinstance(data, dict):
        raise _malformed(where, f"it holds a {type(data).__name__}, not a mapping of field names to values")
    return config_from_dict(data, where)


def _malformed(where: str, why: str) -> TorqError:
    return _YAML_FILE.refusal(where, why)
