"""Plain data as structs: errors name the keys."""

from __future__ import annotations

import msgspec
import pytest

from torq_byoc.typed_data import typed


class _Leaf(msgspec.Struct, forbid_unknown_fields=True):
    size: int = 0
    kinds: dict[str, list[int]] = {}


class _Root(msgspec.Struct):
    leaves: dict[str, _Leaf] = {}
    rows: list[dict[str, _Leaf]] = []


@pytest.mark.parametrize(
    ("data", "place"),
    [
        ({"leaves": {"a": {}, "b.c": {"size": "x"}}}, "$.leaves['b.c'].size"),
        ({"leaves": {"a": {"size": 1}, "b": 3, "c": {}}}, "$.leaves['b']"),
        ({"rows": [{}, {"a": {}, "b": {"kinds": {"p": [1], "q": [1, None]}}}]}, "$.rows[1]['b'].kinds['q'][1]"),
        ({"leaves": 3}, "$.leaves"),
    ],
)
def test_the_place_of_a_wrong_type_has_its_keys(data: object, place: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        typed(data, _Root)
    assert str(caught.value).endswith(f"`{place}`")


def test_right_data_are_converted() -> None:
    assert typed({"leaves": {"a": {"size": "4"}}}, _Root, strict=False).leaves["a"] == _Leaf(4)
