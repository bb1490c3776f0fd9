"""Averages of integers over windows, with channels as the second dimension or as the last one."""

from __future__ import annotations

from torq_byoc.frontend.passes.qoperators.rewriter import Rewrite, Rewriter


def _pool(op_type: str) -> Rewrite:
    def rewrite(r: Rewriter) -> None:
        source = r.triple(0)
        last = bool(r.attribute("channels_last", 0))
        rank = r.rank(0) or 4
        if last:
            source = r.emit("Transpose", [source], perm=[0, rank - 1, *range(1, rank - 1)])
        kept = r.attributes("kernel_shape", "strides", "pads", "ceil_mode", "count_include_pad", "auto_pad")
        result = r.emit(op_type, [source], **kept)
        if last:
            result = r.emit("Transpose", [result], perm=[0, *range(2, rank), 1])
        r.finish_quantized(result, 3, 4)

    return Rewrite(rewrite, needs=(0, 1, 3))


REWRITES: dict[tuple[str, str], Rewrite] = {
    ("com.microsoft", "QLinearGlobalAveragePool"): _pool("GlobalAveragePool"),
    ("com.microsoft", "QLinearAveragePool"): _pool("AveragePool"),
}
