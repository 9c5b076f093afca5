"""Recomputation: keep a layer's inputs only, and repeat its forward when the backward needs it.

Memory of one layer instead of all, for one more forward; bitwise the same gradients, since a forward is deterministic.
Source: Chen et al. 2016 (gradient checkpointing).
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

__all__ = ["Recompute", "recompute"]


class Saved(NamedTuple):
    inputs: tuple
    options: dict


@dataclass(frozen=True)
class Recompute:
    """The same layer, keeping only its inputs."""
    layer: Any

    def __getattr__(self, name):
        """All else is the layer's own: its parameters, its width, how it goes on with further tokens."""
        if name.startswith("__"):                           # which copies and pickles ask for before there is a layer
            raise AttributeError(name)
        return getattr(self.layer, name)

    def forward(self, p, *inputs, **options) -> tuple[Any, Saved]:
        """What the layer's forward returns, with its inputs as Saved."""
        return self.layer.forward(p, *inputs, **options)[0], Saved(inputs, options)

    def backward(self, p, saved, dy, grads):
        """What the layer's backward returns."""
        return self.layer.backward(p, self.layer.forward(p, *saved.inputs, **saved.options)[1], dy, grads)


recompute = Recompute


def replaced(layer, **changes):
    """The layer with other settings; a recomputed one is again one."""
    return Recompute(replaced(layer.layer, **changes)) if isinstance(layer, Recompute) else replace(layer, **changes)
