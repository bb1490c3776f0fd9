"""Layers of a model at every stage: where their results are kept, what they should be, how far they are from it."""
