"""One residual block around any attention, as Compositional Attention and RegularGPT have it."""

from .feed_forward import layer as feed_forward
from .layer import part
from .ops import layer_norm


def normed(p, x):
    """LayerNorm with the parameters p.scale, p.shift; epsilon 1e-5."""
    return layer_norm(x, part(p, "scale"), part(p, "shift"), epsilon=1e-5)


def block(p, x, attention, *, norm, activation="relu"):
    """post: norm1(x + attention(x)), norm2(y + mlp(y));  pre: the norms inside the sums;  none: neither.

    Shapes: x (b, t, m), p.attention for attention(p.attention, x), p.feed_forward, and p.norm1, p.norm2 unless norm is
    none; returns (b, t, m).
    """
    inner, mlp, norm1, norm2 = (part(p, name) for name in ("attention", "feed_forward", "norm1", "norm2"))
    if norm == "pre":
        x = x + attention(inner, normed(norm1, x))
        return x + feed_forward(mlp, normed(norm2, x), activation)
    x = x + attention(inner, x)
    x = normed(norm1, x) if norm == "post" else x
    x = x + feed_forward(mlp, x, activation)
    return normed(norm2, x) if norm == "post" else x
