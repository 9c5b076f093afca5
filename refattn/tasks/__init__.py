"""Tasks: what the models are trained on, drawn on the host with NumPy alone.

A task is a module with a frozen dataclass of its settings, whose `sample(rng, batch, split)` returns a named tuple of
arrays.  A sample carries enough to recompute its targets, and the metrics of the task are functions beside it.
"""
