"""Operations in pairs: a forward, and a backward that is its exact derivative.

Each docstring says its operation as formulas, parted by commas, in one notation that the documentation typesets and a
test evaluates: entries `x[b,q]`, sums `sum_d(...)` and means `mean_h(...)` over an axis.  A small letter is one axis
(its size where it stands alone), a capital any number of axes; an option that is not given is left out.

A backward takes what its forward returned or was given, and the gradient of the result.  Forwards stay analytic
(comparisons look at `.real`), so that the complex step f(x + ih).imag / h gives their derivative without cancellation.
`out=`, an array like the result, saves memory and says nothing else: the result may be written into it, so that its
former numbers are lost; what is returned is the result.
"""

from itertools import accumulate
from math import pi, prod, sqrt

import numpy as np

from .checks import check_number, check_numbers
from .contract import broadcasts, constant, contract, laid_out_like
from .xp import array_module, check_alike, erf, fitted

__all__ = ["drop", "dropped_to_zero", "embedding", "embedding_backward", "gelu", "gelu_backward", "gelu_exact",
           "gelu_exact_backward", "layer_norm", "layer_norm_backward", "linear", "linear_backward", "linears",
           "linears_backward", "relu", "relu_backward", "rms_head", "rms_head_backward", "scatter_slice", "scores",
           "scores_backward", "sigmoid", "silu", "silu_backward", "softmax", "softmax_backward", "unbroadcast"]

# ------------------------------------------------------------------------------------------------------------- tiles


