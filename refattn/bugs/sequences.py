"""Planted bugs of decoding and of SCAN: file, text, text to put there, sentence."""

KEPT, SCAN = "attention/kept.py", "tasks/scan.py"

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
    (SCAN, "= second + first", "= first + second", "after is done in the order of speaking"),
    (SCAN, "(turn, turn, *does)", "(turn, *does, turn, *does)", "opposite turns, acts, turns and acts again"),
    (SCAN, "(turn, *does) * 4", "(*does, turn) * 4", "around acts before it turns"),
    (SCAN, "pool = np.flatnonzero(length <= cutoff)", "pool = np.flatnonzero(length + 1 <= cutoff)",
     "the end counts as an action at the cut-off"),
    (SCAN, "int(len(pool) * (1 - 0.9))", "len(pool) // 10", "a tenth is held out, not a bit less than a tenth"),
    (SCAN, "beyond = np.arange(width) > ", "beyond = np.arange(width) >= ",
     "an answer may go on where it should have ended"),
)
