"""What errors advise."""

from __future__ import annotations

from torq_byoc.errors import choose_from


def test_the_nearest_of_many_names_is_found_and_the_first_are_listed() -> None:
    known = [f"layer{number}" for number in range(40)] + ["pool"]
    remedy = choose_from("pol", known)
    assert remedy.startswith("did you mean 'pool'? use one of layer0, layer1, ") and remedy.endswith("and 21 more")
    assert choose_from("x", ["left", "right"]) == "use one of left, right"
