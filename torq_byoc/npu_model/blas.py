"""Matrix products on one thread.

A slice task is a product of a few million multiply-accumulates: too small to gain from a second BLAS
thread, and on a busy machine the threads' spinning for each other costs an order of magnitude.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache

from threadpoolctl import ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    """Looks the BLAS libraries up once; numpy must be imported by then."""
    return ThreadpoolController()


def single_threaded() -> AbstractContextManager[object]:
    """A context in which BLAS uses one thread."""
    return _controller().limit(limits=1, user_api="blas")
