"""A client that is no NumPy: HYLA's forward in Triton, run by its interpreter without a GPU."""

import os

import numpy as np
import pytest

torch = pytest.importorskip("torch")
os.environ["TRITON_INTERPRET"] = "1"                   # read when triton is imported
pytest.importorskip("triton")

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from refattn import check  # noqa: E402

SIZES = {"b": 2, "q": 5, "k": 8, "h": 4, "d": 16, "e": 32}


@triton.jit
def hyla(q, k, v, o, H: tl.constexpr, K: tl.constexpr, D: tl.constexpr, E: tl.constexpr, MEAN: tl.constexpr,
         TILE: tl.constexpr):
    """One program for one query of one sequence; keys in tiles."""
    row, sequence = tl.program_id(0), tl.program_id(1)
    queries = tl.num_programs(0)
    h, d, e = tl.arange(0, H), tl.arange(0, D), tl.arange(0, E)
    one = (sequence * queries + row) * H * D
    qs = tl.load(q + one + h[:, None] * D + d[None, :])
    total = tl.zeros((H, E), dtype=tl.float32)
    for start in range(0, K, TILE):
        n = sequence * K + start + tl.arange(0, TILE)
        ks = tl.load(k + (n[:, None, None] * H + h[None, :, None]) * D + d[None, None, :])
        vs = tl.load(v + (n[:, None, None] * H + h[None, :, None]) * E + e[None, None, :])
        s = tl.sum(ks * qs[None, :, :], axis=2) / tl.sqrt(D * 1.0)
        a = s / tl.sqrt(tl.sum(s * s, axis=1) / MEAN + 1e-6)[:, None]
        z = tl.maximum(tl.sum(a[:, :, None] * vs, axis=1), 0.0)
        total += tl.sum(a[:, :, None] * z[:, None, :], axis=0)
    tl.store(o + (sequence * queries + row) * H * E + h[:, None] * E + e[None, :], total)


def kernel(mean=None):
    def run(q, k, v, do):
        (b, n, heads, d), (_, keys, _, e) = q.shape, v.shape
        o = torch.empty(b, n, heads, e)
        given = [torch.from_numpy(np.ascontiguousarray(x)) for x in (q, k, v)]
        hyla[(n, b)](*given, o, heads, keys, d, e, mean or heads, 4)
        return o
    return run


def test_a_triton_kernel_is_right_and_its_mistake_is_found():
    assert check.compare(kernel(), "hyla", sizes=SIZES).ok
    found = check.diagnose(kernel(mean=1), "hyla", sizes=SIZES)
    assert found.lines == ("forward (3)",) and "sum over h in place of mean over h" in str(found), str(found)
