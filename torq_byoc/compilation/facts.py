"""What reports and callers need to know of a compiled model beside its programs."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from tvm import relax

from torq_byoc.compilation.placement import Placement
from torq_byoc.compiled_model import FORMAT, CpuOp, ModelFacts, Partition, TensorSpec
from torq_byoc.host_module import is_direct
from torq_byoc.lower_bound import model_floor
from torq_byoc.npu_model.config import NpuConfig


def model_facts(name: str, placement: Placement, partitions: Sequence[Partition], config: NpuConfig) -> ModelFacts:
    """The facts of a model.

    Args:
        name: how reports call the model.
        placement: the model with the places of its operators.
        partitions: its NPU programs.
        config: the machine, for the lower bound.
    """
    graph, parted = placement.model.graph, placement.parted
    npu_macs = sum(layer.macs for partition_ in partitions for layer in partition_.facts.layers)
    return ModelFacts(
        format=FORMAT,
        model=name,
        precision=placement.precision,
        inputs=_specs(graph.input),
        outputs=_output_specs(graph.output, parted.module["main"]),
        floor=model_floor(placement.model, placement.precision, npu_macs, config),
        cpu_ops=tuple(CpuOp(op.node, op.op, op.reason) for op in parted.cpu_ops),
        npu_ops=sum(len(partition_.facts.layers) for partition_ in partitions),
        direct=is_direct(parted.module),
        notes=placement.notes,
        warnings=placement.warnings,
    )


def _specs(values: Sequence[onnx.ValueInfoProto]) -> tuple[TensorSpec, ...]:
    specs = []
    for value in values:
        tensor = value.type.tensor_type
        shape = tuple(dim.dim_value for dim in tensor.shape.dim)
        specs.append(TensorSpec(value.name, shape, onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).name))
    return tuple(specs)


def _output_specs(values: Sequence[onnx.ValueInfoProto], main: relax.Function) -> tuple[TensorSpec, ...]:
    """Outputs with the shapes that the operators give: what a file declares may be wrong (it is where a pool
    rounds up and its last window would start in the padding)."""
    result = main.ret_ty
    kinds = list(result.fields) if isinstance(result, relax.TupleType) else [result]
    return tuple(
        TensorSpec(spec.name, tuple(int(extent) for extent in kind.shape.values), spec.dtype)
        for spec, kind in zip(_specs(values), kinds, strict=True)
    )
