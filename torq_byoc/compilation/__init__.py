"""Parts of a compilation that ``compiler`` strings together: request, clock, NPU programs, facts."""
