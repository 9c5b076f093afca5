"""Chi et al. 2023, RegularGPT: tables 1 to 3.  Accuracies are fractions; the tables have per cent."""

from .source import Published

MODELS = ("rnn", None), ("transformer_xl", None), ("sliding_dilated", 2), ("sliding_dilated", 3)   # attention, chunk


def _languages(text: str) -> dict:
    rows = {}
    for line in text.strip().splitlines():
        language, *figures = line.split()
        pairs = [tuple(round(float(x) / 100, 6) for x in figure.split("/")) for figure in figures]
        rows[language] = dict(zip(MODELS, pairs, strict=True))
    return rows


# language -> {(attention, chunk): (maximum, average)} of the mean accuracy over lengths 41 to 500 after training up to
# 40 (the first four), or 51 to 100 after training up to 50 (the others).
TABLE_1 = _languages("""
    even_pairs          100/100   99.7/73.2  100/89.3   100/96.6
    modular_arithmetic  100/100   21.9/20.3  96.4/82.6  21.2/20.5
    parity              100/98.9  52.3/50.1  100/100    100/88.7
    cycle               100/100   21.7/20.6  100/100    100/78.6
    d2                  100/100   100/80.1   100/100    99.8/96.5
    d3                  100/100   100/77.8   100/99.7   98.6/93.0
    d4                  100/100   100/82.6   100/98.7   97.7/91.6
    d12                 100/100   100/80.3   100/99.8   94.1/90.4
    tomita3             100/100   100/94.4   100/99.7   100/99.9
    tomita4             100/100   100/70.0   100/99.8   100/99.3
    tomita5             100/100   74.5/74.5  100/99.8   98.2/84.1
    tomita6             100/100   50.0/50.0  100/98.5   100/65.7
""")

# PARITY, probability of a 1 -> {attention: (accuracy at the "same length", 40, and at 41 to 500)}, mean of 3 seeds.
TABLE_2 = {p: {"sliding_dilated": (1.0, 1.0), "rnn": (1.0, 1.0), "transformer_xl": (same, longer)}
           for p, same, longer in ((0.1, 0.984, 0.501), (0.3, 0.998, 0.497), (0.5, 0.996, 0.503), (0.7, 0.978, 0.499),
                                   (0.9, 0.772, 0.500))}

# Label -> (fields of the recipe, perplexities at 1, 2, 4, 8 and 16 times the training length of 512).
TABLE_3: dict[str, tuple] = {
    "KERPLE": ({"attention": "softmax", "position": "kerple_log"}, (24.71, 24.42, 24.21, 24.53, 24.74)),
    "T5": ({"attention": "softmax", "position": "t5"}, (24.50, 24.38, 25.01, 28.91, 39.08)),
    "ALiBi": ({"attention": "softmax", "position": "alibi"}, (24.53, 24.90, 25.08, 25.08, 25.08)),
    **{f"RegularGPT, chunk {chunk}, {layers} sub-layers": (
        {"attention": "regular_gpt", "chunk": chunk, "layers": layers}, figures) for chunk, layers, figures in (
            (32, 6, (32.06, 32.03, 791.74, 812.00, 818.49)), (64, 6, (30.17, 30.30, 30.56, 30.80, 1175.91)),
            (128, 6, (28.80, 28.94, 29.14, 29.25, 29.41)), (128, 12, (26.37, 26.91, 27.08, 27.28, 27.39)),
            (256, 6, (27.90, 34.38, 34.85, 35.11, 35.42)))},
}


def regular_languages(x: dict) -> Published:
    """Table 1 for the language and chunk of these fields: the average; the maxima are in TABLE_1."""
    row = TABLE_1.get(x["language"], {})
    figures = {attention: (figure[1], None) for (attention, size), figure in row.items() if size in (None, x["chunk"])}
    lengths = "41 to 500" if x["language"] in list(TABLE_1)[:4] else "51 to 100"
    return Published("longer words", f"Chi et al. 2023, table 1: accuracy at {lengths} symbols, average over 3 seeds "
                     "(and learning rates, as far as is known), 100,000 steps", figures, ("language", "chunk"))
