"""Fused groups: neighbouring nodes that run band by band, so that what they pass on stays in LRAM."""
