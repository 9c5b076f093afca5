"""Planted bugs: plausible mistakes, one row each, that the checks must catch and `check.diagnose` can name.

A row is a file, a text that stands in it exactly once, the text to put there, and one sentence that says what is wrong.
`python -m refattn.check.planted` prints which check catches which row.
"""

from functools import cache
from types import ModuleType
from typing import NamedTuple

from . import bugs_compositional as compositional
from .rewrite import rewritten


class Bug(NamedTuple):
    file: str                  # below refattn/
    old: str                   # occurs exactly once
    new: str
    sentence: str


@cache
def load(bug: Bug) -> ModuleType:
    """The package with this bug, beside the real one; each is loaded once.

    Raises ValueError naming file and text when the text does not stand in the file exactly once.
    """
    def edit(source):
        if source.count(bug.old) != 1:
            raise ValueError(f"{bug.file} has {source.count(bug.old)} times, not once, the text {bug.old!r}")
        return source.replace(bug.old, bug.new)

    return rewritten({bug.file: edit})


HYLA, SOFTMAX, LINEAR = (f"attention/{name}.py" for name in ("hyla", "softmax", "linear"))
ABLATIONS, LAYER, TRANSFORMER = "attention/ablations.py", "attention/layer.py", "models/transformer.py"

BUGS: tuple[Bug, ...] = (
    # HYLA
    Bug(HYLA, 'dc += contract("bqke,bkhe->bhqk", dz, v, order=a)', "pass",
        "dcode lacks the code's first use, the one that makes the hidden layer z"),
    Bug(HYLA, 'dc = contract("bqhe,bqke->bhqk", do, g, order=a)',
        'dc = contract("bqhe,bqke->bhqk", 0 * do, g, order=a)',
        "dcode lacks the code's second use, the one that makes the output"),
    Bug(HYLA, "dz = ops.relu_backward(z, dg)", "dz = dg", "the gradient passes the relu as if it were not there"),
    Bug(HYLA, "dz = ops.relu_backward(z, dg)", "dz = ops.relu_backward(dg, dg)",
        "the relu's slope is read from the gradient instead of from z"),
    Bug(HYLA, "g = ops.relu(z)                                             # (6)", "g = z   # (6)",
        "the output is made from z before the relu"),
    Bug(HYLA, "s = ops.dropped_to_zero(s, keep)                            # (2)", "# (2)",
        "keep is not applied to the scores"),
    Bug(HYLA, "ds = ops.dropped_to_zero(ds, keep)", "pass",
        "keep is not applied backward, so pairs that are not attended to get gradients"),
    Bug(HYLA, 'z = contract("bhqk,bkhe->bqke", c, v)', 'z = contract("bhqk,bkhe->bqke", a, v)',
        "dropout is missing in the code's first use"),
    Bug(HYLA, 'o = contract("bhqk,bqke->bqhe", c, g)', 'o = contract("bhqk,bqke->bqhe", a, g)',
        "dropout is missing in the code's second use"),
    Bug(HYLA, 'o = contract("bhqk,bqke->bqhe", c, g)', 'o = contract("bhqk,bqke->bqhe", s, g)',
        "the code's second use takes the scores before RMSHead"),
    Bug(HYLA, 'dg = contract("bhqk,bqhe->bqke", c, do)', 'dg = contract("bhqk,bqhe->bqke", a, do)',
        "dz comes from the code before dropout"),
    Bug(HYLA, 'dv = contract("bhqk,bqke->bkhe", c, dz)', 'dv = contract("bhqk,bqke->bkhe", a, dz)',
        "dv comes from the code before dropout"),
    Bug(HYLA, "da = ops.drop(dc, dropout, out=dc)", "da = dc", "dropout is not applied to dcode"),
    Bug(HYLA, "ops.rms_head(s, epsilon=epsilon)", "ops.rms_head(s, axis=3, epsilon=epsilon)",
        "RMSHead runs over keys instead of heads"),
    Bug(HYLA, "ops.rms_head_backward(a, rho, da)", "ops.rms_head_backward(a, rho, da, axis=3)",
        "RMSHead's backward averages over keys instead of heads"),
    Bug(HYLA, "dropout=None, epsilon=1e-6)", "dropout=None, epsilon=1e-38)", "RMSHead's epsilon is missing"),
    # softmax
    Bug(SOFTMAX, "ops.softmax(s, keep, out=s)", "ops.softmax(s, keep, axis=2, out=s)",
        "the softmax runs over queries instead of keys"),
    Bug(SOFTMAX, "ops.softmax(s, keep, out=s)", "ops.softmax(s, out=s)", "keep is not applied to the scores"),
    Bug(SOFTMAX, "ops.softmax(s, keep, out=s)", "ops.softmax(s if keep is None else s - 1e9 * (1 - keep))",
        "-1e9 stands for minus infinity, so a query that keeps nothing attends to everything"),
    Bug(SOFTMAX, "ops.softmax_backward(a, da, out=da)", "a * da",
        "the softmax's backward lacks the sum over keys, ds = a (da - sum a da)"),
    Bug(SOFTMAX, "ops.softmax_backward(a, da, out=da)", "ops.softmax_backward(a, da, axis=2)",
        "the softmax's backward sums over queries instead of keys"),
    Bug(SOFTMAX, "ops.softmax_backward(a, da, out=da)", "ops.softmax_backward(c, da)",
        "the softmax's backward uses the code after dropout"),
    Bug(SOFTMAX, "ops.softmax_backward(a, da, out=da)", "ops.softmax_backward(a, da, out=a)",
        "the backward overwrites the saved code"),
    Bug(SOFTMAX, "da = ops.drop(dc, dropout, out=dc)", "da = dc", "dropout is not applied to dcode"),
    Bug(SOFTMAX, 'dv = contract("bhqk,bqhe->bkhe", c, do)', 'dv = contract("bhqk,bqhe->bkhe", a, do)',
        "dv comes from the code before dropout"),
    Bug(SOFTMAX, 'o = contract("bhqk,bkhe->bqhe", c, v)', 'o = contract("bhqk,bkhe->bqhe", a, v)',
        "dropout is not applied to the code"),
    # linear
    Bug(LINEAR, "a = ops.dropped_to_zero(s, keep)", "a = s", "keep is not applied to the scores"),
    Bug(LINEAR, "ds = ops.dropped_to_zero(da, keep)", "ds = da",
        "keep is not applied backward, so pairs that are not attended to get gradients"),
    Bug(LINEAR, 'dv = contract("bhqk,bqhe->bkhe", c, do)', 'dv = contract("bhqk,bqhe->bkhe", a, do)',
        "dv comes from the code before dropout"),
    # table A1
    Bug(ABLATIONS, '(("softmax", "rms_head"), "k")', '(("rms_head", "softmax"), "k")',
        "softmax and RMSHead are applied in the wrong order"),
    Bug(ABLATIONS, 'zip(reversed(steps or ("none",)), reversed(kept), strict=True)',
        'zip(steps or ("none",), kept, strict=True)', "the normaliser's steps are undone in forward order"),
    Bug(ABLATIONS, 'dv = phi_backward(v, contract("bhqk,bqhe->bkhe", c, do))',
        'dv = contract("bhqk,bqhe->bkhe", c, do)',
        "the gradient passes the values' nonlinearity as if it were not there"),
    Bug(ABLATIONS, "phi_backward(z2, dg), phi(z)", "phi_backward(z, dg), phi(z)",
        "the second relu's slope is read from the first hidden layer"),
    Bug(ABLATIONS, 'dc += contract("bqkf,bqkhf->bhqk", dz2, u)', "pass", "dcode lacks the second of its three uses"),
    Bug(ABLATIONS, 'u = contract("bqke,hef->bqkhf", g, wv2)                 # (6) eq. 10',
        'u = contract("bqke,hfe->bqkhf", g, wv2)  # (6) eq. 10', "the second layer's weights wv2 are transposed"),
    # scores
    Bug("ops.py", "q * q.shape[-1] ** -0.5, k", "q, k", "the scores are not divided by sqrt(d)"),
    Bug("ops.py", "q * q.shape[-1] ** -0.5, k", "q / q.shape[-1], k", "the scores are divided by d instead of sqrt(d)"),
    Bug("ops.py", "q * q.shape[-1] ** -0.5, k", "q * np.sqrt(1 / q.shape[-1]), k",
        "1/sqrt(d) is a NumPy float64, which makes float32 scores float64"),
    Bug("ops.py", "q * q.shape[-1] ** -0.5, k", "q.__imul__(q.shape[-1] ** -0.5), k",
        "q is scaled in the caller's array"),
    Bug("ops.py", "s += laid_out_like(bias, s)", "s += laid_out_like(bias, s) * q.shape[-1] ** -0.5",
        "the bias is added before the scores are divided by sqrt(d)"),
    Bug("ops.py", "    dq *= scale\n", "", "dq lacks 1/sqrt(d)"),
    Bug("ops.py", "    dk *= scale\n", "", "dk lacks 1/sqrt(d)"),
    Bug("ops.py", "else unbroadcast(ds, bias.shape)", "else unbroadcast(ds * scale, bias.shape)",
        "dbias is divided by sqrt(d), although the bias is added after that"),
    Bug("ops.py", "else unbroadcast(ds, bias.shape)", "else ds", "dbias is not summed to the shape of the bias"),
    Bug("ops.py", "return dx.sum(axis=stretched, keepdims=True) if", "return dx.mean(axis=stretched, keepdims=True) if",
        "dbias is a mean over the axes that the bias was stretched along, not a sum"),
    # normalisers
    Bug("ops.py", "rho = a.mean(axis=axis, keepdims=True)", "rho = a.sum(axis=axis, keepdims=True)",
        "RMSHead divides by the root of the sum of squares, not of their mean"),
    Bug("ops.py", "    rho += epsilon\n    rho = 1 / xp.sqrt(rho, out=rho)",
        "    rho = 1 / (xp.sqrt(rho, out=rho) + epsilon)",
        "RMSHead's epsilon stands outside the root"),
    Bug("ops.py", "xp.subtract(da, ds, out=ds)", "ds = da * 1", "RMSHead's backward lacks the term -a mean(a da)"),
    Bug("ops.py", "xp.multiply(a, ds.mean(axis=axis, keepdims=True), out=ds)",
        "xp.multiply(a, ds.sum(axis=axis, keepdims=True), out=ds)", "RMSHead's backward sums over heads, not averages"),
    Bug("ops.py", "top = s.real.max(axis=axis, keepdims=True)", "top = 0 * s.real.max(axis=axis, keepdims=True)",
        "the softmax does not subtract the maximum, so large scores overflow"),
    Bug("ops.py", "total = xp.where(total == 0, 1, total)", "pass",
        "a softmax that keeps nothing divides zero by zero"),
    Bug("ops.py", "a = xp.subtract(s, top, out=out)", "a = xp.subtract(s, top, out=vars(softmax).setdefault(\n"
        "        f'{s.shape} {s.dtype}', xp.empty_like(s)) if out is None else out)",
        "the softmax puts all results of one shape into the same array"),
    Bug("ops.py", "average = xp.full(x.shape[-1]", "average = np.full(x.shape[-1]",
        "an array of NumPy is mixed in, whatever the module of the others is"),
    Bug("ops.py", "        variance += epsilon\n        xp.divide(1, xp.sqrt(variance, out=r), out=r)",
        "        xp.divide(1, xp.sqrt(variance, out=r) + epsilon, out=r)",
        "LayerNorm's epsilon stands outside the root"),
    Bug("ops.py", "xp.multiply(n, n, out=y)\n        variance = (y @ average)[:, None]",
        "variance = ((x * x) @ average - (x @ average) ** 2)[:, None]",
        "LayerNorm's variance is E[x^2] - E[x]^2, which cancels when the mean is large"),
    Bug("ops.py", "variance = (y @ average)[:, None]",
        "variance = (y @ average)[:, None] * (x.shape[1] / (x.shape[1] - 1))",
        "LayerNorm's variance is divided by m - 1"),
    Bug("ops.py", "        dx -= (dy @ average)[:, None]\n", "", "LayerNorm's backward lacks the mean of the gradient"),
    Bug("ops.py", "        dx -= n * mean_dn_n[:, None]\n", "", "LayerNorm's backward lacks the term n mean(dn n)"),
    # other operations
    Bug("ops.py", "return dy * (x.real > 0)", "return dy * (dy.real > 0)",
        "the relu's slope is read from the upstream gradient"),
    Bug("ops.py", "return dy * (x.real > 0)", "dy *= x.real > 0\n    return dy",
        "the relu's backward writes into the upstream gradient"),
    Bug("ops.py", "slope *= 3 * GELU_C * GELU_A", "slope *= GELU_C * GELU_A",
        "GELU's slope lacks the 3 of (x^3)' = 3 x^2"),
    Bug("ops.py", "array_module(table, dy).add.at(dtable, index.reshape(-1), rows_of(dy))",
        "dtable[index.reshape(-1)] = rows_of(dy)", "of a token that occurs twice only the last gradient is kept"),
    Bug("ops.py", "@ dy2).reshape(w.shape), column_sums(dy2)", "@ dy2).reshape(w.shape), dy2.mean(axis=0)",
        "db is a mean over positions, not a sum"),
    Bug("ops.py", "return x.reshape(-1, x.shape[-1])", 'return x.ravel("K").reshape(-1, x.shape[-1])',
        "rows are read in memory order, whatever the axes are"),
    Bug("contract.py", "b = b.transpose(p.axes_b).reshape", "b = b.reshape",
        "an operand is reshaped without being transposed: right shape, mixed axes"),
    # positions
    Bug("positions.py", "    max_distance: int\n    bidirectional: bool = False",
        "    max_distance: int\n    bidirectional: "
        "bool = True", "T5's buckets tell keys after the query apart, which the released code does not"),
    Bug("positions.py", "n = np.arange(queries)[:, None] - np.arange(keys)", "n = np.arange(keys) - np.arange(queries)"
        "[:, None]", "T5's distance has the wrong sign"),
    Bug("positions.py", "array_module(flat, dbias).add.at(flat, saved.reshape(-1), dbias.reshape(-1))",
        "flat[saved.reshape(-1)] = dbias.reshape(-1)", "of all pairs in a T5 bucket only the last gradient is kept"),
    Bug("positions.py", "self._rotate(dq, saved.cos[0], -saved.sin[0])", "self._rotate(dq, saved.cos[0], saved.sin[0])",
        "rotary's backward turns dq forward again"),
    Bug("positions.py", 'if self.pairing == "interleaved" else', 'if self.pairing != "interleaved" else',
        "rotary's two pairings are exchanged"),
    Bug("positions.py", "start = 0 if read is None else range(length)[read].start", "start = 0",
        "rotary counts the positions of the queries that are read from zero"),
    # losses
    Bug("losses.py", "error * (2 / n)", "error * (1 / n)", "the gradient of the mean square lacks its 2"),
    Bug("losses.py", "dlogits * (1 / n)", "dlogits",
        "the gradient of the cross-entropy is that of a sum, not of a mean"),
    Bug("losses.py", "weight / weight.sum()", "weight / prod(weight.shape)",
        "a weighted cross-entropy is divided by the number of targets, not by the sum of weights"),
    # layers
    Bug(LAYER, 'y = contract("bqhe,hem->bqm", o, p.wo)',
        'y = contract("bqhe,hem->bqm", o.swapaxes(2, 3).reshape(o.shape), '
        "p.wo)", "heads and features are exchanged before the output projection"),
    Bug(LAYER, "maps(grads, name)[0], (dw, db), strict=True)", "maps(grads, name)[0], (dw, 0 * db), strict=True)",
        "the gradients of bq, bk and bv are forgotten"),
    Bug(LAYER, "source[:, read] += dx", "source[:, read] = dx",
        "the queries' part of dx replaces that of keys and values, instead of being added"),
    Bug(LAYER, "grads.bo += dy.sum(axis=(0, 1))", "grads.bo[...] = dy.sum(axis=(0, 1))",
        "the gradient of bo is overwritten, not added"),
    Bug("feed_forward.py", "grads.w1 += dw1", "grads.w1[...] = dw1", "the gradient of w1 is overwritten, not added"),
    Bug("feed_forward.py", "        grads.b1 += db1\n", "", "the gradient of b1 is forgotten"),
    Bug("feed_forward.py", "[1](hidden, dactive)", "[1](active, dactive)",
        "the activation's slope is taken after the activation instead of before it"),
    Bug("feed_forward.py", '"gelu": (ops.gelu, ops.gelu_backward)', '"gelu": (lambda x: ops.gelu_exact(x.real), '
        "ops.gelu_exact_backward)", "GELU is the exact form, not the tanh form"),
    Bug("feed_forward.py", "dup = dactive * ops.silu(gate)", "dup = dactive * gate", "SwiGLU's d(up) lacks the silu"),
    Bug("recompute.py", "[0], Saved(inputs, options)", "[0], Saved(inputs, {})",
        "recomputation forgets bias, keep, dropout and read"),
    # models
    Bug(TRANSFORMER, "        da += dy         ", "        da += 0 * dy     ",
        "no gradient passes the residual connection around the feed-forward layer"),
    Bug(TRANSFORMER, "        h, norm = LayerNorm(", "        _, norm = LayerNorm(", "the final LayerNorm is left out"),
    Bug(TRANSFORMER, "self.block.forward(p.blocks[layer], h", "self.block.forward(p.blocks[0], h",
        "all layers use the first layer's parameters"),
    Bug(TRANSFORMER, "        if self.causal:", "        if True:", "there is a causal mask where none was asked for"),
    Bug(TRANSFORMER, "grads.embed.table += dw.T", "pass", "a tied table lacks the gradient of the read-out"),
    Bug(TRANSFORMER, "y = ops.linear(h, p.embed.table.T) * self.width ** -0.5", "y = ops.linear(h, p.embed.table.T)",
        "a tied read-out is not divided by sqrt(m)"),
    Bug("masks.py", "return k <= q + (keys - queries)", "return k < q + (keys - queries)",
        "the causal mask hides a position from itself"),
    Bug("masks.py", "(q - k < size)", "(q - k <= size)", "the window is one token too long"),
    # generated networks and tiles
    Bug("attention/as_hypernetwork.py", 'dcode += contract("bqkie,ihe->bhqk", dinner, wv)', "pass",
        "dcode lacks the first generated layer"),
    Bug("attention/tiled.py", "o = rescale * o + contract", "o = o + contract",
        "what the tiles have summed is not rescaled when the maximum grows"),
    # training
    Bug("optim.py", "root += epsilon", "root = xp.sqrt(root * root + epsilon)",
        "AdamW's epsilon stands inside the root"),
    Bug("optim.py", "rate / (1 - beta1**step)", "rate / (1 - beta1**(step + 1))",
        "AdamW's bias correction counts steps from 0"),
    Bug("optim.py", "    root *= (1 - beta2**step) ** -0.5\n", "", "AdamW's second moment is not bias-corrected"),
    Bug("optim.py", "flat * (rate * decay)", "flat * decay", "AdamW's decay is not multiplied by the learning rate"),
    Bug("optim.py", "xp.minimum(limit / xp.maximum(norm, 1e-30), 1.0)", "limit / xp.maximum(norm, 1e-30)",
        "clipping also scales small gradients up"),
    Bug("optim.py", '(2 if length == "released" else 1) * warmup', "warmup",
        "the cosine is stretched over steps - warmup, where the released code has steps - 2 warmup"),
    Bug("optim.py", "return rate * count / warmup", "return rate * (count + 1) / warmup",
        "the first learning rate is not 0"),
    *map(Bug._make, compositional.ROWS),
)
