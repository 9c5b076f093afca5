"""Blocks one after the other: each its own, or one applied again and again; then a LayerNorm where wanted.

    h <- block_n(h),  n = 0 .. layers - 1;      h <- LN(h)

Source: Vaswani et al. 2017 (own blocks); Dehghani et al. 2018, C and R (shared ones).  Differs from Dehghani et al. as
C's code does: no halting and no code for the step.
"""

from dataclasses import dataclass
from operator import length_hint
from typing import Any, NamedTuple

from ..checks import check_choice, check_integers, check_switches
from ..params import check_views
from ..xp import array_module
from .block import Block
from .protocol import Gradients
from .recompute import Recompute

__all__ = ["Stack"]

INTO_THE_STREAM = "wo", "w2", "wd"         # names of the maps whose outputs add up in the residual stream


class StackSaved(NamedTuple):
    blocks: tuple              # one entry for each application
    norm: Any
    schedule: tuple            # (block, number of its parameters, read) of each application
    h: Any                     # (b, q, m), the output


@dataclass(frozen=True)
class Stack:
    """`layers` applications of a block; `shared`: all with the same parameters, `p.block`, instead of `p.blocks`.

    recompute : keep of each application its inputs only, and repeat its forward in the backward
    """
    block: Block
    layers: int
    shared: bool = False
    final_norm: bool = False
    recompute: bool = False

    def __post_init__(self):
        if not hasattr(self.block, "sub_layers"):
            raise ValueError(f"block is {self.block}; allowed: a Block")
        check_integers(vars(self), "layers")
        check_switches(vars(self), "shared", "final_norm", "recompute")

    @property
    def width(self) -> int:
        """m, the features of each position."""
        return self.block.width

    def parameters(self) -> dict:
        """`blocks`, or `block` where one is shared, then `norm` where there is a last one."""
        many, own = len(self.block.sub_layers) * self.layers, self.block.parameters()
        for name, _, _ in self.block.sub_layers:
            own[name] = {n: x._replace(residuals=many) if n in INTO_THE_STREAM and len(x.axes) > 1 else x
                         for n, x in own[name].items()}
        names = {"block": own} if self.shared else {"blocks": (own,) * self.layers}
        return names | ({"norm": self.block.layer_norm.parameters()} if self.final_norm else {})

    def applications(self, read=None):
        """(block, number of its parameters, read) of each application, in order."""
        return ((self.block, n, read if n == self.layers - 1 else None) for n in range(self.layers))

    def forward(self, p, h, *, dropout=None, context_dropout=None, residual=None, hidden=None, read=None,
                schedule=None, **options) -> tuple[Any, StackSaved]:
        """h (b, q, m) from h (b, t, m).  Returns it and StackSaved.

        `dropout`, `context_dropout`, `residual` and `hidden` have one entry for each application, None where it has
        none: they are lists, or arrays whose first axis counts the applications, never one array for all of these.
        `read`, a slice of positions, gives h[:, read], and of the last application nothing else is computed; other
        options (context, keep, context_keep) go to every block.  `schedule` replaces `applications`, and `read` with
        it.  Raises ValueError for both of them, and for another number of entries.
        """
        check_views(p)
        check_choice("read beside a schedule", None if schedule is None else read, (None,))
        schedule, blocks = tuple(self.applications(read) if schedule is None else schedule), []
        each = {"dropout": dropout, "context_dropout": context_dropout, "residual": residual, "hidden": hidden}
        if not self.shared and len(p.blocks) != self.layers:
            raise ValueError(f"p has {len(p.blocks)} blocks; allowed: {self.layers}")
        for name, x in each.items():
            if x is not None and (given := length_hint(x)) != len(schedule):    # 0 of what has no length
                raise ValueError(f"{name} has {given} entries; allowed: {len(schedule)}, one for each application")
        for n, (block, place, at) in enumerate(schedule):                                       # (1)
            own = {name: x[n] for name, x in each.items() if x is not None}
            h, saved = self._layer(block).forward(self._of(p, place), h, read=at, **options, **own)
            blocks.append(saved)
        h, norm = self.block.layer_norm.forward(p.norm, h) if self.final_norm else (h, None)    # (2)
        return h, StackSaved(tuple(blocks), norm, schedule, h)

    def backward(self, p, saved, dh, grads) -> Gradients:
        """Gradients(x, context), the context's summed over all blocks; parameter gradients are added into `grads`."""
        dcontext = None
        if self.final_norm:
            dh = self.block.layer_norm.backward(p.norm, saved.norm, dh, grads.norm)             # (2)
        for (block, place, _), each in zip(reversed(saved.schedule), reversed(saved.blocks), strict=True):  # (1)
            dh, more, _ = self._layer(block).backward(self._of(p, place), each, dh, self._of(grads, place))
            dcontext = more if dcontext is None else dcontext + more
        return Gradients(dh, dcontext)

    def keep_context(self, p, context=None) -> tuple:
        """What `extend` needs before the first token: a shared block projects the context once for all applications."""
        if self.shared:
            return (self.block.keep_context(p.block, context),) * self.layers
        return tuple(self.block.keep_context(own, context) for own in p.blocks)

    def extend(self, p, h, kept, **options):
        """h (b, n, m) after all blocks of n further tokens, and what is now kept; options go to every block."""
        if len(kept) != self.layers:
            raise ValueError(f"kept has {len(kept)} entries; allowed: {self.layers}, one for each application")
        return self.grow(p, h, self.applications(), kept, **options)[:2]

    def grow(self, p, h, schedule, kept=(), before=None, **options):
        """As `extend`, for a schedule that may be longer than what is kept; also returns h of all tokens, unnormalised.

        A level that is new reads all tokens so far: `before` (b, t, m), which the last call returned, then h.
        """
        schedule, now, n = tuple(schedule), [], h.shape[1]
        for (block, place, _), each in zip(schedule, kept, strict=False):
            h, each = block.extend(self._of(p, place), h, each, **options)
            now.append(each)
        whole = h if before is None else array_module(h).concatenate([before, h], axis=1)
        for block, place, _ in schedule[len(kept):]:
            whole, each = block.extend(self._of(p, place), whole, **options)
            now.append(each)
        h = whole[:, whole.shape[1] - n:]
        if self.final_norm:
            h, _ = self.block.layer_norm.forward(p.norm, h)
        return h, tuple(now), whole

    def _layer(self, block):
        return Recompute(block) if self.recompute else block

    def _of(self, p, place: int):
        return p.block if self.shared else p.blocks[place]
