"""What a compiled model is held against: the float model, and its integers on whole tensors."""
