"""What a stored host module may say: TVMScript is Python to its parser, so the text is held to a few forms first.

A container from elsewhere must be able to describe a graph of Relax operators and nothing more.  The parser
evaluates expressions and, inside shapes, strings; here everything is refused that is not the definition of
functions over operators of ``R``, and the only packed function that may be called is the runtime's.
"""

from __future__ import annotations

import ast
import re

from torq_byoc.errors import ProgramFormatError
from torq_byoc.npu_model.runtime import RUN_FUNCTION

_FORMS = (
    *(ast.Module, ast.ClassDef, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Expr, ast.Pass),
    *(ast.Assign, ast.AnnAssign, ast.With, ast.withitem, ast.If, ast.Load, ast.Store),
    *(ast.Call, ast.keyword, ast.Attribute, ast.Name, ast.Constant, ast.Tuple, ast.List, ast.Dict),
    *(ast.Subscript, ast.UnaryOp, ast.USub),
)
_ROOTS = {
    "I": re.compile(r"ir_module|module_attrs|module_global_infos|dummy_global_info"),
    "R": re.compile(r"(nn\.|image\.|vision\.)?[A-Za-z][a-z0-9_]*[A-Za-z0-9]"),
    "T": re.compile(r"u?int\d+|float\d+|bfloat16|bool"),
    "cls": re.compile(r"[a-z]\w*"),
}
_CALLS_OUT = re.compile(r"R\.call_.*|.*(packed|[Ee]xtern|invoke|closure|py_func).*")
_TEXT = re.compile(r"[\w ./:+-]*")


def check_script(text: str) -> None:
    """Refuse a text that is more than functions over Relax operators.

    Raises:
        ProgramFormatError: names the line and what does not belong there.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _refused(0, str(error)) from error
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    names |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)} | {"cls"}
    if reserved := names.intersection(_ROOTS) - {"cls"}:
        raise _refused(0, f"a variable called {min(reserved)}")
    for node in ast.walk(tree):
        if fault := _fault(node, names):
            raise _refused(getattr(node, "lineno", 0), fault)


def _fault(node: ast.AST, names: set[str]) -> str:
    if not isinstance(node, _FORMS):
        return f"a form of Python that no graph needs ({type(node).__name__})"
    if isinstance(node, ast.Name):
        known = node.id in names or node.id in _ROOTS
        return "" if known and not node.id.startswith("__") else f"the name {node.id}"
    if isinstance(node, ast.Attribute):
        return _chain_fault(node)
    if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
        fits = isinstance(node.value, str) and _TEXT.fullmatch(node.value)
        return "" if fits else f"the text {str(node.value)[:40]!r}"
    if isinstance(node, ast.Call):
        return _call_fault(node)
    return ""


def _chain_fault(node: ast.Attribute) -> str:
    """``R.nn.conv2d`` is an operator; attributes of anything else are not looked at."""
    chain = _chain(node)
    root, _, rest = chain.partition(".")
    inner = node.value if isinstance(node.value, ast.Attribute) else None
    allowed = root in _ROOTS and (_ROOTS[root].fullmatch(rest) or rest in ("nn", "image", "vision"))
    if not allowed or (inner is not None and _chain(inner).partition(".")[2] not in ("nn", "image", "vision")):
        return f"the attribute {chain}"
    return ""


def _call_fault(node: ast.Call) -> str:
    """Operators may be called, and through ``R.call_dps_packed`` the runtime."""
    if not isinstance(node.func, ast.Attribute):
        return "a call of something that is no operator"
    chain = _chain(node.func)
    if not _CALLS_OUT.fullmatch(chain):
        return ""
    first = node.args[0] if node.args else None
    runtime = chain == "R.call_dps_packed" and isinstance(first, ast.Constant) and first.value == RUN_FUNCTION
    return "" if runtime else f"a call of {chain} that is not the runtime's"


def _chain(node: ast.expr) -> str:
    """``a.b.c`` of an attribute; ``?`` stands for anything but a name at its root."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "?")
    return ".".join(reversed(parts))


def _refused(line: int, why: str) -> ProgramFormatError:
    return ProgramFormatError(
        "the host part of the container is not a graph of operators",
        where=f"line {line} of its script",
        why=why,
        remedy="use only containers that torq wrote; compile the model again",
    )
