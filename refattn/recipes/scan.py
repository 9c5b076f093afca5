"""SCAN's commands to actions, trained up to a length and asked beyond: table 4.

One encoder block and one decoder block, each applied three times, post-LN, around softmax or compositional attention;
the read-out is the actions' embedding, with a bias.
Source: C, section 4.6, table 4, appendix C.6, and the released code: Adam at a constant rate, global norm 5, batches of
256 drawn with replacement, dropout 0.1 of embeddings, sub-layers, hidden features and, of softmax attention only, of
pairs.  Linear scoring, which the query cannot change, is what ran; the text presents dot scoring.
Differs: accuracy is of the last step, as published; evaluation decodes as many tokens as the longest answer has.
"""

from dataclasses import dataclass
from functools import partial
from math import prod, sqrt

import numpy as np

from ..attention import VARIANTS, masks
from ..attention.value_scores import SCORINGS
from ..checks import check_integer
from ..layers.block import Block
from ..layers.embedding import Embedding, Readout
from ..layers.feed_forward import FeedForward
from ..layers.stack import Stack
from ..losses import cross_entropy
from ..models.encoder_decoder import EncoderDecoder
from ..params import XAVIER_UNIFORM, Init
from ..tasks import scan as task
from ..train.decoding import greedy
from ..train.evaluation import stream
from ..xp import array_module, to_device, to_host
from .attention import attention_of
from .base import LEVELS, ConstantRateRecipe, FiniteRecipe, check_multiple, dropout_mask, setting

PAPER = {"evaluate_every": 5_000, "checkpoint_every": 500}


def dropouts(rng, rate: float, shapes, xp) -> list:
    """For each shape an array of 0, with probability p, and else of 1 / (1 - p), all from one draw.

    p is `rate` as `dropout_mask` rounds it.
    """
    sizes = [prod(shape) for shape in shapes]
    drawn = to_device(dropout_mask(rng, rate, sum(sizes)), xp)
    factors = xp.multiply(drawn, LEVELS / (LEVELS - round(LEVELS * rate)), dtype=np.float32)
    parts = xp.split(factors, np.cumsum(sizes)[:-1].tolist())
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