def in_tiles(f, *arrays, outs):
    """Call f(*pieces, *pieces of outs) on row tiles of arrays that share their first axis; returns `outs`.

    A chain of elementwise steps then reads memory once instead of once a step, as a tile stays in cache; a GPU, and a
    single number, has one tile.
    """
    shape, on_host = arrays[0].shape, array_module(*arrays) is np
    step = max(1, (1 << 16) // max(1, prod(shape[1:])))
    for rows in (slice(n, n + step) for n in range(0, shape[0], step)) if shape and on_host else (Ellipsis,):
        f(*(x[rows] for x in (*arrays, *outs)))
    return outs


def rows_of(x):
    """The array as a matrix whose rows are the last axis."""
    return x.reshape(prod(x.shape[:-1]), x.shape[-1])       # either may be 0


def column_sums(x):
    """sum over the rows of a matrix, on a CPU as a product with ones: two to four times faster (measured)."""
    return constant(1, x.shape[0], x.dtype, np) @ x if type(x) is np.ndarray else x.sum(axis=0)


def summed(x, axis: int):
    """sum over an axis, which is kept with size 1, long ones half by half.

    NumPy does so along the fastest axis alone; along any other it adds one by one, and float32 loses digits.
    """
    if x.shape[axis] <= 128 or type(x) is not np.ndarray or x.strides[axis] == x.itemsize:
        return x.sum(axis=axis, keepdims=True)
    return sum(summed(half, axis) for half in np.array_split(x, 2, axis))


def unbroadcast(dx, shape):
    """Gradient of a broadcast: dx summed to `shape`, never dx itself."""
    more = dx.ndim - len(shape)
    axes = tuple(i for i, n in enumerate(dx.shape) if i < more or shape[i - more] != n)
    return dx.sum(axis=axes).reshape(shape) if axes else dx.copy()


# ------------------------------------------------------------------------------------------------- linear and tables


def check_features(x, w, b=None, name: str = "w"):
    """The array module of x (..., m), a weight (m, ...) called `name` and, where given, its bias b (...).

    Raises ValueError where their axes differ, TypeError where their dtypes or array modules do.
    """
    xp = check_alike(x=x, **{name: w}, b=b)
    if x.shape[-1:] != w.shape[:1]:
        raise ValueError(f"x has shape {x.shape}; allowed: (..., m) with m = {w.shape[0]}")
    fitted(b, "b", w.shape[1:])
    return xp


def as_matrix(w):
    """w (m, ...) as (m, all the rest)."""
    return w.reshape(w.shape[0], prod(w.shape[1:]))         # any may be 0


def columns_of(weights):
    """Where each weight stands in the joined columns of all: slices."""
    stops = list(accumulate(prod(w.shape[1:]) for w in weights))
    return list(map(slice, [0, *stops], stops))


def linear(x, w, b=None):
    """y[T,O] = sum_m(x[T,m] * w[m,O]) + b[O].

    Raises ValueError for x of another width or b of another shape, TypeError for several dtypes or array modules.
    """
    check_features(x, w, b)
    y = rows_of(x) @ as_matrix(w)
    if b is not None:
        y += b.reshape(-1)
    return y.reshape(x.shape[:-1] + w.shape[1:])


def linear_backward(x, w, dy):
    """dx[T,m] = sum_O(dy[T,O] * w[m,O]), dw[m,O] = sum_T(x[T,m] * dy[T,O]), db[O] = sum_T(dy[T,O]).

    Returns dx, dw, db.  Raises ValueError for dy of another shape, whose rows would be mistaken, TypeError for dy of
    another dtype or array module.
    """
    dy2 = fitted(dy, "dy", x.shape[:-1] + w.shape[1:]).reshape(prod(x.shape[:-1]), prod(w.shape[1:]))
    if dy.dtype != w.dtype:                                 # the check alone costs a tenth of a small product
        check_alike(w=w, dy=dy)
    dx = (dy2 @ as_matrix(w).T).reshape(x.shape)
    return dx, (rows_of(x).T @ dy2).reshape(w.shape), column_sums(dy2).reshape(w.shape[1:])


def linears(x, *maps):
    """[linear(x, w, b) for w, b in maps] as one product of the joined weights; a b of None is zero."""
    xp, *_ = [check_features(x, w, b) for w, b in maps]
    y, ys = rows_of(x) @ xp.concatenate([as_matrix(w) for w, _ in maps], axis=1), []
    for at, (w, b) in zip(columns_of([w for w, _ in maps]), maps, strict=True):
        if b is not None:
            y[:, at] += b.reshape(-1)
        ys.append(y[:, at].reshape(x.shape[:-1] + w.shape[1:]))
    return ys


def linears_backward(x, weights, dys):
    """dx and [(dw, db), ...] of `linears`: the gradients joined, two products."""
    xp, rows = array_module(x), prod(x.shape[:-1])
    w = xp.concatenate([as_matrix(w) for w in weights], axis=1)
    dy = xp.concatenate([dy.reshape(rows, prod(w.shape[1:])) for w, dy in zip(weights, dys, strict=True)], axis=1)
    dw, db = rows_of(x).T @ dy, column_sums(dy)
    return (dy @ w.T).reshape(x.shape), [(dw[:, at].reshape(each.shape), db[at].reshape(each.shape[1:]))
                                         for at, each in zip(columns_of(weights), weights, strict=True)]


def embedding(table, index):
    """y[T,m] = table[index[T],m], `index` being integers on the table's device.  Raises TypeError for anything else.

    Raises ValueError for numbers that are no row, in host memory.
    """
    if array_module(index) is not (xp := array_module(table)) or index.dtype.kind not in "iu":
        raise TypeError(f"index is {index.dtype} of {array_module(index).__name__}; allowed: integers of {xp.__name__}")
    check_numbers("index", index, len(table))
    return table[index]


def embedding_backward(table, index, dy):
    """dtable[v,m] = sum_T(dy[T,m] * (index[T] == v))."""
    xp, n = check_alike(table=table, dy=fitted(dy, "dy", index.shape + table.shape[1:])), table.shape[0]
    if n <= 64:                                             # few rows: a product with one-hot rows is quicker
        hit = xp.arange(n, dtype=index.dtype)[:, None] == index.reshape(-1) % n
        return hit.astype(dy.dtype) @ rows_of(dy)
    flat, m = xp.zeros(table.size, dtype=table.dtype), table.shape[1]   # NumPy adds numbers quicker than rows
    xp.add.at(flat, (index.reshape(-1, 1).astype(np.int64) * m + xp.arange(m)).reshape(-1), dy.reshape(-1))
    return flat.reshape(table.shape)


# ------------------------------------------------------------------------------------------------------ nonlinearities


def relu(x):
    """y[T] = max(0, x[T])."""
    return array_module(x).maximum(x, 0) if x.dtype.kind == "f" else x * (x.real > 0)       # analytic for the latter


def relu_backward(x, dy):
    """dx[T] = dy[T] * (x[T] > 0), so the slope at 0 is 0."""
    return dy * (x.real > 0)


GELU_C, GELU_A = sqrt(2 / pi), 0.044715


def gelu(x, *, slope=None):
    """y[T] = x[T] * (1 + tanh(u[T])) / 2, u[T] = sqrt(2 / pi) * (x[T] + 0.044715 * x[T] ** 3).

    `slope`, an array like x, receives dy / dx, which costs less where the tanh is at hand.
    Source: Hendrycks & Gimpel 2016, the tanh form (H).
    """
    def piece(x, y, *slopes):
        xp = array_module(x)
        xp.multiply(x, x, out=y)
        y *= GELU_C * GELU_A
        y += GELU_C
        y *= x
        t = xp.tanh(y, out=y)
        for slope in slopes:
            # beyond 30, 1 - t * t is 0, and x * x might overflow; CuPy clips no complex numbers
            near = xp.clip(x, -30, 30, out=slope) if x.dtype.kind == "f" else x
            rise = near * near
            rise *= 3 * GELU_C * GELU_A
            rise += GELU_C
            rise *= near
            xp.multiply(t, t, out=slope)
            xp.subtract(1, slope, out=slope)
            slope *= rise
            slope += t
            slope += 1
            slope *= 0.5
        y += 1
        y *= 0.5                                # before x, which may be as large as its dtype allows
        y *= x

    return in_tiles(piece, x, outs=(array_module(x).empty_like(x), *([] if slope is None else [slope])))[0]


def gelu_backward(x, dy):
    """dx[T] = dy[T] * (1 + t[T] + x[T] * (1 - t[T] ** 2) * slope[T]) / 2,
    t[T] = tanh(sqrt(2 / pi) * (x[T] + 0.044715 * x[T] ** 3)), slope[T] = sqrt(2 / pi) * (1 + 3 * 0.044715 * x[T] ** 2).
    """
    dx = array_module(x).empty_like(x)
    gelu(x, slope=dx)
    dx *= dy
    return dx


def gelu_exact(x):
    """y[T] = x[T] * (1 + erf(x[T] / sqrt(2))) / 2.

    Without SciPy erf takes real numbers alone: the derivative is checked by finite differences, not by complex steps.
    """
    return x * (0.5 * (1 + erf(x * sqrt(0.5))))


def gelu_exact_backward(x, dy):
    """dx[T] = dy[T] * ((1 + erf(x[T] / sqrt(2))) / 2 + x[T] * exp(-x[T] ** 2 / 2) / sqrt(2 * pi))."""
    density = array_module(x).exp(-0.5 * (x * x)) * (1 / sqrt(2 * pi))
    return dy * (0.5 * (1 + erf(x * sqrt(0.5))) + x * density)


def sigmoid(x):
    """y[T] = 1 / (1 + exp(-x[T])).

    Written with exp(-|x|): it cannot overflow, and keeps its digits at large negative x.
    Raises TypeError for integers, of which those without a sign have no -x.
    """
    xp, down = check_alike(x=x), -relu(-x)
    return xp.exp(down) / (1 + xp.exp(down - relu(x)))


def silu(x):
    """y[T] = x[T] / (1 + exp(-x[T]))."""
    return x * sigmoid(x)


def silu_backward(x, dy):
    """dx[T] = dy[T] * g[T] * (1 + x[T] * (1 - g[T])), g[T] = 1 / (1 + exp(-x[T]))."""
    g = sigmoid(x)
    return dy * (g * (1 + x * (1 - g)))


# ------------------------------------------------------------------------------------------------------ normalisations


def layer_norm(x, scale, shift, epsilon: float = 1e-6):
    """y[T,m] = scale[m] * n[T,m] + shift[m], n[T,m] = r[T,1] * (x[T,m] - mean_i(x[T,i])),
    r[T,1] = 1 / sqrt(mean_m((x[T,m] - mean_i(x[T,i])) ** 2) + epsilon).

    The variance is biased.  Returns y, n, r.  Source: Ba et al. 2016.  Squares are of x's dtype: in float16 deviations
    of 256 are infinite squared, and n is 0; in float32 above 1.8e19.
    """
    xp = check_features(x, scale, name="scale")
    check_alike(scale=scale, shift=fitted(shift, "shift", scale.shape))
    if not x.shape[-1]:
        raise ValueError(f"x has shape {x.shape}; allowed: at least one feature to be the mean of")
    check_number("epsilon", epsilon)
    x2 = rows_of(x)
    average = constant(1 / x.shape[-1], x.shape[-1], x.dtype, xp)
    y, n, r = xp.empty_like(x2), xp.empty_like(x2), xp.empty((x2.shape[0], 1), dtype=x.dtype)

    def piece(x, y, n, r):
        xp.subtract(x, (x @ average)[:, None], out=n)
        xp.multiply(n, n, out=y)
        variance = (y @ average)[:, None]
        variance += epsilon
        xp.divide(1, xp.sqrt(variance, out=r), out=r)
        n *= r
        xp.multiply(n, scale, out=y)
        y += shift

    in_tiles(piece, x2, outs=(y, n, r))
    return y.reshape(x.shape), n.reshape(x.shape), r.reshape(x.shape[:-1] + (1,))


def layer_norm_backward(n, r, scale, dy):
    """dx[T,m] = r[T,1] * (dn[T,m] - mean_i(dn[T,i]) - n[T,m] * mean_i(dn[T,i] * n[T,i])), dn[T,m] = scale[m] * dy[T,m],
    dscale[m] = sum_T(dy[T,m] * n[T,m]), dshift[m] = sum_T(dy[T,m]).  Returns dx, dscale, dshift.
    """
    xp = check_alike(n=n, dy=fitted(dy, "dy", n.shape))
    n2, dy2 = rows_of(n), rows_of(dy)
    average = scale * (1 / n.shape[-1])
    dx, dscale = xp.empty_like(n2), xp.zeros_like(scale)

    def piece(n, r, dy, dx):
        nonlocal dscale
        xp.multiply(dy, n, out=dx)
        dscale += column_sums(dx)
        mean_dn_n = dx @ average
        xp.multiply(dy, scale, out=dx)
        dx -= (dy @ average)[:, None]
        dx -= n * mean_dn_n[:, None]
        dx *= r

    in_tiles(piece, n2, r.reshape(-1, 1), dy2, outs=(dx,))
    return dx.reshape(n.shape), dscale, column_sums(dy2)


def softmax(s, keep=None, axis: int = -1, *, out=None):
    """a[T,k] = keep[T,k] * exp(s[T,k]) / sum_j(keep[T,j] * exp(s[T,j])), or 0 where nothing is kept.

    `axis` is that of k; `keep` is boolean and broadcasts to s, the latter unchecked; `out` may be `s` itself.
    Raises TypeError for a keep of another dtype.
    """
    xp = array_module(s, keep)
    if keep is not None and keep.dtype != bool:         # an additive mask would keep what it is to hide
        raise TypeError(f"keep has dtype {keep.dtype}; allowed: booleans (True = may attend)")
    if not s.shape[axis]:                               # no keys: nothing is kept, and there is no largest
        return xp.empty_like(s)
    if keep is not None:                                # not `where`, whose result forgets the memory order of s
        penalty = xp.where(keep, xp.zeros((), dtype=s.real.dtype), -xp.inf)
        s = xp.add(s, laid_out_like(penalty, s), out=out)
    top = s.real.max(axis=axis, keepdims=True)
    if keep is not None:
        top = xp.where(top == -xp.inf, 0, top)          # -inf minus -inf would be NaN
    a = xp.subtract(s, top, out=out)
    xp.exp(a, out=a)
    total = summed(a, axis)
    if keep is not None:
        total = xp.where(total == 0, 1, total)
    a *= 1 / total
    return a


def softmax_backward(a, da, axis: int = -1, *, out=None):
    """ds[T,k] = a[T,k] * (da[T,k] - sum_j(a[T,j] * da[T,j])), from the output alone; `out` may be da, but not a."""
    ds = array_module(a, da).multiply(a, da, out=out)
    ds -= a * summed(ds, axis)
    return ds


def rms_head(s, axis: int = 1, epsilon: float = 1e-6):
    """a[b,h,T] = rho[b,1,T] * s[b,h,T], rho[b,1,T] = 1 / sqrt(mean_h(s[b,h,T] ** 2) + epsilon).  Returns a, rho.

    Source: H, section 2.2, RMSHead.  Differs: epsilon as in the released code; the text has none.
    Squares are of s's dtype: in float16 one score of 256 gives a = 0, in float32 those whose squares sum to 3.4e38.
    With epsilon 0 scores whose squares vanish (float32: below 2.6e-23) stay as they are.
    """
    xp = array_module(s)
    check_number("epsilon", epsilon)
    a = s * s
    rho = a.mean(axis=axis, keepdims=True)
    rho += epsilon
    rho = 1 / xp.sqrt(xp.where(rho == 0, 1, rho))           # without epsilon, where all scores are 0: a = 0
    return xp.multiply(s, rho, out=a), rho


def rms_head_backward(a, rho, da, axis: int = 1):
    """ds[b,h,T] = rho[b,1,T] * (da[b,h,T] - a[b,h,T] * mean_j(a[b,j,T] * da[b,j,T]))."""
    xp = array_module(a, da)
    ds = a * da
    xp.multiply(a, ds.mean(axis=axis, keepdims=True), out=ds)
    xp.subtract(da, ds, out=ds)
    ds *= rho
    return ds


# --------------------------------------------------------------------------------------------------- attention's parts

# The axis that is reduced next stands outermost; on a GPU the last one stays innermost: its threads are neighbours.
MEMORY = {"k": "kbhq", "h": "hbqk", None: "bhqk"}


def scores(q, k, bias=None, *, over: str | None = None):
    """s[b,h,q,k] = sum_d(q[b,q,h,d] * k[b,k,h,d]) / sqrt(d) + bias[b,h,q,k], eq. (1) of H before sigma.

    `over` names the axis that the scores are normalised over next ('k' or 'h'); it decides their order in memory.
    Differs from H, eq. (1): the additive bias, as in the released code, unscaled and for every variant.
    """
    s = contract("bqhd,bkhd->bhqk", q * q.shape[-1] ** -0.5, k, order=MEMORY[over if type(q) is np.ndarray else None])
    if bias is not None:
        s += laid_out_like(bias, s)
    return s


def scores_backward(q, k, bias, ds):
    """dq[b,q,h,d] = sum_k(ds[b,h,q,k] * k[b,k,h,d]) / sqrt(d), dk[b,k,h,d] = sum_q(ds[b,h,q,k] * q[b,q,h,d]) / sqrt(d),
    dbias[b,h,q,k] = ds[b,h,q,k], summed to the bias's own shape.  Returns dq, dk, dbias, which is None without bias.
    """
    scale = q.shape[-1] ** -0.5
    dq = contract("bhqk,bkhd->bqhd", ds, k)
    dk = contract("bhqk,bqhd->bkhd", ds, q)
    dq *= scale
    dk *= scale
    return dq, dk, None if bias is None else unbroadcast(ds, bias.shape)


def check_dropout(x, dropout, name: str = "dropout") -> None:
    """Nothing, or an error: TypeError where x and a dropout differ in dtype, ValueError where it would stretch x."""
    check_alike(x=x, **{name: dropout})
    if dropout is not None and not broadcasts(dropout.shape, x.shape):
        raise ValueError(f"{name} has shape {dropout.shape}; allowed: what broadcasts to {x.shape}")


def drop(a, dropout=None, *, out=None):
    """c[T] = dropout[T] * a[T], `dropout` being already divided by 1 - p.  Its own derivative."""
    return a if dropout is None else array_module(a).multiply(a, laid_out_like(dropout, a), out=out)


def dropped_to_zero(s, keep=None):
    """r[T] = keep[T] * s[T].  Its own derivative.  A mask for a code without softmax, not dropout.

    That `keep` is boolean is not checked.
    """
    return s if keep is None else s * laid_out_like(keep, s)


def scatter_slice(dx, shape, where, axis: int):
    """Gradient of x[where] along `axis`: zeros of `shape` with dx in that slice."""
    whole = array_module(dx).zeros(shape, dtype=dx.dtype)
    whole[(slice(None),) * (axis % len(shape)) + (where,)] = dx
    return whole


def queries(x, read):
    """The part of an array (..., q, k) or (..., q, m), or what broadcasts to it, that belongs to the queries `read`."""
    return x if _of_every_query(x, read) else x[..., read, :]


def queries_backward(dx, x, read):
    """The gradient of x from that of `queries(x, read)`."""
    return dx if _of_every_query(x, read) else scatter_slice(dx, x.shape, read, axis=-2)


def _of_every_query(x, read):
    return x is None or read is None or x.ndim < 2 or x.shape[-2] == 1
