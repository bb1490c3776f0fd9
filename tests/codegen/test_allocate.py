"""Allocation: no two live buffers overlap, everything fits, and easy instances are packed tightly."""

from hypothesis import given, settings
from hypothesis import strategies as st

from torq_byoc.codegen.allocate import Request, allocate, max_live

requests = st.lists(
    st.tuples(st.integers(1, 200), st.integers(0, 20), st.integers(0, 6)).map(
        lambda t: Request(t[0], t[1], t[1] + t[2])
    ),
    min_size=1,
    max_size=24,
)


@settings(max_examples=150, deadline=None)
@given(requests, st.sampled_from([1, 8, 64]))
def test_live_buffers_never_overlap(items: list[Request], align: int) -> None:
    capacity = sum(-(-r.size // align) * align for r in items)
    allocation = allocate(items, capacity, align)
    assert allocation is not None
    placed = list(zip(items, allocation.offsets, strict=True))
    for index, (a, low) in enumerate(placed):
        assert low % align == 0 and low + a.size <= capacity
        for b, other in placed[index + 1 :]:
            if a.start <= b.end and b.start <= a.end:
                assert low + a.size <= other or other + b.size <= low


def test_demand_above_capacity_is_refused() -> None:
    assert allocate([Request(60, 0, 3), Request(60, 2, 5)], 100, 1) is None


def test_disjoint_lifetimes_share_memory() -> None:
    allocation = allocate([Request(100, 0, 1), Request(100, 2, 3), Request(100, 4, 5)], 100, 1)
    assert allocation is not None
    assert allocation.offsets == (0, 0, 0)


def test_max_live_counts_both_ends_of_a_lifetime() -> None:
    assert max_live([Request(10, 0, 2), Request(20, 2, 4), Request(5, 3, 3)]) == 30