@dataclass(frozen=True, kw_only=True)
class ScanRecipe(ConstantRateRecipe, FiniteRecipe):
    """Commands become sequences of actions, trained on short sequences and asked for long ones."""

    TASK = "scan"
    SOURCE = "Mittal et al. 2022, section 4.6"
    SPLITS = task.SPLITS
    COMPARED = "softmax", "compositional"
    LABELS = {"accuracy": "sequences exactly right"}
    TABLE = (("train", "train", "accuracy"), ("held out", "held_out", "accuracy"), ("longer", "longer", "accuracy"))
    SCALES = {
        "quick": {"steps": 2_000, "rate": 2e-3, "width": 64, "hidden": 128, "layers": 2, "batch": 64, "dropout": 0.0,
                  "evaluate_every": 500, "evaluation": 512, "probe": 128},
        "fifth": {"steps": 10_000, **PAPER},
        "paper": {"steps": 50_000, **PAPER},
    }
    CLIP_EPSILON = 1e-6
    INITIAL = {"*.w[qkvo]": XAVIER_UNIFORM, "*.feed_forward.w1": Init("uniform", "mean", sqrt(2)),
               "*.feed_forward.w2": XAVIER_UNIFORM, "readout.b": 0.0}

    last_batch: str = setting("keep", "without effect: commands are drawn, in no epochs", choices=("keep",))
    batch: int = setting(256, "commands per step", least=1, most=2**20)
    rate: float = setting(1e-3, "learning rate, constant", least=0.0, most=1e3)
    clip: float = setting(5.0, "largest global norm of the gradient; 0 for no clipping", least=0.0, most=1e30)
    initialise: str = setting("pytorch", "scheme of what the code leaves as it is: selector and its scores, biases of "
                              "the feed-forward layers, embeddings", choices=("pytorch", "lecun_normal"))
    evaluation: int = setting(4_096, "commands per split at the end, as far as there are", least=1, most=10**9)
    evaluation_batch: int = setting(256, "commands at a time in an evaluation; 0: as in training", least=0, most=2**20)
    probe: int = setting(512, "commands per split during training", least=1, most=10**9)
    log_every: int = setting(100, "steps per log line", least=1, most=10**9)

    attention: str = setting("compositional", "variant", choices=("compositional", *VARIANTS))
    cutoff: int = setting(26, "most actions in training; C: 22, 24 to 30, of which 28 and 29 are one", least=2, most=47)
    width: int = setting(128, "of the model", least=2, most=16_384)
    heads: int = setting(8, "heads or searches", least=1, most=1_024)
    retrievals: int = setting(1, "of compositional attention; C: 1, 2, 4, 8", least=1, most=1_024)
    selector_width: int = setting(16, "of retrieval queries and keys", least=1, most=1_024)
    scoring: str = setting("linear", "how retrievals are scored (compositional); text: dot", choices=tuple(SCORINGS))
    hidden: int = setting(256, "width of the feed-forward layers", least=1, most=65_536)
    layers: int = setting(3, "applications of the encoder's block, and of the decoder's", least=1, most=1_024)
    dropout: float = setting(0.1, "probability, everywhere", least=0.0, most=0.99)
    attention_dropout: bool = setting(True, "drop pairs too, of attention other than compositional")

    def __post_init__(self):
        super().__post_init__()
        check_multiple(self, "width", "heads", even=True)

    @property
    def name(self) -> str:
        attention = self.attention + (f"-{self.scoring}-{self.retrievals}" if self.attention == "compositional" else "")
        return f"{self.cutoff}-{attention}-seed{self.seed}"

    def data(self) -> task.Scan:
        """The task with this cut-off."""
        return task.Scan(self.cutoff)

    def build(self):
        m, layer = self.width, attention_of(self, self.heads, biases=False)

        def stack(cross):
            block = Block(layer, FeedForward(m, self.hidden, "relu"), norm="post", cross=cross, epsilon=1e-5)
            return Stack(block, self.layers, shared=True)

        source, target = (Embedding(m, vocabulary=n, table="interleaved") for n in (task.START + 1, task.END + 1))
        readout = Readout(m, task.END + 1, tied=True, bias=True, scale=False)
        return EncoderDecoder(source, stack(None), target, stack(layer), readout)

    def draw(self, step: int):
        """Drawn with replacement, as the code does: there are no epochs."""
        return self.data().sample(stream(self.seed, "data", step), self.batch)

    def loss_terms(self, batch):
        return float((batch.length + 1).sum())

    def inputs(self, batch):
        """The command and the actions before each action, END before the first."""
        xp = array_module(batch.target)
        said = xp.concatenate([xp.full((len(batch.target), 1), task.END, dtype=batch.target.dtype),
                               batch.target[:, :-1]], axis=1)
        keep = masks.padding(batch.source_length, batch.source.shape[1])
        return batch.source, {"target": said, "source_keep": keep}

    def dropouts(self, batch, rng, xp):
        """Of embeddings, sub-layers, hidden features and, as the fields say, pairs."""
        if not self.dropout:
            return {}
        (b, s), t, n, m, h = batch.source.shape, batch.target.shape[1], self.layers, self.width, self.heads
        encoder = {"residual": (n, 2, b, s, m), "hidden": (n, b, s, self.hidden)}       # (applications, ...)
        decoder = {"residual": (n, 3, b, t, m), "hidden": (n, b, t, self.hidden)}
        if self.attention != "compositional" and self.attention_dropout:
            encoder |= {"dropout": (n, b, h, s, s)}
            decoder |= {"dropout": (n, b, h, t, t), "context_dropout": (n, b, h, t, s)}
        shapes = [(b, s, m), (b, t, m), *encoder.values(), *decoder.values()]
        source, target, *rest = dropouts(rng, self.dropout, shapes, xp)
        drawn = iter(rest)
        found = {"source_dropout": source, "target_dropout": target}
        for part, names in ("encoder", encoder), ("decoder", decoder):
            found[part] = {name: list(next(drawn)) for name in names}
            found[part]["residual"] = [list(x) for x in found[part]["residual"]]        # an array for each sub-layer
        return found

    def loss(self, y, batch):
        """Cross-entropy of the actions and of the first END, mean over all of them."""
        weight = (array_module(y).arange(y.shape[1]) <= batch.length[:, None]).astype(y.dtype)
        return cross_entropy(y, batch.target, weight)

    def predict(self, model, p, batch):
        """The actions, decoded greedily."""
        x, options = self.inputs(batch)
        state = model.begin(p, x, options["source_keep"])
        return greedy(partial(model.extend, p), state, options["target"][:, :1], batch.target.shape[1], task.END)

    def write(self, model, p, prompt, tokens=task.LONGEST + 1):
        """The actions of a command, as one piece.  Raises ValueError for less than no tokens."""
        check_integer("tokens", tokens, 0, 10**9)
        xp = array_module(p.target.table)
        source = to_device(np.array([task.tokens(prompt)]), xp)
        said = greedy(partial(model.extend, p), model.begin(p, source), xp.full((1, 1), task.END), tokens, task.END)
        yield task.spoken(to_host(said)[0].tolist())

    def score(self, y, batch):
        return {"accuracy": task.correct(y, batch.target)}
