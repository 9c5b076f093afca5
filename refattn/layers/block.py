"""The residual block: attention, attention to a context where there is one, feed-forward.

    pre     x <- x + layer(LN(x))          H; C: images, language; R's text
    post    x <- LN(x + layer(x))          C: ESBN, SCAN; R's code
    none    x <- x + layer(x)              weights that are set by hand

Source: Vaswani et al. 2017, section 3 (post); H, appendix C (pre).  Differs: not at all; epsilon must be said, since
the papers' codes differ in it (1e-6 in H, 1e-5 in C and R).
"""

from dataclasses import KW_ONLY, dataclass
from operator import length_hint
from typing import Any, NamedTuple

from .. import ops
from ..checks import check_choice, check_number
from ..xp import check_alike, fitted
from .norm import LayerNorm
from .positions import takes
from .protocol import Gradients, check_tokens

__all__ = ["Block"]

NORMS = "pre", "post", "none"


class BlockSaved(NamedTuple):
    attention: Any             # the layer's Saved: `.attention.code` is the latent code
    cross: Any
    feed_forward: Any
    norms: tuple               # what the LayerNorm of each sub-layer saved, in order
    position: Any
    residual: tuple            # the dropout of each sub-layer's output, or None, in order
    read: slice | None
    shape: tuple               # of y, and so of dy


