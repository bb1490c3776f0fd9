"""Offsets for buffers with known lifetimes: offline dynamic storage allocation.

``allocate`` fits buffers below a capacity, ``pack`` seeks the lowest height.  Both are deterministic: what bounds
them is work, not time.
"""

from torq_byoc.codegen.allocation.request import Allocation, Request, max_live
from torq_byoc.codegen.allocation.search import allocate, pack

__all__ = ["Allocation", "Request", "allocate", "max_live", "pack"]
