"""Composite operators (activations, softmax, normalisations, ...) as nodes that the slice kernels run."""
