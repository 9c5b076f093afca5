"""What recipes of language models share: which model, made of which parts.

Source: H, section 5 (attention variants); C, section 4.7 (compositional, one block applied again and again); R, section
6 (regular_gpt).  Differs: each layer has its own T5 table or KERPLE numbers (H's code too; KERPLE's: one for all).
"""

from dataclasses import dataclass, replace
from typing import Any

from ..attention import VARIANTS
from ..attention.compositional import Compositional
from ..attention.layer import MultiHead
from ..attention.sliding_dilated import SlidingDilated
from ..checks import check_choice
from ..layers.block import Block
from ..layers.embedding import TABLES, Embedding
from ..layers.feed_forward import ACTIVATIONS, FeedForward, SwiGLU
from ..layers.positions import T5, Rotary
from ..layers.protocol import Attention
from ..layers.stack import Stack
from ..layers.text_positions import ALiBi, Kerple
from ..models.language import Language
from ..params import XAVIER_UNIFORM, Init, count
from .base import Recipe, check_multiple, dropout, setting

IN_HEADS = {"rotary": lambda heads: Rotary(), "alibi": ALiBi, "kerple_log": Kerple,
            "kerple_power": lambda heads: Kerple(heads, "power")}
POSITIONS = "none", "learned", *TABLES, "t5", *IN_HEADS
ATTENTIONS = *VARIANTS, "compositional", "regular_gpt"


def positive(most):
    """Initial values between 0.01 and the greatest."""
    return lambda rng, p: rng.uniform(0.01, most, p.shape)


