"""Named contraction of exactly two arrays as one matrix product.

    contract("bqhd,bkhd->bhqk", q, k)[b, h, q, k] = sum_d q[b, q, h, d] k[b, k, h, d]

The backward of a contraction is the same letters rearranged, so that a page's backward reads like its forward.
`einsum` reads the same, but on NumPy before 2.4 and on CuPy it costs many times a matrix product (numpy #22604,
cupy #2904); two operands lowered to transposes and one `matmul` cost the product alone on both.
"""

from functools import cache, lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from .xp import array_module, fitted, read_only

STRIPED = 1 << 18              # numbers from which on a copy into another order of memory is made strip by strip

__all__ = ["agree", "contract", "laid_out_like", "multiply_adds"]


class Plan(NamedTuple):
    a: str                     # letters of the first operand
    b: str                     # letters of the second
    result: str
    batch: str                 # in a, b and the result
    left: str                  # in a and the result
    right: str                 # in b and the result
    inner: str                 # in a and b, summed over
    memory: str                # the result's letters, slowest first
    axes_a: tuple              # a -> (batch, left, inner)
    axes_b: tuple              # b -> (batch, inner, right)
    axes_out: tuple            # (batch, left, right) -> the result
    axes_memory: tuple         # memory -> the result
    groups: tuple | None       # memory with left and right as one group each; None if their letters are not neighbours
    axes_groups: tuple         # groups -> (batch, left, right), a missing group left out


@cache
def plan(spec: str, order: str | None = None) -> Plan:
    """The letters sorted into batch, left, right and inner.  Raises ValueError for a bad spec or order."""
    a, _, rest = spec.partition(",")
    b, arrow, result = rest.partition("->")
    memory = result if order is None else order
    if not arrow or not f"{a}{b}{result}".isalpha():
        raise ValueError(f"contract spec is {spec!r}; allowed: letters in the form 'ab,bc->ac'")
    for letters in (a, b, result):
        if len(set(letters)) != len(letters):
            raise ValueError(f"contract spec is {spec!r}; allowed: different letters in {letters!r}")
    if sorted(memory) != sorted(result):
        raise ValueError(f"contract order is {memory!r}; allowed: the letters of the result, {result!r}")
    for x in {*a, *b, *result}:
        if (x in a) + (x in b) + (x in result) < 2:
            raise ValueError(f"contract spec is {spec!r}; allowed: a letter {x!r} in two or three of the three places")
    batch = "".join(x for x in memory if x in a and x in b)
    left = "".join(x for x in memory if x not in b)
    right = "".join(x for x in memory if x not in a)
    inner = "".join(x for x in a if x not in result)
    groups, behind = None, left[1:] + right[1:]
    if left in memory and right in memory:          # each as neighbours, for all of which their first letter stands
        groups = tuple(left if x in left else right if x in right else x for x in memory if x not in behind)

    def axes(source, target):
        return tuple(map(source.index, target))

    return Plan(a, b, result, batch, left, right, inner, memory, axes(a, batch + left + inner),
                axes(b, batch + inner + right), axes(batch + left + right, result), axes(memory, result),
                groups, axes(groups, [x for x in (*batch, left, right) if x]) if groups else ())


class Sized(NamedTuple):
    plan: Plan
    a: tuple                   # shape of a as (batch, left, inner), and so on
    b: tuple                   # (batch, inner, right)
    c: tuple                   # (batch, left, right)
    apart: tuple               # the same, left and right not as one axis each
    groups: tuple | None
    memory: tuple
    result: tuple
    pairs: tuple               # memory, then inner: of what is multiplied and not yet summed
    rows: tuple                # the same as (memory, inner)
    spread: tuple              # the axes of a and of b that are there, and shapes that broadcast to `pairs`


@lru_cache(maxsize=4096)
def sized(spec: str, order: str | None, shape_a, shape_b) -> Sized:
    """The plan at some sizes, all that a contraction needs.  Raises ValueError for a bad spec, order or sizes."""
    p = plan(spec, order)
    size = dict(zip(p.a, shape_a, strict=False))
    for letters, shape in (p.a, shape_a), (p.b, shape_b):
        if len(letters) != len(shape):
            raise ValueError(f"contract {spec!r}: {letters!r} is of shape {shape}; allowed: {len(letters)} axes")
    for x, n in zip(p.b, shape_b, strict=True):
        if (m := size.setdefault(x, n)) != n:
            raise ValueError(f"contract {spec!r}: axis {x} is {m} in the first, {n} in the second; allowed: one size")
    pairs = p.memory + p.inner

    def of(*groups):
        return tuple(prod([size[x] for x in group]) for group in groups)

    spread = [([own.index(x) for x in pairs if x in own], [size[x] if x in own else 1 for x in pairs])
              for own in (p.a, p.b)]
    return Sized(p, of(*p.batch, p.left, p.inner), of(*p.batch, p.inner, p.right),
                 of(*p.batch, p.left, p.right), of(*p.batch, *p.left, *p.right), p.groups and of(*p.groups),
                 of(*p.memory), of(*p.result), of(*pairs), of(p.memory, p.inner),
                 tuple(zip(*spread, strict=True)))


