"""From a failing model to the smallest one that still fails."""
