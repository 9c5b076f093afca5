"""Tasks: what the models are trained on, drawn on the host with NumPy alone.

Most are a frozen dataclass of settings, whose `sample(rng, batch, split)` returns a named tuple of arrays; of finite
sets `take(split, index)` does; images and texts that are read from files have loaders.  A sample carries enough to
recompute its targets, and the metrics of the task are functions beside it.
"""
