"""``torq tune``: schedules beyond what the analytic search finds, judged by simulated cycles.

A space (``space``) is every decision record within reach of one that is known; a strategy (``strategy``,
``strategies/``) chooses points of it; a workload (``workload``) compiles and simulates what a point means.
"""