@dataclass(frozen=True, kw_only=True)
class LanguageRecipe(Recipe):
    """Beside the methods of Recipe a subclass has length, tokens of a window, and symbols(): how many there are."""

    attention: str = setting("softmax", "variant, or model", choices=ATTENTIONS)
    position: str = setting("learned", "where tokens stand, of all but regular_gpt", choices=POSITIONS)
    layers: int = setting(4, "blocks; of regular_gpt the sub-layers of a level, K", least=1, most=1_024)
    shared: bool = setting(False, "one block applied again and again (C)")
    width: int = setting(128, "of the model", least=1, most=16_384)
    heads: int = setting(4, "of each attention layer, or searches", least=1, most=1_024)
    hidden: int = setting(0, "width of the feed-forward layers; 0: 4 widths, of swiglu 8/3, and of compositional so "
                          "many that it has about the parameters of softmax", least=0, most=65_536)
    activation: str = setting("gelu", "of the feed-forward layers", choices=(*ACTIVATIONS, "swiglu"))
    retrievals: int = setting(0, "of compositional; 0: as many as searches (C: 8 and 8)", least=0, most=1_024)
    selector: int = setting(32, "of compositional: width of its selectors", least=1, most=16_384)
    chunk: int = setting(16, "keys of each query of regular_gpt; R: 32, 64, 128, 256", least=2, most=1_024)
    biases: bool = setting(True, "of the maps of attention")
    tied: bool = setting(True, "read out with the table of the embedding")
    scaled: bool = setting(False, "scores over the root of the width (H's code)")
    embedding_scale: bool = setting(False, "embeddings times the root of the width (C)")
    attention_dropout: float = setting(0.0, "probability that a query-key pair is dropped", least=0.0, most=0.99)
    dropout: float = setting(0.0, "probability that a feature of the embedding or of a sub-layer's output is dropped",
                             least=0.0, most=0.99)

    def __post_init__(self):
        super().__post_init__()
        check_multiple(self, "width", "heads")
        if self.attention == "compositional":
            if self.width % self.memories:
                raise ValueError(f"width is {self.width}; allowed: multiples of retrievals, {self.memories}")
            outside = [name for name in POSITIONS if name not in IN_HEADS]
            check_choice("position", self.position, outside, "allowed with compositional")

    @property
    def memories(self) -> int:
        """How many retrievals compositional attention has: `retrievals`, or as many as searches."""
        return self.retrievals or self.heads

    @property
    def name(self) -> str:
        kind = f"chunk{self.chunk}" if self.attention == "regular_gpt" else self.position
        return f"{self.attention}-{kind}-seed{self.seed}"

    @property
    def INITIAL(self) -> dict:                          # type: ignore[override]
        """KERPLE's numbers, from 0.01 to 1 or 2; with scheme pytorch C's maps of attention and embeddings."""
        found: dict[str, Any] = {}
        if self.position.startswith("kerple") and self.attention in VARIANTS:
            found = {"*.attention.position.a": positive(1), "*.attention.position.p": positive(2)}
        if self.initialise == "pytorch":
            found |= {"embed.table": Init("normal"), "*.attention.wo": XAVIER_UNIFORM}
            if self.biases:
                found["*.attention.bo"] = 0.0
            maps = "qkvsr" if self.attention == "compositional" else "qkv"
            found |= {f"*.attention.w{name}": Init("uniform", "mean", 0.5 ** 0.5) for name in maps}
        return found

    def least_bytes(self) -> int:
        """With what every block keeps for its backward."""
        tokens, m = self.largest_shard * self.length, self.width
        applied = len(list(self.build().applications(self.length)))
        pairs = self.heads * (self.chunk if self.attention == "regular_gpt" else self.length)
        return super().least_bytes() + 4 * applied * tokens * (10 * m + pairs)

    def build(self) -> Language:
        hidden = self.hidden or (8 * self.width // 3 if self.activation == "swiglu" else 4 * self.width)
        if self.attention != "compositional" or self.hidden:
            return self.model(hidden)
        wanted = count(replace(self, attention="softmax", hidden=hidden).build().parameters())
        given, narrower = (count(self.model(n).parameters()) for n in (hidden, hidden - 1))
        return self.model(max(1, hidden - round((given - wanted) / (given - narrower))))

    def model(self, hidden: int) -> Language:
        """The model with this width of feed-forward layers."""
        m, h, d = self.width, self.heads, self.width // self.heads
        sliding = self.attention == "regular_gpt"
        position = "none" if sliding else self.position
        layer: Attention
        if sliding:
            layer = SlidingDilated(m, h, d, self.chunk, biases=self.biases, out_of_range="mask")
        elif self.attention == "compositional":
            layer = Compositional(m, h, self.memories, d, m // self.memories, self.selector, biases=self.biases)
        else:
            in_heads = IN_HEADS[position](h) if position in IN_HEADS else None
            layer = MultiHead(m, h, d, variant=self.attention, position=in_heads, biases=self.biases)
        table = T5(h, 32, 128) if position == "t5" else None                # sizes of Raffel et al. 2020
        rest = SwiGLU(m, hidden) if self.activation == "swiglu" else FeedForward(m, hidden, self.activation)
        stack = Stack(Block(layer, rest, table, epsilon=1e-5), self.layers, self.shared and not sliding, True)
        embedding = Embedding(m, vocabulary=self.symbols(), scale=self.embedding_scale,
                              table=position if position in TABLES else "none")
        return Language(embedding, stack, self.tied, self.scaled, self.length if position == "learned" else 0,
                        self.length)

    def inputs(self, batch):
        """Token ids and targets; of a longer length the last token is asked about."""
        t = batch.tokens.shape[1]
        last = {"read": slice(t - 1, None)} if t > self.length else {}
        return batch.tokens, {"target": batch.target, **last}

    def dropouts(self, batch, rng, xp):
        """Of embeddings, sub-layers and pairs, as the fields say."""
        options, (b, t), m = {}, batch.tokens.shape, self.width
        blocks = list(self.build().applications(t))
        if self.attention_dropout:
            keys = self.chunk if self.attention == "regular_gpt" else t
            options["dropout"] = [dropout(rng, self.attention_dropout, (b, self.heads, t, keys), xp) for _ in blocks]
        if self.dropout:
            options["embedding_dropout"] = dropout(rng, self.dropout, (b, t, m), xp)
            options["residual"] = [[dropout(rng, self.dropout, (b, t, m), xp) for _ in range(2)] for _ in blocks]
        return options
