"""NPU and host programs step by step: what every job is meant to do, what it does, and whose fault a difference is."""
