"""An encoder reads the source; a decoder, which sees all of it, says the target token by token.

    c = encoder(embedding(source));    y = read_out(decoder(embedding(target), c))

Every decoder block attends to the target up to and with its own position, then to c.  Source: Vaswani et al. 2017,
section 3; C, section 4.6 (SCAN).  Differs: not at all.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from ..attention import masks
from ..checks import check_choice
from ..layers.embedding import Embedding, Readout
from ..layers.stack import Stack, StackSaved
from ..xp import array_module, fitted
from .transformer import Transformer

__all__ = ["EncoderDecoder"]


class Saved(NamedTuple):
    source: Any
    encoder: StackSaved
    target: Any
    decoder: StackSaved


@dataclass(frozen=True)
class EncoderDecoder:
    """y (b, t, o) from source ids (b, s) and target ids (b, t): y[:, t] scores the token after target[:, :t + 1].

    The decoder's block has `cross`; a read-out may be tied to the target's embedding.  Raises ValueError for a block
    without it, for an encoder's with it, for other widths than the decoder's, and for a read-out that does not fit.
    """
    source: Embedding
    encoder: Stack
    target: Embedding
    decoder: Stack
    readout: Readout

    def __post_init__(self):
        if self.decoder.block.cross is None:
            raise ValueError("the decoder's block has no cross; allowed: a block that attends to a context")
        check_choice("cross of the encoder's block", self.encoder.block.cross, (None,))
        for name in "source", "encoder":
            check_choice(f"width of {name}", getattr(self, name).width, (self.decoder.width,))
        Transformer(self.target, self.decoder, self.readout)                # knows which widths and read-outs fit

    def parameters(self) -> dict:
        """Those of `source`, `encoder`, `target`, `decoder`, `readout`."""
        return {n: getattr(self, n).parameters() for n in ("source", "encoder", "target", "decoder", "readout")}

    def forward(self, p, source, *, target, source_keep=None, read=None, source_dropout=None, target_dropout=None,
                encoder=None, decoder=None) -> tuple[Any, Saved]:
        """y (b, q, o).  Returns y and Saved.

        source_keep : (b, 1, 1, s), False at paddings; `read`: a slice of the target
        source_dropout, target_dropout : of the embeddings, (b, s, m) and (b, t, m), already divided by 1 - p
        encoder, decoder : dropout, residual and hidden of each stack, as it takes them, in a dict
        """
        context, source, encoder = self.encode(p, source, source_keep, source_dropout, **encoder or {})      # (1)
        h, target = self.target.forward(p.target, target, dropout=target_dropout)                       # (2)
        keep = None if self.decoder.block.slides else masks.causal(h.shape[1], xp=array_module(h))
        h, saved = self.decoder.forward(p.decoder, h, context=context, keep=keep, context_keep=source_keep, read=read,
                                        **decoder or {})                                        # (3)
        y, _ = self.readout.forward(p.readout, h, getattr(p.target, "table", None))             # (4)
        return y, Saved(source, encoder, target, saved)

    def encode(self, p, source, keep=None, source_dropout=None, **options):
        """The context (b, s, m), and what embedding and encoder save."""
        check_choice("source_keep for an encoder that slides", keep is not None and self.encoder.block.slides, (False,))
        h, embedding = self.source.forward(p.source, source, dropout=source_dropout)
        fitted(keep, "source_keep", (h.shape[0], 1, 1, h.shape[1]))
        h, saved = self.encoder.forward(p.encoder, h, keep=keep, **options)
        return h, embedding, saved

    def begin(self, p, source, source_keep=None) -> tuple:
        """What `extend` needs before the first target token: keys and values of the source, and its paddings."""
        return self.decoder.keep_context(p.decoder, self.encode(p, source, source_keep)[0]), source_keep, 0

    def extend(self, p, target, state):
        """y (b, n, o) of n further target tokens (b, n), and the state after them: `forward` piece by piece."""
        kept, source_keep, start = state
        h, _ = self.target.forward(p.target, target, start=start)
        h, kept = self.decoder.extend(p.decoder, h, kept, context_keep=source_keep)
        y, _ = self.readout.forward(p.readout, h, getattr(p.target, "table", None))
        return y, (kept, source_keep, start + target.shape[1])

    def backward(self, p, saved, dy, grads):
        """None, for token ids; parameter gradients are added into `grads`."""
        table, dtable = (getattr(each.target, "table", None) for each in (p, grads))
        dh = self.readout.backward(p.readout, saved.decoder.h, dy, grads.readout, table, dtable)            # (4)
        dh, dcontext, _ = self.decoder.backward(p.decoder, saved.decoder, dh, grads.decoder)    # (3)
        self.target.backward(p.target, saved.target, dh, grads.target)                          # (2)
        dh = self.encoder.backward(p.encoder, saved.encoder, dcontext, grads.encoder).x         # (1)
        return self.source.backward(p.source, saved.source, dh, grads.source)                   # (1)
