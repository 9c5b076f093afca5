"""Published figures and tables of language models, on corpora that are at hand: only an order can be compared."""

from collections.abc import Iterator
from math import sqrt

from .codes import LAST
from .published import FIGURE_7, TABLE_3
from .table import PAPERS, Column, Row, Table

CHARACTERS = {"text": "tiny_shakespeare.txt", "unit": "characters"}
WORDS = {"text": "wikitext2_valid.txt", "test": "wikitext2_test.txt", "unit": "words"}
CORPORA: dict[str, dict] = {"characters": {**CHARACTERS, "rate": 3e-3}, "words": {**WORDS, "rate": 1e-3}}
COLUMNS = (Column("test perplexity", "test", "perplexity"), Column("test bits", "test", "bits"),
           Column("validation bits", "validation", "bits"))
OTHER = ("Characters of tiny Shakespeare; words of WikiText-2, trained on its validation file and tested on its test "
         "file, since its training file is not at hand: small corpora, which the papers do not use.",
         "Everything is float32; the papers trained in mixed or half precision, or bfloat16.")

FIGURE_6 = Table(
    "figure-6", "Figure 6 of H, language modelling: attention variants at equal parameters",
    f"{PAPERS['H']}, figure 6: curves without numbers, C4, 50M parameters", "text", COLUMNS,
    tuple(Row(f"{unit}: {attention}", {**fields, "attention": attention, "shared": False, "position": "learned"})
          for unit, fields in CORPORA.items() for attention in ("softmax", "linear", "hyla", "compositional")),
    ("text_models",), default_scale="small", units=True, remarks=(
        *OTHER, "Rates are those of 0.001 and 0.003 that validation chose: 0.003 for characters, 0.001 for words."))

FIGURE_7_OF_C = Table(
    "figure-7", "Figure 7 of C, language modelling: one block applied again and again",
    f"{PAPERS['C']}, section 4.7: WikiText-103, mean, standard error if ± is the deviation over the code's 3 seeds",
    "text", COLUMNS, tuple(Row(name, {**WORDS, "attention": name, "shared": True}, ((mean, round(sd / sqrt(3), 2)),))
                           for name, (mean, sd) in FIGURE_7.items()),
    ("text_shared",), "paper_c", digits=2, default_scale="small", remarks=OTHER)

TIMES = 1, 2, 4, 8, 16, 32


def length_rows() -> Iterator[Row]:
    """The paper's rows, then RegularGPT with chunks for shorter windows, and baselines with other positions."""
    for label, (fields, figures) in TABLE_3.items():
        yield Row(label, {**CHARACTERS, **fields}, tuple((figure, None) for figure in figures))
    for chunk, n in (8, 4), (16, 2), (16, 4), (32, 4):
        yield Row(f"RegularGPT, chunk {chunk}, {n} sub-layers",
                  {**CHARACTERS, "attention": "regular_gpt", "chunk": chunk, "layers": n})
    for label, position in ("KERPLE, power", "kerple_power"), ("rotary", "rotary"), ("sinusoidal", "interleaved"):
        yield Row(label, {**CHARACTERS, "attention": "softmax", "position": position})


TABLE_3_OF_R = Table(
    "table-3", "Table 3 of R, language modelling beyond the training length: perplexity of the last token",
    f"{PAPERS['R']}, table 3: OpenWebText2, trained at 512 tokens, mean of 3 seeds", "text",
    tuple(Column(f"{n} x", f"times_{n}", "perplexity") for n in TIMES), tuple(length_rows()), ("text_lengths",),
    "paper_r", digits=2, default_scale="lengths", axes=("trained lengths", "perplexity of the last token"),
    remarks=(OTHER[1], "Multiples are of the training length; ours are perplexities of characters, so only the order "
             "and the growth can be compared."))

FIGURE_4B = Table(
    "figure-4b", "Figure 4b of R, language modelling: the share of the gradient that the last tokens get",
    f"{PAPERS['R']}, figure 4b: a curve without numbers", "text",
    tuple(Column(str(n), "receptive field", f"last {n}") for n in LAST),
    tuple(row._replace(paper=()) for row in TABLE_3_OF_R.rows if row.fields.get("layers", 4) == 4),
    ("text_codes",), "paper_r", default_scale="lengths", axes=("last tokens", "share of the gradient"),
    remarks=("Of the loss of a window's last token, by each embedding; windows of twice the trained length.",))
