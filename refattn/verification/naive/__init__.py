"""The definitions as loops: what each function of the library means, and what the tests hold it against.

Nothing here is fast, nothing here is shared with the library, and nothing imports more than NumPy.  Each module has
the name of its twin, each function takes the same arrays and returns the output alone, without what a backward would
need.  Sums run over Python loops, one (batch, head, query, key) at a time, as the formula is printed; sizes of 2 to 7
are meant.  Everything is computed in float64, or in complex128 where the input is complex, so that the complex step
f(x + 1e-30i).imag / 1e-30 turns each definition into its own derivative.

Letters: b batch, h head, q or i the position of a query, k or j that of a key, t any position, m model width, d query
and key feature, e value feature, f hidden, w distance bucket or offset, l layer; in a layer's x also i, what comes in.
"""
