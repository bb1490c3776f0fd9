"""Floor 2: slice kernels.  Importing the package registers every kernel below; a new one is one more line."""

from torq_byoc.kernels import (  # noqa: F401
    act,
    broadcast,
    compare,
    concat,
    conv2d,
    extremum,
    matmul,
    multiply,
    pad,
    pooling,
    reduce,
    reshape,
    resize,
    scale_rows,
    slice,
    sum2,
    table,
    transpose,
    weighted,
    window_max,
)
