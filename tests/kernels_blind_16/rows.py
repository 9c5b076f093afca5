"""Right kernels by name, and their mistakes with the lines that were written down before the first run."""

FUNCTIONS = {                  # page: right kernels
    "positions/rotary of x, interleaved": "pairs_gptj pairs_complex pairs_matrices pairs_heads_first pairs_loops "
                                          "pairs_recurrence pairs_rows pairs_in_place pairs_dense",
    "positions/rotary of x, half": "halves_neox halves_complex halves_matrices halves_cache halves_loops "
                                   "halves_recurrence halves_tiles halves_in_place halves_permuted",
}
RIGHT = {f.replace("_", ", ", 1).replace("_", " "): (page, f, {}, {})          # name: page, function, fixed, options
         for page, functions in FUNCTIONS.items() for f in functions.split()}

# right kernel: (what, lines, *patches)
WRONG = {
    "pairs, gptj": [
        ("the base is 500,000", "1 1b", ("10000", "500_000")),
        ("tables stand twice side by side, not repeated", "1 1b",
         ("np.repeat(f(angle), 2, -1)", "np.tile(f(angle), 2)")),
        ("sines and cosines are exchanged", "1 1b", ("(np.sin, np.cos)", "(np.cos, np.sin)")),
        ("o is turned the other way", "1", ("x * cos +", "x * cos -")),
        ("o has the halves turned, with tables of neighbours", "1", ("rotate_every_two(x)", "rotate_half(x)")),
        ("dx is turned forward again", "1b", ("do * cos -", "do * cos +")),
        ("dx lacks the sines", "1b", (" - rotate_every_two(do) * sin", "")),
    ],
    "pairs, complex": [
        ("both are turned the other way", "1 1b", ("1j", "-1j")),
        ("positions are those of heads", "1 1b", ("np.arange(t), theta))[:, None]", "np.arange(h), theta))[None]")),
        ("the exponent is i / d", "1 1b", ("np.arange(0, d, 2)[:d // 2]", "np.arange(d // 2)")),
        ("dx is the conjugate of do turned forward", "1b",
         ("np.ascontiguousarray(do).view(turn.dtype) * turn.conj()",
          "(np.ascontiguousarray(do).view(turn.dtype) * turn).conj()")),
    ],
    "pairs, matrices": [
        ("the base is 1,000", "1 1b", ("10000", "1000")),
    ],
    "pairs, heads first": [
        ("tables are cut one chunk later", "1 1b", ("cos[:t], sin[:t]", "cos[t:2 * t], sin[t:2 * t]")),
        ("o is not transposed back, only reshaped", "1",
         ("return o.transpose(0, 2, 1, 3)", "return o.reshape(x.shape)")),
        ("odd features of o have one sign wrong", "1", ("sin + y[..., 1::2] * cos", "sin - y[..., 1::2] * cos")),
        ("odd features of dx are not turned", "1b", ("g[..., 1::2] * cos - g[..., ::2] * sin", "g[..., 1::2]")),
    ],
    "pairs, loops": [
        ("the last position is not turned", "1 1b", ("range(x.shape[1])", "range(x.shape[1] - 1)")),
        ("the last pair is not turned", "1 1b", ("range(0, d, 2)", "range(0, d - 2, 2)")),
        ("the exponent counts features and doubles them again", "1 1b", ("-i / d", "-2 * i / d")),
        ("angles are in degrees", "1 1b", ("cosine(angle), sine(angle)",
                                           "cosine(angle * np.pi / 180), sine(angle * np.pi / 180)")),
    ],
    "pairs, recurrence": [
        ("positions start at 1", "1 1b", ("np.ones(d // 2, complex)", "step")),
        ("features of a pair are exchanged in o", "1", ("[z.real, z.imag]", "[z.imag, z.real]")),
    ],
    "pairs, rows": [
        ("positions go on over sequences", "1 1b", ("np.tile(np.arange(t), b)", "np.arange(b * t)")),
        ("even and odd features are joined as halves", "1 1b", ("np.stack(turned", "np.concatenate(turned")),
        ("the sign is forgotten for even features of dx", "1b", ("- sign * odd", "- odd")),
    ],
    "pairs, in place": [
        ("even features are overwritten before they are used", "1 1b", ("y[..., ::2].copy()", "y[..., ::2]")),
        ("dx is not turned", "1b", ("(o, sin), (dx, -sin)", "(o, sin),")),
        ("the first head alone is turned", "1 1b", ("(o, sin), (dx, -sin)",
                                                    "(o[:, :, :1], sin), (dx[:, :, :1], -sin)")),
        ("pairs are counted from 1", "1 1b", ("-np.arange(d // 2)", "-np.arange(1, d // 2 + 1)")),
    ],
    "pairs, dense": [
        ("the pairing is that of halves", "1 1b",
         ("r[p, 2 * i:2 * i + 2, 2 * i:2 * i + 2]", "r[p, i::d // 2, i::d // 2]")),
    ],
    "halves, neox": [
        ("the base is 100", "1 1b", ("10000", "100")),
        ("tables are repeated feature by feature", "1 1b",
         ("np.concatenate((freqs, freqs), -1)", "np.repeat(freqs, 2, -1)")),
        ("o has neighbours turned, with tables of halves", "1", ("rotate_half(q)", "rotate_every_two(q)")),
        ("both are turned the other way", "1 1b", ("q * cos +", "q * cos -"), ("g * cos -", "g * cos +")),
        ("dx is not transposed back, only reshaped", "1b", ("dx.swapaxes(1, 2)", "dx.reshape(x.shape)")),
    ],
    "halves, complex": [
        ("the exponent is 2i over d - 2", "1 1b", ("(half) / half", "(half) / (half - 1)")),
        ("o is turned the other way", "1", ("x[..., half:]) * turn", "x[..., half:]) * turn.conj()")),
        ("real and imaginary parts are joined as neighbours", "1 1b",
         ("np.concatenate([y.real, y.imag], -1)", "np.stack([y.real, y.imag], -1).reshape(x.shape)")),
    ],
    "halves, matrices": [
        ("the matrix has no minus", "1 1b", ("[c, -s]", "[c, s]")),
        ("dx has the matrix of the forward", "1b", ("ijtc,bthic->bthjc", "ijtc,bthjc->bthic")),
        ("the base is 500,000", "1 1b", ("10000", "500_000")),
        ("positions start at 1", "1 1b", ("np.arange(t)", "np.arange(1, t + 1)")),
        ("o is divided by the root of d", "1", ("return o.reshape", "return x.dtype.type(d ** -0.5) * o.reshape")),
    ],
    "halves, cache": [
        ("positions go on over sequences", "1 1b",
         ("np.broadcast_to(np.arange(t), (b, t))", "np.arange(b * t).reshape(b, t)")),
        ("the last position has the angles of the one before", "1 1b",
         ("np.arange(t)", "np.minimum(np.arange(t), t - 2)")),
        ("positions are scaled by a quarter", "1 1b", ("np.arange(128)", "np.arange(128) / 4")),
        ("dx has sines and cosines exchanged", "1b",
         ("do * cos - rotate_half(do * sin)", "do * sin - rotate_half(do * cos)")),
    ],
    "halves, loops": [
        ("the first pair alone is turned", "1 1b", ("range(half)", "range(1)")),
        ("the last position is not turned", "1 1b", ("range(x.shape[1])", "range(x.shape[1] - 1)")),
        ("the second half of o takes the first with the other sign", "1", ("s * one + c * two", "c * two - s * one")),
        ("the second half of dx is not turned", "1b", ("c * two - s * one", "two")),
    ],
    "halves, recurrence": [
        ("the sine takes the new cosine", "1 1b",
         ("c, s = c * c1 - s * s1, s * c1 + c * s1", "c = c * c1 - s * s1\n        s = s * c1 + c * s1")),
        ("frequencies are in reverse", "1 1b", ("np.arange(half)", "np.arange(half)[::-1]")),
    ],
    "halves, tiles": [
        ("the last tile is lost", "1 1b", ("range(0, y.shape[1], tile)", "range(0, y.shape[1] - tile, tile)")),
        ("the switch turns the cosine's sign in dx", "1b", ("sin = -sin", "cos = -cos")),
    ],
    "halves, in place": [
        ("the first half of o is overwritten before it is used", "1", ("kept = first.copy()", "kept = first")),
        ("dx is not turned", "1b", ("dkept * cos + dsecond * sin", "dkept"),
         ("dsecond * cos - dkept * sin", "dsecond")),
        ("dx is doubled", "1b", ("return o, dx", "return o, 2 * dx")),
    ],
    "halves, permuted": [
        ("the pairing is that of neighbours", "1 1b", (".reshape(2, d // 2).T.reshape(-1)", "")),
        ("dx is not put back in order", "1b", ("dx[..., order] = g", "dx[:] = g")),
    ],
}
