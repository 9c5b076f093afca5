"""What C's three experiments with images share: attention, the weight-shared stack, dropout of its feed-forward layer.

Every width is the released code's: heads and searches share the model's width, retrievals are as wide as searches.
Source: C, section 4.2 to 4.4, appendix C.2 to C.4, and the released code (Adam at a constant rate unless a recipe says
otherwise, no decay or clipping).
"""

from dataclasses import dataclass

import numpy as np

from ..attention import VARIANTS
from ..attention.value_scores import SCORINGS
from ..layers.block import Block
from ..layers.feed_forward import FeedForward
from ..layers.stack import Stack
from .attention import attention_of
from .base import ConstantRateRecipe, check_multiple, dropout_mask, setting


@dataclass(frozen=True, kw_only=True)
class VisionRecipe(ConstantRateRecipe):
    """A shared pre-LN block, applied `layers` times to the tokens of an image."""

    COMPARED = "softmax", "compositional"
    EVEN = False                       # whether half of the width is needed too

    batch: int = setting(64, "images per step; of sort_of_clevr questions of each type", least=1, most=2**20)
    rate: float = setting(1e-4, "learning rate", least=0.0, most=1e3)
    initialise: str = setting("pytorch", "scheme of the initial weights", choices=("pytorch", "lecun_normal"))

    attention: str = setting("compositional", "variant", choices=("compositional", *VARIANTS))
    width: int = setting(256, "of the model", least=2, most=16_384)
    heads: int = setting(4, "of other attention than compositional", least=1, most=1_024)
    searches: int = setting(4, "of compositional attention", least=1, most=1_024)
    retrievals: int = setting(2, "of compositional attention; C: 1 to 4", least=1, most=1_024)
    selector_width: int = setting(32, "of the retrieval query", least=1, most=16_384)
    scoring: str = setting("dot", "how compositional attention scores retrievals", choices=tuple(SCORINGS))
    layers: int = setting(4, "applications of the block", least=1, most=1_000)
    dropout: float = setting(0.1, "of the feed-forward layer, inside and after it", least=0.0, most=0.99)

    def __post_init__(self):
        super().__post_init__()
        check_multiple(self, "width", "searches" if self.attention == "compositional" else "heads", self.EVEN)

    def stack(self) -> Stack:
        """The block and how often it is applied."""
        block = Block(attention_of(self, self.searches), FeedForward(self.width, 2 * self.width, "relu"), epsilon=1e-5)
        return Stack(block, self.layers, shared=True)

    def dropped(self, rng, xp, images: int, tokens: int, read: int) -> dict:
        """The stack's options for dropout; the last application has `read` tokens only.

        What `dropout_mask` leaves is divided by 1 - p itself, so the mean of the factors is 1 but for, at most,
        1 / (131,072 (1 - p)); for p = 0.1 it is 7e-6 below 1.
        """
        if not self.dropout:
            return {}

        def mask(*shape):                                   # positions, features
            return xp.asarray(dropout_mask(rng, self.dropout, (images, *shape))) * np.float32(1 / (1 - self.dropout))

        at = [tokens] * (self.layers - 1) + [read]
        return {"residual": [(None, mask(t, self.width)) for t in at], "hidden": [mask(t, 2 * self.width) for t in at]}
