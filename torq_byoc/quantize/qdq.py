"""Writes standard QDQ ONNX: quantize and dequantize nodes around every operator with an integer form.

Before::

    y = Relu(Conv(x, w, b))

After::

    xq = QuantizeLinear(x)          yq = QuantizeLinear(Relu(Conv(DequantizeLinear(xq),
    w8, b32 constants                                             DequantizeLinear(w8), DequantizeLinear(b32))))
    y  = DequantizeLinear(yq)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, version_converter

from torq_byoc.errors import CalibrationError, QuantizationError
from torq_byoc.frontend.float_weights import StoredWeights, float_weights, stored_weights
from torq_byoc.quantize import parameters, rules
from torq_byoc.quantize.add_scales import share_add_units
from torq_byoc.quantize.bias_correction import InputMeans
from torq_byoc.quantize.bounded_results import bounded_result
from torq_byoc.quantize.calibrate import calibrate
from torq_byoc.quantize.choose_ranges import (
    AUTO,
    SAFE,
    RangeChoice,
    choose_ranges,
    methods_to_choose_from,
    uniform_choice,
)
from torq_byoc.quantize.concat_scales import share_concat_scales
from torq_byoc.quantize.data import samples
from torq_byoc.quantize.element_functions import inside_functions
from torq_byoc.quantize.kept_weights import kept_weights
from torq_byoc.quantize.observers import Range
from torq_byoc.quantize.parameters import TensorQuantization
from torq_byoc.quantize.precision_plan import Dtype, PrecisionPlan
from torq_byoc.quantize.prelu_inputs import centre_prelu_inputs
from torq_byoc.quantize.quantized import Quantized

OPSETS = {"int8": 13, "int16": 21}

Ranges = Mapping[str, Mapping[str, Range]]
"""By calibrator, then by tensor."""

Watch = Callable[[Mapping[str, np.ndarray]], None]
"""Receives all tensors of a calibration sample."""


def quantize_model(
    model: onnx.ModelProto,
    calibration: Mapping[str, np.ndarray] | None,
    *,
    precision: str = "int8",
    method: str = AUTO,
    plan: PrecisionPlan | None = None,
    progress: Callable[[], None] | None = None,
    floats: Collection[str] = (),
    correct_biases: bool = True,
) -> onnx.ModelProto:
    """The model of ``quantization_of``."""
    return quantization_of(
        model,
        calibration,
        precision=precision,
        method=method,
        plan=plan,
        progress=progress,
        floats=floats,
        correct_biases=correct_biases,
    ).model


def quantization_of(
    model: onnx.ModelProto,
    calibration: Mapping[str, np.ndarray] | None,
    *,
    precision: str = "int8",
    method: str = AUTO,
    plan: PrecisionPlan | None = None,
    progress: Callable[[], None] | None = None,
    floats: Collection[str] = (),
    watch: Watch | None = None,
    correct_biases: bool = True,
) -> Quantized:
    """Quantize a prepared float model.

    Args:
        model: as ``frontend.prepare`` returns it: static shapes, batch norm folded.  Weights that it stores
            as int8 codes keep them.
        calibration: arrays by input name; the first axis counts samples.
        precision: type of activations, "int8" or "int16"; weights are int8 a channel, biases int32.
        method: calibrator (``observers.CALIBRATORS``), or ``AUTO``: the best for each tensor, which are the
            extremes for int16, whose steps are too fine for a narrower range to gain anything.
        plan: precision and method of every tensor, and nodes that stay float, in place of all three.
        progress: called after each calibration sample.
        floats: names of nodes that stay float.
        watch: receives all tensors of every calibration sample.
        correct_biases: take from biases what rounding the weights adds to the means of results.

    Raises:
        CalibrationError: the data does not fit the model, or is missing; there is no such method.
        QuantizationError: the model's opset cannot be raised to one with per-channel QDQ, or the plan is not for it.
    """
    if calibration is None:
        raise CalibrationError("int8 needs calibration data", remedy="give --calib FILE.npz")
    form = quantizable(model, OPSETS[precision if plan is None else "int16"], correct_biases)
    model, feeds = form.model, tuple(samples(form.model, calibration))
    watches = (*form.watches, *((watch,) if watch else ()))
    if plan is not None:
        return _planned(form, feeds, plan, progress, watches)
    choose = method == AUTO and precision == "int8"
    methods = methods_to_choose_from(len(feeds)) if choose else (SAFE if method == AUTO else method,)
    uniform = PrecisionPlan(dtype=cast(Dtype, precision), nodes=dict.fromkeys(floats, "bf16"))
    table = calibrate(model, feeds, QdqWriter(form, uniform).to_observe(), methods, progress, watches)
    choice = uniform_choice(table, methods[0])
    first = QdqWriter(form, uniform)
    quantized = first.write(choice.ranges)
    if choose:
        choice = choose_ranges(model, feeds, table, quantized, first.parameters_for)
        if set(choice.methods.values()) != {SAFE}:
            quantized = QdqWriter(form, uniform).write(choice.ranges)
    return Quantized(quantized, method, table, choice, form.given or model)


@dataclass(frozen=True, eq=False)
class Quantizable:
    """A prepared model ready to be quantized.

    Attributes:
        model: its weights are floats, its opset has QDQ of the types wanted.
        stored: weights that came as integers.
        means: of what layers with weights read, where biases are to be corrected; filled by calibration.
        given: the model as it was.
    """

    model: onnx.ModelProto
    stored: Mapping[str, StoredWeights]
    means: InputMeans | None = None
    given: onnx.ModelProto | None = None

    @property
    def watches(self) -> tuple[Watch, ...]:
        """What has to see the tensors of every calibration sample."""
        return (self.means.add,) if self.means else ()


def quantizable(model: onnx.ModelProto, opset: int, correct_biases: bool = True) -> Quantizable:
    """A prepared model with floats for weights and an opset of at least ``opset``.

    Raises:
        QuantizationError: the opset cannot be raised.
    """
    ready = _with_opset(float_weights(model), opset)
    return Quantizable(ready, stored_weights(model), InputMeans(ready) if correct_biases else None, model)


def _planned(
    form: Quantizable,
    feeds: Sequence[Mapping[str, np.ndarray]],
    plan: PrecisionPlan,
    progress: Callable[[], None] | None,
    watches: Sequence[Watch],
) -> Quantized:
    names = QdqWriter(form).to_observe(absorbed=True)
    table = calibrate(form.model, feeds, names, plan.methods, progress, watches)
    ranges = {method: table.ranges(method) for method in plan.methods}
    methods = {name: plan.method_of(name) for name in names if plan.range_of(name) is None}
    taken = {name: ranges[method][name] for name, method in methods.items()}
    choice = RangeChoice(taken, methods, 0.0)
    return Quantized(write_plan(form, ranges, plan), plan.method, table, choice, form.given or form.model)


def write_plan(form: Quantizable, ranges: Ranges, plan: PrecisionPlan) -> onnx.ModelProto:
    """The model quantized as a plan says (see ``written``)."""
    return written(form, ranges, plan)[0]


def written(
    form: Quantizable, ranges: Ranges, plan: PrecisionPlan
) -> tuple[onnx.ModelProto, dict[str, TensorQuantization]]:
    """The model quantized as a plan says, and the quantization of every tensor.

    Args:
        form: the model.
        ranges: by every calibrator of the plan, of every tensor that is quantized where no operator stays float.
        plan: numbers of tensors and operators.

    Raises:
        QuantizationError: the plan is not for this model.
    """
    whole, writer = QdqWriter(form), QdqWriter(form, plan)
    names = dict.fromkeys((*whole.to_observe(), *writer.to_observe()))
    plan.check_names(names, [node.name for node in whole.integer_nodes()])
    whole.check_followers(plan)

    def range_of(name: str) -> Range:
        fixed = plan.range_of(name)
        return ranges[plan.method_of(name)][name] if fixed is None else Range(*fixed)

    result = writer.write({name: range_of(name) for name in writer.to_observe()})
    return result, writer.quantized


def _with_opset(model: onnx.ModelProto, version: int) -> onnx.ModelProto:
    current = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
    if current >= version:
        return model
    try:
        return version_converter.convert_version(model, version)
    except RuntimeError as error:
        raise QuantizationError(
            f"the model cannot be raised from opset {current} to {version}, which per-channel QDQ needs",
            where=model.graph.name,
            why=str(error).splitlines()[0],
            remedy="export the model with a newer opset",
        ) from error


@dataclass(frozen=True, eq=False)
class _PendingBias:
    """What the addition after a matrix product needs to know of it.

    Attributes:
        input_scale, weight_scale: their product is the scale of the bias.
        shift: float64 [outputs] or 0-d: to be taken from the bias.
    """

    input_scale: np.float32
    weight_scale: np.ndarray
    shift: np.ndarray


class QdqWriter:
    """Rewrites the nodes of one model in order.

    Args:
        form: the model.
        plan: types of tensors, and operators that stay float although they have an integer form.
    """

    def __init__(self, form: Quantizable, plan: PrecisionPlan | None = None) -> None:
        self.model, self.stored, self.means = form.model, form.stored, form.means
        self.plan = plan or PrecisionPlan()
        self.graph = form.model.graph
        self.constants = {tensor.name: tensor for tensor in self.graph.initializer}
        values = (*self.graph.value_info, *self.graph.input, *self.graph.output)
        self.floats = {v.name for v in values if v.type.tensor_type.elem_type == TensorProto.FLOAT}
        self.outputs = {value.name for value in self.graph.output}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        self.producer = {name: node for node in self.graph.node for name in node.output}
        for node in self.graph.node:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)
        self.computed = self._depending_on_inputs()
        self.infinite = self._infinite_operands()
        self.theirs = {*self.constants, *(v.name for v in values), *self.readers, *self.producer}
        self.own_names: dict[str, str] = {}
        self.quantized: dict[str, TensorQuantization] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.pending_bias: dict[str, _PendingBias] = {}
        self.inside = self._inside_functions()

    def _depending_on_inputs(self) -> set[str]:
        """Tensors that change from one inference to the next; the rest (a table too large to fold) are constants."""
        found = {value.name for value in self.graph.input}
        for node in self.graph.node:
            if any(name in found for name in node.input):
                found.update(node.output)
        return found

    def _infinite_operands(self) -> set[str]:
        """Constants of element-wise operators that no scale can hold."""
        operands = {name for node in self.graph.node if node.op_type in rules.TWO_OPERANDS for name in node.input}
        stored = {name: numpy_helper.to_array(self.constants[name]) for name in operands & self.constants.keys()}
        return {name for name, value in stored.items() if value.dtype.kind == "f" and not np.isfinite(value).all()}

    def _inside_functions(self) -> frozenset[str]:
        """Tensors between the operators of element-wise functions; those with results of 16 bits are none."""
        values = (*self.graph.value_info, *self.graph.input, *self.graph.output)
        shapes = {v.name: tuple(dim.dim_value for dim in v.type.tensor_type.shape.dim) for v in values}

        def is_apart(node: onnx.NodeProto) -> bool:
            wide = any(self.plan.dtype_of(name) == "int16" for name in node.output)
            return wide or not self._has_integer_form(node) or any(self.absorbed(name) is node for name in node.input)

        return inside_functions(self.graph.node, self.constants, shapes, is_apart, self.outputs)

    def _own(self, name: str) -> str:
        """A name for something we add: as asked for, unless the model has one like it."""
        if name not in self.own_names:
            unique = name
            while unique in self.theirs:
                unique += "_"
            self.own_names[name] = unique
        return self.own_names[name]

    def _has_integer_form(self, node: onnx.NodeProto) -> bool:
        if node.op_type not in rules.QUANTIZED or node.domain not in ("", "ai.onnx") or node.name in self.plan.nodes:
            return False
        if not all(name in self.floats for name in node.output if name):
            return False
        if node.op_type not in rules.TWO_OPERANDS:
            return node.input[0] in self.computed
        return any(name in self.computed for name in node.input) and self.infinite.isdisjoint(node.input)

    def absorbed(self, name: str) -> onnx.NodeProto | None:
        """The node that shares the requantization of ``name``'s producer: a clamp, or a dense layer's bias."""
        node, readers = self.producer.get(name), self.readers.get(name, [])
        if node is None or name in self.outputs or len(readers) != 1 or not self._has_integer_form(node):
            return None
        reader = readers[0]
        if not self._has_integer_form(reader):
            return None
        if node.op_type in rules.ABSORBING and reader.op_type in rules.CLAMPS and reader.input[0] == name:
            return reader
        return reader if node.op_type == "MatMul" and self._is_bias_add(reader, name) else None

    def integer_producer(self, name: str) -> onnx.NodeProto | None:
        """The node with an integer form that makes a tensor, or None."""
        node = self.producer.get(name)
        return node if node is not None and self._has_integer_form(node) else None

    def sole_integer_reader(self, name: str) -> onnx.NodeProto | None:
        """The only node that reads a tensor, if it has an integer form; None for graph outputs."""
        readers = self.readers.get(name, [])
        alone = len(readers) == 1 and name not in self.outputs and self._has_integer_form(readers[0])
        return readers[0] if alone else None

    def _is_bias_add(self, node: onnx.NodeProto, matmul: str) -> bool:
        other = [name for name in node.input if name != matmul]
        if node.op_type != "Add" or len(other) != 1 or other[0] not in self.constants:
            return False
        weight = self.producer[matmul].input[1]
        return weight in self.constants and list(self.constants[other[0]].dims) == [self.constants[weight].dims[-1]]

    def to_observe(self, absorbed: bool = False) -> list[str]:
        """Float tensors that will be quantized, in graph order.

        Args:
            absorbed: also those that are not because another operator's requantization does for them.
        """
        names: dict[str, None] = {}
        for node in self.graph.node:
            if self._has_integer_form(node):
                for name in (*self._activations(node), *node.output):
                    if name and (absorbed or (self.absorbed(name) is None and name not in self.inside)):
                        names[name] = None
        return list(names)

    def _activations(self, node: onnx.NodeProto) -> list[str]:
        return [name for name in node.input if name in self.floats and name not in self.constants]

    def integer_nodes(self) -> list[onnx.NodeProto]:
        """Nodes that get an integer form, in graph order."""
        return [node for node in self.graph.node if self._has_integer_form(node)]

    def leader(self, name: str) -> str:
        """The tensor whose quantization a tensor takes because its values are taken from there; else itself."""
        node = self.integer_producer(name)
        while node is not None and node.op_type in rules.SAME_SCALE and node.input[0] not in self.constants:
            name = node.input[0]
            node = self.integer_producer(name)
        return name

    def check_followers(self, plan: PrecisionPlan) -> None:
        """Refuse precisions of tensors that have none of their own.

        Raises:
            QuantizationError: the plan names one.
        """
        for name in plan.tensors:
            if self.leader(name) != name:
                raise QuantizationError(
                    "the precision plan names a tensor without a quantization of its own",
                    where=name,
                    why=f"its values are those of {self.leader(name)}, and so are its codes",
                    remedy=f"name {self.leader(name)} instead",
                )

    def write(self, ranges: Mapping[str, Range]) -> onnx.ModelProto:
        """The quantized model, given ranges for every tensor of ``to_observe``."""
        found = self._settled(ranges)
        for value in self.graph.input:
            self._quantize_if_read(value.name, found)
        for node in self.graph.node:
            if self._has_integer_form(node):
                self._integer_node(node, found)
            else:
                self._float_node(node)
            for name in node.output:
                self._quantize_if_read(name, found)
        for value in self.graph.output:
            self._restore_output(value.name)
        return self._model()

    def parameters_for(self, ranges: Mapping[str, Range]) -> dict[str, np.ndarray]:
        """What other ranges would make of the written model's scales and zero points, by their names there."""
        changed = {}
        for name, quantization in self._settled(ranges).items():
            scale, zero_point = self._parameters(name, quantization)
            changed[scale] = np.array(quantization.scale, np.float32)
            changed[zero_point] = np.array(quantization.zero_point, quantization.dtype)
        return changed

    def _settled(self, ranges: Mapping[str, Range]) -> dict[str, TensorQuantization]:
        """Parameters of every tensor: those of its range, brought into agreement with its neighbours'."""
        found = {name: self.activation(name, each) for name, each in ranges.items()}
        integer = self.integer_nodes()
        found = share_add_units(integer, found, self.integer_producer)
        found = share_concat_scales(integer, found, self.integer_producer, self.sole_integer_reader)
        found = centre_prelu_inputs(integer, found, self.integer_producer, self.sole_integer_reader)
        for node in integer:
            source = node.input[0]
            if node.op_type in rules.SAME_SCALE and source in found:
                found.update({name: found[source] for name in node.output if name in found})
        return found

    def activation(self, name: str, observed: Range) -> TensorQuantization:
        """Parameters of a tensor for a range, before they are brought into agreement with its neighbours'."""
        maker, dtype = self.integer_producer(name), self.plan.dtype_of(name)
        if maker is not None and maker.op_type in rules.BOUNDED and dtype == "int8":
            return bounded_result(maker.op_type, observed)
        return parameters.activation(observed, dtype)

    def _quantize_if_read(self, name: str, found: Mapping[str, TensorQuantization]) -> None:
        if name in found:
            self._quantize(name, found[name])

    def _quantize(self, name: str, quantization: TensorQuantization) -> None:
        self.quantized[name] = quantization
        source = self._float_name(name)
        inputs = [source, *self._parameters(name, quantization)]
        codes = self._own(f"{name}_quantized")
        self.nodes.append(helper.make_node("QuantizeLinear", inputs, [codes], name=f"{name}_QuantizeLinear"))

    def _float_name(self, name: str) -> str:
        """Float results that become graph outputs again move aside for the dequantized tensor."""
        is_result = name in self.outputs and name in self.producer and name in self.quantized
        return self._own(f"{name}_float") if is_result else name

    def _parameters(self, name: str, quantization: TensorQuantization) -> list[str]:
        zero_point = np.array(quantization.zero_point, quantization.dtype)
        return [
            self._constant(f"{name}_scale", np.array(quantization.scale, np.float32)),
            self._constant(f"{name}_zero_point", zero_point),
        ]

    def _constant(self, name: str, value: np.ndarray) -> str:
        name = self._own(name)
        if name not in self.constants:
            tensor = numpy_helper.from_array(value, name)
            self.constants[name] = tensor
            self.initializers.append(tensor)
        return name

    def _dequantize(self, name: str, reader: str) -> str:
        """A float copy of a quantized tensor for one reader."""
        output = self._own(f"{name}_for_{reader}")
        inputs = [self._own(f"{name}_quantized"), *self._parameters(name, self.quantized[name])]
        self.nodes.append(helper.make_node("DequantizeLinear", inputs, [output], name=f"{output}_DequantizeLinear"))
        return output

    def _float_node(self, node: onnx.NodeProto) -> None:
        """A node that stays float; it reads the model's inputs as they come, not what became of them on the NPU."""
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        label = node.name or node.output[0]
        for position, name in enumerate(node.input):
            if name in self.quantized and self.integer_producer(name) is not None:
                copy.input[position] = self._dequantize(name, f"{label}_{position}")
            elif name in self.quantized:
                copy.input[position] = self._float_name(name)
        self._append(copy)

    def _append(self, node: onnx.NodeProto) -> None:
        for position, name in enumerate(node.output):
            if name in self.outputs and self.absorbed(name) is None and self._has_integer_form(self.producer[name]):
                node.output[position] = self._own(f"{name}_float")
        self.nodes.append(node)

    def _integer_node(self, node: onnx.NodeProto, found: Mapping[str, TensorQuantization]) -> None:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        label = node.name or node.output[0]
        if node.op_type in rules.WEIGHTED and node.input[1] in self.constants:
            self._weighted(node, copy, label)
        else:
            for position, name in enumerate(node.input):
                if name in self.quantized:
                    copy.input[position] = self._dequantize(name, f"{label}_{position}")
                elif name in self.pending_bias or name in self.inside:
                    continue
                elif self._is_data_constant(node, position):
                    copy.input[position] = self._constant_operand(node, position, label, found)
        self._append(copy)

    def _is_data_constant(self, node: onnx.NodeProto, position: int) -> bool:
        name = node.input[position]
        if name not in self.constants or self.constants[name].data_type != TensorProto.FLOAT:
            return False
        return node.op_type in rules.TWO_OPERANDS or node.op_type in ("MatMul", "Gemm", "Concat")

    def _constant_operand(
        self, node: onnx.NodeProto, position: int, label: str, tensors: Mapping[str, TensorQuantization]
    ) -> str:
        """The int32 bias of a dense layer, or a per-tensor integer constant as wide as its peers."""
        name = node.input[position]
        values = numpy_helper.to_array(self.constants[name])
        dense = next((other for other in node.input if other in self.pending_bias), None)
        if dense is not None:
            pending = self.pending_bias[dense]
            quantized, scale = parameters.bias(values - pending.shift, pending.input_scale, pending.weight_scale)
            return self._dequantized_constant(f"{name}_for_{label}", quantized, scale, 0)
        observed = Range(float(values.min(initial=0.0)), float(values.max(initial=0.0)))
        peers = {tensors[other].dtype for other in (*node.input, *node.output) if other in tensors}
        found = parameters.activation(observed, "int16" if "int16" in peers else "int8")
        limits = np.iinfo(found.dtype)
        steps = np.rint(values.astype(np.float64) / float(found.scale)) + found.zero_point
        codes = np.clip(steps, limits.min, limits.max).astype(found.dtype)
        return self._dequantized_constant(f"{name}_for_{label}", codes, np.array(found.scale), None, found.zero_point)

    def _dequantized_constant(
        self, name: str, codes: np.ndarray, scale: np.ndarray, axis: int | None, zero_point: int = 0
    ) -> str:
        zero = np.full(scale.shape, zero_point, codes.dtype)
        inputs = [
            self._constant(f"{name}_codes", codes),
            self._constant(f"{name}_scale", np.asarray(scale, np.float32)),
            self._constant(f"{name}_zero_point", zero),
        ]
        attributes: dict[str, Any] = {"axis": axis} if axis is not None and scale.ndim else {}
        output = self._own(f"{name}_dequantized")
        node = helper.make_node("DequantizeLinear", inputs, [output], name=f"{name}_DequantizeLinear", **attributes)
        self.nodes.append(node)
        return output

    def _weighted(self, node: onnx.NodeProto, copy: onnx.NodeProto, label: str) -> None:
        """Weights a channel, and the bias in units of input scale x weight scale."""
        data, weight = node.input[0], node.input[1]
        input_scale = self.quantized[data].scale
        values = numpy_helper.to_array(self.constants[weight])
        axis = rules.WEIGHTED[node.op_type] if values.ndim > 1 else None
        if node.op_type == "MatMul" and values.ndim > 2:
            axis = values.ndim - 1
        if node.op_type == "ConvTranspose" and any(a.name == "group" and a.i > 1 for a in node.attribute):
            axis = None  # its weights name only the channels within a group
        offset = self._bias_values(node)
        floor = parameters.bias_floor(offset, input_scale)
        kept = kept_weights(self.stored.get(weight), values, axis, floor)
        codes, scale = kept or parameters.weights(values, axis, floor, input_scale)
        copy.input[0] = self._dequantize(data, f"{label}_0")
        copy.input[1] = self._dequantized_constant(f"{weight}_for_{label}", codes, scale, axis)
        shift = self._mean_shift(node, values, codes, scale, axis)
        if len(node.input) > 2 and node.input[2] and offset is not None:
            quantized, bias_scale = parameters.bias(offset - shift, input_scale, scale)
            copy.input[2] = self._dequantized_constant(f"{node.input[2]}_for_{label}", quantized, bias_scale, 0)
        elif node.op_type == "MatMul" and self.absorbed(node.output[0]) is not None:
            self.pending_bias[node.output[0]] = _PendingBias(input_scale, scale, shift)

    def _mean_shift(
        self, node: onnx.NodeProto, values: np.ndarray, codes: np.ndarray, scale: np.ndarray, axis: int | None
    ) -> np.ndarray:
        """What rounding the weights adds to the mean of each output; 0 where that is not known."""
        shape = [-1 if position == axis else 1 for position in range(values.ndim)]
        rounded = codes.astype(np.float64) * scale.reshape(shape if scale.ndim else ()).astype(np.float64)
        shift = self.means.shift(node.name, values, rounded) if self.means and values.ndim > 1 else None
        return np.zeros(()) if shift is None else shift

    def _bias_values(self, node: onnx.NodeProto) -> np.ndarray | None:
        """Bias of a weighted node: its third input, or the constant of the Add that follows a MatMul."""
        name = node.input[2] if len(node.input) > 2 else ""
        reader = self.absorbed(node.output[0])
        if not name and node.op_type == "MatMul" and reader is not None and reader.op_type == "Add":
            name = next(other for other in reader.input if other != node.output[0])
        if not name or name not in self.constants:
            return None
        values = numpy_helper.to_array(self.constants[name])
        return values.reshape(-1) if values.ndim <= 1 or values.size == max(values.shape) else None

    def _restore_output(self, name: str) -> None:
        """Graph outputs are float again under their own names."""
        if name in self.quantized and name in self.producer:
            inputs = [self._own(f"{name}_quantized"), *self._parameters(name, self.quantized[name])]
            self.nodes.append(helper.make_node("DequantizeLinear", inputs, [name], name=f"{name}_DequantizeLinear"))

    def _model(self) -> onnx.ModelProto:
        used = {name for node in self.nodes for name in node.input} | self.outputs
        kept = [tensor for tensor in self.graph.initializer if tensor.name in used]
        added = [tensor for tensor in self.initializers if tensor.name in used]
        graph = helper.make_graph(
            self.nodes, self.graph.name, list(self.graph.input), list(self.graph.output), [*kept, *added]
        )
        result = helper.make_model(
            graph,
            opset_imports=list(self.model.opset_import),
            ir_version=self.model.ir_version,
            producer_name="torq_byoc",
        )
        return onnx.shape_inference.infer_shapes(result, data_prop=True)
