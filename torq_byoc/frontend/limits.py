"""How large a model may be before it is refused; every limit is checked before anything of that size is allocated."""

MAX_MODEL_BYTES = 2**31 - 1
"""Model file and external data together: a protobuf message cannot be larger."""

MAX_NODES = 200_000
"""Nodes, those of sub-graphs and local functions included."""

MAX_NESTING = 16
"""Depth of sub-graphs inside sub-graphs."""

MAX_DIMENSION = 2**31 - 1
"""One dimension of a tensor: the index type of the machine's descriptors."""

MAX_TENSOR_BYTES = 2**31 - 1
"""One tensor, computed or stored."""

MAX_FOLDED_BYTES = 64 * 2**20
"""Largest result of one constant-folded node."""

MAX_FOLDED_TOTAL_BYTES = 512 * 2**20
"""All results of constant folding together."""
