"""What the tasks of H share: a decoder around any attention variant, read at its last positions.

Source: Attention as a Hypernetwork, appendix C, table A3 and the released code.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from ..attention import VARIANTS
from ..attention.layer import MultiHead
from ..layers.mixture_of_experts import MixtureOfExperts
from ..models.transformer import decoder
from .base import Recipe, dropout, setting


@dataclass(frozen=True, kw_only=True)
class DecoderRecipe(Recipe):
    """Beside the methods of Recipe a subclass has the field held_out, data(): the task, whose combinations(split) are
    what is held out, and shape(): (tokens, their width, outputs, positions that are read)."""

    shape: ClassVar[Callable[..., tuple]]
    attention: str = setting("hyla", "variant", choices=tuple(VARIANTS))
    width: int = setting(128, "of the model", least=1, most=16_384)
    heads: int = setting(8, "of each attention layer", least=1, most=1_024)
    head_width: int = setting(2, "of queries, keys and values, per head", least=1, most=1_024)
    layers: int = setting(2, "blocks", least=1, most=1_024)
    hidden: int = setting(256, "width of the feed-forward layers", least=1, most=65_536)
    experts: int = setting(0, "feed-forward layers in a mixture in place of each one; 0 for none; H gives no number",
                           least=0, most=1_024)
    chosen: int = setting(2, "experts that a position uses; H gives no number", least=1, most=1_024)
    attention_dropout: float = setting(0.1, "probability to drop a query-key pair; text: 0", least=0.0, most=0.99)
    read: bool = setting(True, "compute of the last block only what is read; the outputs are the same")

    def __post_init__(self):
        super().__post_init__()
        if self.experts:
            MixtureOfExperts(1, 1, self.experts, self.chosen)                   # knows what is allowed
        for split in self.SPLITS:
            if not len(self.data().combinations(split)):
                raise ValueError(f"held_out is {self.held_out}, which leaves no combination in split {split!r}; "
                                 f"allowed: settings that leave some in every split")

    @property
    def name(self) -> str:
        experts = f"-{self.experts}experts" if self.experts else ""
        return f"{self.attention}{experts}-seed{self.seed}"

    def sizes(self) -> dict:
        """Width, heads, head_width and hidden of the model."""
        return {name: getattr(self, name) for name in ("width", "heads", "head_width", "hidden")}

    def least_bytes(self) -> int:
        """With the scores and activations that blocks keep for their backward; a last one that is read keeps few."""
        length, size = self.shape()[0], self.sizes()
        per_block = size["heads"] * length**2 + length * (size["width"] + size["hidden"] * max(1, self.experts))
        return super().least_bytes() + 4 * self.largest_shard * per_block * (self.layers - self.read)

    def build(self):
        size, (length, inputs, outputs, _) = self.sizes(), self.shape()
        attention = MultiHead(size["width"], size["heads"], size["head_width"], variant=self.attention)
        experts = MixtureOfExperts(size["width"], size["hidden"], self.experts, self.chosen) if self.experts else None
        return decoder(attention, hidden=size["hidden"], layers=self.layers, buckets=length, feed_forward=experts,
                       inputs=inputs, outputs=outputs)

    def sample(self, rng, split="train", size=None):
        return self.data().sample(rng, self.drawn(size), split)

    def inputs(self, batch):
        return batch.tokens, {"read": slice(-self.shape()[-1], None)} if self.read else {}

    def dropouts(self, batch, rng, xp):
        """One matrix of pairs per block and step, shared over batch and heads."""
        if not self.attention_dropout:
            return {}
        length = self.shape()[0]
        return {"dropout": list(dropout(rng, self.attention_dropout, (self.layers, 1, 1, length, length), xp))}
