"""What a model must reach to be shipped, and whether it does."""
