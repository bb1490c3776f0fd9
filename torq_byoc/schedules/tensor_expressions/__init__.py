"""The operators as tensor expressions, in the machine's arithmetic: what TIR functions are built from."""

from torq_byoc.schedules.tensor_expressions import activation, elementwise, movement, products, windows
from torq_byoc.schedules.tensor_expressions.definition import Definition, arguments, define, defined_ops

__all__ = [
    "Definition",
    "activation",
    "arguments",
    "define",
    "defined_ops",
    "elementwise",
    "movement",
    "products",
    "windows",
]
