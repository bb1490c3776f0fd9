"""Floors: every module imports from its own floor or from below, wherever in the file the import stands."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = "torq_byoc"

FLOORS = {
    "errors": 0,
    "files": 0,
    "typed_data": 0,
    "npu_model": 1,
    "kernels": 2,
    "input_arrays": 2,
    "npz": 2,
    "frontend": 3,
    "relay_patterns": 3,
    "schedules": 4,
    "codegen": 5,
    "quantize": 6,
    "compilation": 7,
    "compiler": 7,
    "compiled_model": 7,
    "host_module": 7,
    "host_operators": 7,
    "host_script": 7,
    "in_order_bound": 7,
    "lower_bound": 7,
    "codegen_module": 7,
    "target": 7,
    "relay": 7,
    "accuracy": 8,
    "explore": 8,
    "report": 8,
    "cli": 9,
}
"""First part of a module's name below the package -> its floor."""

WITHOUT = {
    "errors": {"tvm", "tvm_ffi", "onnx", "numpy"},
    "files": {"tvm", "tvm_ffi", "onnx", "numpy"},
    "typed_data": {"tvm", "tvm_ffi", "onnx", "numpy"},
    "kernels": {"tvm", "tvm_ffi", "onnx"},
    "npu_model": {"tvm", "tvm_ffi", "onnx"},
}
"""Packages that a floor must not import, ..."""

EXCEPTIONS = {("npu_model.runtime", "tvm_ffi")}
"""... and where one may: the runtime registers its functions with TVM."""

MODULES = sorted(path for path in (ROOT / PACKAGE).rglob("*.py") if path.name not in ("__init__.py", "__main__.py"))
PACKAGES = sorted(path for path in (ROOT / PACKAGE).rglob("__init__.py") if path.parent != ROOT / PACKAGE)


def name_of(path: Path) -> str:
    """Dotted name below the package: ``npu_model.config``."""
    parts = path.relative_to(ROOT / PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> Iterator[tuple[str, int]]:
    """Absolute names that a file imports anywhere, functions and type-checking blocks among them, with lines."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            assert node.module is not None
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno


def floor_of(name: str) -> int:
    return FLOORS[name.split(".")[0]]


@pytest.mark.parametrize("path", [*MODULES, *PACKAGES], ids=name_of)
def test_imports_go_down(path):
    own = name_of(path)
    for imported, line in imports_of(path):
        if imported == PACKAGE or not imported.startswith(f"{PACKAGE}."):
            continue
        below = imported.removeprefix(f"{PACKAGE}.")
        if below.split(".")[0] == "__version__":
            continue
        assert floor_of(below) <= floor_of(own), f"{own}:{line} imports {below} from a higher floor"


@pytest.mark.parametrize("path", [*MODULES, *PACKAGES], ids=name_of)
def test_low_floors_stand_alone(path):
    own = name_of(path)
    forbidden = WITHOUT.get(own.split(".")[0], set())
    for imported, line in imports_of(path):
        package = imported.split(".")[0]
        allowed = (own, package) in EXCEPTIONS
        assert package not in forbidden or allowed, f"{own}:{line} imports {package}"


def test_every_module_has_a_floor():
    assert {name_of(path).split(".")[0] for path in (*MODULES, *PACKAGES)} == set(FLOORS)


def test_importing_the_package_imports_neither_tvm_nor_numpy():
    """Function-level laziness is of no use when one module undoes it."""
    import subprocess
    import sys

    code = "import sys, torq_byoc\nsys.exit(bool({'tvm', 'onnx', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_nothing_is_unpickled():
    for path in MODULES:
        names = {name.split(".")[0] for name, _ in imports_of(path)}
        assert not names & {"pickle", "shelve", "marshal", "dill", "cloudpickle"}, path
        assert "allow_pickle=True" not in path.read_text(encoding="utf-8"), path
