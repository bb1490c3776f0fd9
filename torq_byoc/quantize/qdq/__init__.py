"""Standard QDQ ONNX of a float model: quantize and dequantize nodes around every operator with an integer form.

Before::

    y = Relu(Conv(x, w, b))

After::

    xq = QuantizeLinear(x)          yq = QuantizeLinear(Relu(Conv(DequantizeLinear(xq),
    w8, b32 constants                                             DequantizeLinear(w8), DequantizeLinear(b32))))
    y  = DequantizeLinear(yq)

``integer_graph`` knows which operators these are, ``scales`` and ``operands`` the numbers of activations and of
constants, ``builder`` how they are stored; ``writer`` goes through the nodes.
"""
