"""Planted bugs of lemma 1: file, text, text to put there, sentence."""

LEMMA = "automata/lemma_1.py"

ROWS = (
    (LEMMA, "xp.concatenate([a.reshape(-1, n * n), b.reshape(-1, n * n)], axis=1)",
     "xp.concatenate([b.reshape(-1, n * n), a.reshape(-1, n * n)], axis=1)",
     "lemma 1 multiplies B A: the factors are in the wrong order"),
    (LEMMA, "w1[n * n + k * n + j, unit] = 1", "w1[n * n + j * n + k, unit] = 1",
     "lemma 1 takes its right factor transposed"),
    (LEMMA, "w2[unit, unit // n] = 1", "w2[unit, unit % n**2] = 1",
     "the second layer of lemma 1 sums over i instead of k"),
    (LEMMA, "    hidden -= 1  ", "    hidden -= 0.5  ",
     "the threshold of lemma 1 is 1/2, so that a single 1 gets through"),
    (LEMMA, "ops.relu_backward(hidden, dactive)", "ops.relu_backward(hidden + 1, dactive)",
     "the backward of lemma 1 has its kink at 0 instead of 1"),
    (LEMMA, "ops.relu_backward(hidden, dactive)", "dactive", "the gradient passes the relu of lemma 1 unhindered"),
    (LEMMA, "return dx[:, :n * n].reshape(shape), dx[:, n * n:].reshape(shape)",
     "return dx[:, n * n:].reshape(shape), dx[:, :n * n].reshape(shape)",
     "the gradients of the two factors of lemma 1 are exchanged"),
)