def contract(spec: str, a, b, *, order=None, out=None):
    """sum over the letters that stand in both operands and not in the result, of a times b.

    Shapes: as the letters of `spec` say.  `order` sets memory only, never axes: it is the result's letters from slowest
    to fastest, or an array with the result's axes, whose memory order is taken.  Neither need be followed where letters
    of a and of b interleave in it.  The result is copied into `out`, if there is one, and rounded to its dtype.
    Raises ValueError for a bad spec, order, shape of `out` or disagreeing sizes, TypeError for an `out` that cannot
    hold such numbers, as integers cannot hold floats.

    >>> import numpy as np
    >>> contract("qd,kd->qk", np.ones((2, 3)), np.ones((4, 3))).shape
    (2, 4)
    """
    if order is not None and type(order) is not str:
        if order.ndim != len(result := spec.partition("->")[2]):
            raise ValueError(f"contract {spec!r}: order is of shape {order.shape}; allowed: {len(result)} axes")
        strides = dict(zip(result, order.strides, strict=True))
        order = "".join(sorted(strides, key=lambda letter: -strides[letter]))       # from the slowest to the fastest
    xp, n = array_module(a, b), sized(spec, order, a.shape, b.shape)
    if out is not None:
        fitted(out, f"contract {spec!r}: out", n.result)
        xp.copyto(out, contract(spec, a, b, order=order))           # which refuses to cut off fractions
        return out
    p, dtype = n.plan, a.dtype if a.dtype == b.dtype else xp.result_type(a, b)
    if not p.inner:
        return _outer(n, a, b, xp, dtype)
    if not (p.left or p.right):
        return _dots(n, a, b, xp, dtype)
    a, b = a.transpose(p.axes_a).reshape(n.a), b.transpose(p.axes_b).reshape(n.b)
    if n.groups is None:                            # the result's letters interleave
        return (a @ b).reshape(n.apart).transpose(p.axes_out)
    c = xp.empty(n.groups, dtype=dtype)
    xp.matmul(a, b, out=c.transpose(p.axes_groups).reshape(n.c))        # written in place, in any order
    return c.reshape(n.memory).transpose(p.axes_memory)


@lru_cache(maxsize=16)                                      # some are as long as batch times time
def constant(value: float, n: int, dtype, xp):
    """n times the value."""
    return read_only(xp.full(n, value, dtype=dtype))


def _outer(n: Sized, a, b, xp, dtype):
    """A contraction that sums over nothing, as one broadcast multiplication: twice as fast as tiny matrix products."""
    out = xp.multiply(*map(_spread, (a, b), *n.spread), out=xp.empty(n.memory, dtype=dtype))
    return out.transpose(n.plan.axes_memory)


def _dots(n: Sized, a, b, xp, dtype):
    """Dot products of pairs of short rows: one multiplication, and one product with ones; four times faster."""
    c = xp.multiply(*map(_spread, (a, b), *n.spread), out=xp.empty(n.pairs, dtype=dtype))
    c = xp.matmul(c.reshape(n.rows), constant(1, n.rows[1], dtype, xp)).reshape(n.memory)       # axes may be empty
    return c.transpose(n.plan.axes_memory)


def _spread(x, axes, shape):
    """x with its axes in another order, and with axes of size 1."""
    return x.transpose(axes).reshape(shape)


def laid_out_like(x, a):
    """x, which broadcasts against `a`, in the memory order of `a`; numbers and axes are the same.

    A copy, unless x lies in memory in that order already, without gaps.
    Two orders in one elementwise operation cost many times the operation.
    """
    axes = sorted(range(x.ndim), key=a.strides[a.ndim - x.ndim:].__getitem__, reverse=True)
    back = sorted(range(x.ndim), key=axes.__getitem__)
    xp, x = array_module(x), x.transpose(axes)              # x's own: mixed devices are refused, not converted
    if x.size < STRIPED or x.flags.c_contiguous or type(x) is not np.ndarray:
        return xp.asarray(x, order="C").transpose(back)
    y, slow = np.empty(x.shape, dtype=x.dtype), max(range(x.ndim), key=x.strides.__getitem__)
    step = max(1, (x.shape[slow] << 13) // x.size)
    for n in range(0, x.shape[slow], step):         # of x what lies together, and of that strips, stay in the caches
        to, of = (each.swapaxes(0, slow)[n:n + step] for each in (y, x))
        for m in range(0, of.shape[-1], 64):
            to[..., m:m + 64] = of[..., m:m + 64]
    return y.transpose(back)


def multiply_adds(spec: str, *shapes: tuple[int, ...]) -> int:
    """Multiply-add pairs of the contraction: the product of all its letters' sizes.

    >>> multiply_adds("bqhd,bkhd->bhqk", (2, 5, 3, 7), (2, 4, 3, 7))
    840
    """
    return prod(sized(spec, None, *shapes).pairs)


def broadcasts(shape, to) -> bool:
    """Whether an array of this shape broadcasts to the other shape, and does not stretch it."""
    return len(shape) <= len(to) and all(n in (1, m) for n, m in zip(shape[::-1], to[::-1], strict=False))


def agree(**arrays) -> dict[str, int]:
    """Letter -> size, from name=(array, letters) pairs.

    Raises ValueError naming the letter, both sizes and both arrays when they disagree, and for an array of other axes.

    >>> import numpy as np
    >>> agree(q=(np.ones((2, 3)), "qd"), k=(np.ones((4, 3)), "kd"))
    {'q': 2, 'd': 3, 'k': 4}
    """
    size, owner = {}, {}
    for name, (x, letters) in arrays.items():
        if len(letters) != len(x.shape):
            raise ValueError(f"{name} has shape {x.shape}; allowed: {len(letters)} axes ({', '.join(letters)})")
        for letter, n in zip(letters, x.shape, strict=True):
            if (m := size.setdefault(letter, n)) != n:
                raise ValueError(f"axis {letter} is {m} in {owner[letter]} but {n} in {name}; allowed: one size")
            owner.setdefault(letter, name)
    return size
