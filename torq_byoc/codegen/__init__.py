"""Code generation: torq_hl, its passes, memory allocation, task packing, lowering to the machine program."""
