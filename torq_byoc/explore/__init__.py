"""Searches over schedules and machines."""
