"""Comparison of compiled models with integer and float references."""
