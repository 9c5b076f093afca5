"""Planted bugs of decoding: file, text, text to put there, sentence."""

KEPT = "attention/kept.py"

ROWS = (
    (KEPT, "k, v = kept.k[:, :kept.length], kept.v[:, :kept.length]",
     "k, v = kept.k[:, :kept.length], kept.v[:, [0, *range(kept.length - 1)]]",
     "the kept values lag one step behind the kept keys"),
    (KEPT, "        old[:, kept.length:stop] = new\n", "        old[:, stop - new.shape[1] - 1:stop - 1] = new\n",
     "new keys and values are written over the last token that is kept"),
    (KEPT, "        if n > 1:  ", "        if n > 9:  ", "tokens that come together see one another's later ones"),
    (KEPT, "            old[:, :kept.length] = full[:, :kept.length]\n", "            old[...] = 0\n",
     "when the room grows, what was kept is lost"),
    (KEPT, "at = range(kept.length - n, kept.length)", "at = range(n)",
     "every new token stands at position 0, so that its rotation is that of the first"),
)
