"""refattn: attention, forward and backward by hand, in NumPy and CuPy.

One word finds everything: `refattn.attention.hyla` is the page of HYLA (equation, forward, backward),
`refattn.verification.naive.hyla` its definition as loops, `tests/test_hyla.py` its test, `tutorials/03_hyla.py` its
story.

Axes: b batch, t position, q query, k key, m model width, h head, d query/key feature, e value feature, s search,
r retrieval, c selector feature, w offset in a window or bucket, f hidden, v vocabulary, l layer, n state, x expert;
i, o inputs and outputs; of images g, j row and column of a pixel or window, u, w those in a window.
"""

__version__ = "0.2.0"
__all__ = ["load"]


def __getattr__(name):
    if name == "load":                      # imported on first use, so that this import is free
        from .train import load
        return load
    raise AttributeError(f"module 'refattn' has no attribute {name!r}")