@dataclass(frozen=True)
class Block:
    """Sub-layers in a residual stream; `position` makes the attention's additive bias, `cross` looks at the context."""
    attention: Any
    feed_forward: Any
    position: Any = None
    norm: str = "pre"
    cross: Any = None
    _: KW_ONLY
    epsilon: float

    def __post_init__(self):
        check_choice("norm", self.norm, NORMS)
        check_number("epsilon", self.epsilon)
        heads = getattr(self.attention, "heads", None)
        fits = takes(self.position, "keys") and heads in (None, getattr(self.position, "heads", heads))
        if self.position is not None and (self.slides or not fits):
            what = "None, since its keys have offsets" if self.slides else f"a bias for each of {heads or 'the'} heads"
            raise ValueError(f"position is {self.position}; allowed: {what}")
        for name, layer, _ in self.sub_layers:
            if not hasattr(layer, "width"):
                raise ValueError(f"{name} is {layer}; allowed: layers, which have a width")
            for width in layer.width, getattr(layer, "outputs", None) or layer.width:
                if width != self.width:
                    raise ValueError(f"{name} has width {width} in a block of width {self.width}; allowed: one width")

    @property
    def width(self) -> int:
        """m, the features of each position."""
        return self.attention.width

    @property
    def slides(self) -> bool:
        """Whether its attention is sliding-dilated, whose masks and biases are (q, w), not (q, k)."""
        return hasattr(self.attention, "dilation")

    @property
    def layer_norm(self) -> LayerNorm:
        """That of every sub-layer, and of a stack's end; each has parameters of its own."""
        return LayerNorm(self.width, self.epsilon)

    @property
    def sub_layers(self):
        """(name, layer, name of its norm) in order."""
        cross = () if self.cross is None else (("cross", self.cross, "norm_cross"),)
        return ("attention", self.attention, "norm1"), *cross, ("feed_forward", self.feed_forward, "norm2")

    def parameters(self) -> dict:
        """Those of the sub-layers and their norms in the order of use, the position's after the attention's."""
        names, normed = {}, self.layer_norm.parameters()
        for name, layer, norm in self.sub_layers:
            own = {name: layer.parameters()}
            if name == "attention" and self.position is not None:
                own["position"] = self.position.parameters()
            names |= {"pre": {norm: normed, **own}, "post": {**own, norm: normed}, "none": own}[self.norm]
        return names

    def forward(self, p, x, *, context=None, keep=None, context_keep=None, dropout=None, context_dropout=None,
                residual=None, hidden=None, read=None) -> tuple[Any, BlockSaved]:
        """y (b, q, m) from x (b, t, m) and, with `cross`, context (b, k, m).  Returns y and BlockSaved.

        `keep` and `dropout` are the attention's, `context_keep` and `context_dropout` those of `cross`; `residual` has
        one array for each sub-layer, (b, t, m) or what broadcasts to it, already divided by 1 - p, or None: a tuple, or
        an array whose first axis counts sub-layers, never one array for all of these; `hidden`, (b, t, f), is the
        feed-forward layer's `dropout`, which `FeedForward` alone takes; `read`, a slice of positions, gives y[:, read]
        at the cost of those queries.

        Raises ValueError where context, what belongs to it, and `cross` do not go together, for another number of
        residuals, and for one that would stretch what it multiplies.
        """
        layers = len(self.sub_layers)
        residual = (None,) * layers if residual is None else residual
        if (given := length_hint(residual)) != layers:          # 0 of what has no length
            raise ValueError(f"residual has {given} arrays; allowed: one for each of {layers} sub-layers")
        named = {f"residual[{n}]": drop for n, drop in enumerate(residual)}
        own = {"context_keep": context_keep, "context_dropout": context_dropout, "hidden": hidden}
        check_tokens(self.width, read, p, named | own, x=x)
        self._check_context(context, context_keep=context_keep, context_dropout=context_dropout)
        norm, bias, position = self.layer_norm, None, None
        if self.position is not None:
            bias, position = self.position.forward(p.position, x.shape[1], x.shape[1])
        options = {"attention": {"bias": bias, "keep": keep, "dropout": dropout, "read": read},
                   "cross": {"context": context, "keep": ops.queries(context_keep, read),
                             "dropout": ops.queries(context_dropout, read)},
                   "feed_forward": {} if hidden is None else {"dropout": ops.queries(hidden, read)}}
        drops = tuple(ops.queries(each, read) for each in residual)
        for name, drop in zip(named, drops, strict=True):
            ops.check_dropout(x if read is None else x[:, read], drop, name)
        saved, norms = {"cross": None}, []
        for (name, layer, norm_name), drop in zip(self.sub_layers, drops, strict=True):
            n, undo = norm.forward(p[norm_name], x) if self.norm == "pre" else (x, None)        # (1)
            y, saved[name] = layer.forward(p[name], n, **options[name])                         # (2)
            if drop is not None:
                y *= drop                                                                       # (3)
            y += x if read is None or name != "attention" else x[:, read]                       # (4)
            x, undo = norm.forward(p[norm_name], y) if self.norm == "post" else (y, undo)       # (5)
            norms.append(undo)
        return x, BlockSaved(**saved, norms=tuple(norms), position=position, residual=drops, read=read, shape=x.shape)

    def _check_context(self, context, **its):
        if (context is None) != (self.cross is None):
            raise ValueError(f"context is {'missing' if context is None else 'given'}, but the block has "
                             f"{'no' if self.cross is None else 'a'} cross-attention; allowed: both or neither")
        for name, given in its.items():
            if given is not None and context is None:
                raise ValueError(f"{name} is given, but no context; allowed: both or neither")

    def backward(self, p, saved, dy, grads) -> Gradients:
        """Gradients(x, context) from dy (b, q, m); parameter gradients are added into `grads`.

        Raises ValueError for dy of another shape, which dropout would stretch.
        """
        norm, dcontext, dy = self.layer_norm, None, fitted(dy, "dy", saved.shape)
        check_alike(dy=dy, **{f"residual[{n}]": x for n, x in enumerate(saved.residual)})
        for (name, layer, norm_name), undo, drop in zip(self.sub_layers[::-1], saved.norms[::-1], saved.residual[::-1],
                                                        strict=True):
            if self.norm == "post":
                dy = norm.backward(p[norm_name], undo, dy, grads[norm_name])                    # (5)
            dropped = dy if drop is None else dy * drop                                         # (3)
            back = layer.backward(p[name], getattr(saved, name), dropped, grads[name])          # (2)
            dx = getattr(back, "x", back)
            if self.norm == "pre":
                dx = norm.backward(p[norm_name], undo, dx, grads[norm_name])                    # (1)
            read = saved.read if name == "attention" else None
            dx[:, read or slice(None)] += dy                                                    # (4)
            if name == "cross":
                dcontext = back.context
            if name == "attention" and self.position is not None:
                self.position.backward(p.position, saved.position, back.bias, grads.position)
            dy = dx
        return Gradients(dy, dcontext)

    def extend(self, p, x, kept=(None, None), *, keep=None, context_keep=None):
        """y (b, n, m) of n further tokens x (b, n, m), none of which sees a later one, and what is now kept.

        kept : keys and values of the tokens so far (None: of none) and of the context, as `keep_context` begins them
        keep : broadcasts to (b, h, n, tokens so far with the new ones); `context_keep` to (b, h, n, k)

        Raises ValueError where these or a context do not fit.
        """
        own, context = kept
        self._check_context(context, context_keep=context_keep)
        norm, bias, start, new = self.layer_norm, None, own.length if own else 0, x.shape[1]
        if self.position is not None:
            bias, _ = self.position.forward(p.position, new, start + new, start)
        for name, layer, norm_name in self.sub_layers:
            n = norm.forward(p[norm_name], x)[0] if self.norm == "pre" else x
            if name == "attention":
                y, own = layer.extend(p[name], n, own, bias=bias, keep=keep)
            elif name == "cross":
                y = layer.attend(p[name], n, context, keep=context_keep)
            else:
                y, _ = layer.forward(p[name], n)
            y += x
            x = norm.forward(p[norm_name], y)[0] if self.norm == "post" else y
        return x, (own, context)

    def keep_context(self, p, context):
        """What `extend` needs before the first token: (None, keys and values of a context (b, k, m), or None)."""
        self._check_context(context)
        return None, None if self.cross is None else self.cross.project_context(p.cross, context)
