"""The precision planner: which tensors and operators of a model need more than 8 bits to meet a target."""
