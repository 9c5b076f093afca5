"""The network of the contextual retrieval task: encoder, one attention layer beside an own value, decoder.

    h = encoder(x);   y = decoder(attention(h; no object sees itself) + (h W^own + b) W^own-out)

Encoder and decoder are two maps with a relu between them, at every object alone; no residual, no normalisation.
Source: C, section 4.1, appendix C.1, and the authors' code.  Differs in form only.  The code puts the own value beside
the S search outputs before one output map, which is a sum of two maps: the attention layer's own output map and
W^own-out.  So the layer can be any in which every pair of objects can meet, which is all but sliding-dilated attention;
its output map's fan-in counts the own value's features.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from .. import ops
from ..attention import masks
from ..checks import check_integers
from ..layers.feed_forward import FeedForward
from ..layers.protocol import check_tokens
from ..params import Parameter
from ..xp import array_module

__all__ = ["RetrievalNetwork"]


class Saved(NamedTuple):
    encoder: Any
    h: Any                     # (b, t, m), what attention and own value see
    attention: Any             # the layer's Saved: `.attention.value_scores`, say
    own: Any                   # (b, t, e), the own value
    decoder: Any
    read: slice | None


@dataclass(frozen=True)
class RetrievalNetwork:
    """y (b, t, 1) from x (b, t, i), around an attention layer; `own_width` is e of the own value, 0 for none.

    Raises ValueError for sliding-dilated attention.
    """
    inputs: int
    attention: Any
    own_width: int

    def __post_init__(self):
        check_integers(vars(self), "inputs")
        check_integers(vars(self), "own_width", least=0)
        if hasattr(self.attention, "dilation") or not hasattr(self.attention, "width"):
            raise ValueError(f"attention is {self.attention}; allowed: layers in which every pair of objects can meet")

    @property
    def _parts(self):
        m = self.attention.width
        return FeedForward(self.inputs, m, "relu", m), FeedForward(m, m, "relu", 1)

    def parameters(self) -> dict:
        """Those of `encoder`, `attention`, `own` where objects have a value of their own, `decoder`."""
        m, e = self.attention.width, self.own_width
        encoder, decoder = self._parts
        attention = dict(self.attention.parameters())
        fan_in = attention["wo"].fan_in + e
        for name in {"wo", "bo"} & set(attention):
            attention[name] = attention[name]._replace(fan_in=fan_in, fan_out=m)
        names = {"encoder": encoder.parameters(), "attention": attention}
        if e:
            names["own"] = {"wv": Parameter("me", (m, e), m, "weight"), "bv": Parameter("e", (e,), m, "bias"),
                            "wo": Parameter("em", (e, m), fan_in, "weight", fan_out=m)}
        return {**names, "decoder": decoder.parameters()}

    def forward(self, p, x, *, dropout=None, read=None) -> tuple[Any, Saved]:
        """y (b, q, 1), one number for each object, from x (b, t, i); `read`, a slice, gives y[:, read].

        Returns y and Saved.
        """
        check_tokens(self.inputs, read, p, {"dropout": dropout}, x=x)
        encoder, decoder = self._parts
        h, saved_encoder = encoder.forward(p.encoder, x)                                        # (1)
        keep = masks.off_diagonal(x.shape[1], array_module(x))
        o, attention = self.attention.forward(p.attention, h, keep=keep, dropout=dropout, read=read)        # (2)
        own = None
        if self.own_width:
            own = ops.linear(h if read is None else h[:, read], p.own.wv, p.own.bv)             # (3)
            o += ops.linear(own, p.own.wo)                                                      # (4)
        y, saved_decoder = decoder.forward(p.decoder, o)                                        # (5)
        return y, Saved(saved_encoder, h, attention, own, saved_decoder, read)

    def backward(self, p, saved, dy, grads):
        """dx (b, t, i) from dy (b, q, 1); parameter gradients are added into `grads`."""
        (encoder, decoder), read = self._parts, saved.read
        do = decoder.backward(p.decoder, saved.decoder, dy, grads.decoder)                      # (5)
        dh = self.attention.backward(p.attention, saved.attention, do, grads.attention).x       # (2)
        if self.own_width:
            down, dwo, _ = ops.linear_backward(saved.own, p.own.wo, do)                         # (4)
            h = saved.h if read is None else saved.h[:, read]
            of_own, dwv, dbv = ops.linear_backward(h, p.own.wv, down)                           # (3)
            grads.own.wo += dwo
            grads.own.wv += dwv
            grads.own.bv += dbv
            dh[:, read or slice(None)] += of_own
        return encoder.backward(p.encoder, saved.encoder, dh, grads.encoder)                    # (1)
