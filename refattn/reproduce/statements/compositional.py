"""What *Compositional Attention* (C) says, and what it is held against."""

from functools import partial

from ...analysis.complexity import lines
from ...params import count
from ...recipes import recipe
from ...recipes.multitask_images import COLUMNS
from ...tasks.esbn import TASKS
from ..language import CORPORA
from ..published import TABLE_6
from .evidence import Comparison, Computed, Exact, Side, Statement, sides, statements, text

OURS = (("compositional", "softmax"),)
QUICK, CODES = ("contextual_retrieval_quick",), ("contextual_retrieval_codes",)
SMALL = "width 32, 5,000 steps"


def retrieval(measured, split, held_out, at=None) -> Comparison:
    """The loss of compositional attention and of softmax attention with 4 heads; small, seeds 10 to 17."""
    pairs = sides(OURS, split, "loss", at, held_out=held_out, scoring="dot")
    return Comparison(f"{measured}, {SMALL}", "contextual_retrieval", pairs, QUICK, "quick", less=True)


def released(measured, split, held_out) -> Comparison:
    """The same at the paper's scale; 100,000 steps are the code's, the paper names none."""
    return Comparison(f"{measured}, width 64, the released code's 100,000 steps", "contextual_retrieval", sides(
        OURS, split, "loss", held_out=held_out), ("contextual_retrieval_2s4r_64",), "paper", less=True)


def read(measured, split, metric, other, seen=False) -> Comparison:
    """Two numbers that are read off one trained network."""
    side = Side({"attention": "compositional", "held_out": True}, split, metric)
    return Comparison(f"{measured}, {SMALL}", "contextual_retrieval", ((side, side._replace(metric=other)),), CODES,
                      "quick", seen=seen)


def esbn(measured, *cells: tuple, beside: tuple = ()) -> Comparison:
    """ESBN's four tasks: (m objects kept for the test, numbers of retrievals ...), beside softmax attention."""
    def pairs_of(cells):
        models = [(m, {"attention": "compositional", "retrievals": r}) for m, *retrievals in cells for r in retrievals]
        return tuple(pair for m, ours in models for problem in TASKS for pair in sides(
            [(ours, "softmax")], "held_out", "accuracy", problem=problem, hold_out=m))

    return Comparison(measured, "esbn", pairs_of(cells), ("esbn",), "paper", seen=True, beside=pairs_of(beside))


def scan(measured, *models, record="scan_10000", scale="fifth") -> Comparison:
    """Commands beyond the cut-off that are said rightly: models, (scoring, retrievals), beside softmax attention."""
    pairs = sides([({"attention": "compositional", "scoring": scoring, "retrievals": r}, "softmax")
                   for scoring, r in models], "longer", "accuracy", cutoff=26)
    return Comparison(measured, "scan", pairs, (record,), scale, seen=scale == "fifth")


def parameters_apart() -> float:
    """The largest relative difference of the parameters of the two models, over the cells of table 6."""
    def counted(attention, s, r, m):
        return count(recipe("contextual_retrieval", f"{s}s{r}r-{m}", attention=attention).build().parameters())

    pairs = [[counted(attention, *cell) for attention in OURS[0]] for cell in TABLE_6]
    return max(abs(ours - theirs) / theirs for ours, theirs in pairs)


def products_apart(left_out=(), printed=False) -> float:
    """The largest relative difference of a block's multiply-adds: triangles, 1, 2, 4 retrievals beside 4 heads.

    printed : the key map is applied to every retrieval, as eq. (11) has it, and not moved into the selector

    A block has 257 tokens, 256 patches and the class token.
    """
    def block(keys=1, **fields):
        own = recipe("triangles", "paper", **fields).build().stack.block
        attention = sum(n * (keys if name == "key map" else 1) for name, n in lines(own.attention, 1, 257).items()
                        if name not in left_out)
        return attention + 257 * 2 * own.feed_forward.width * own.feed_forward.hidden

    theirs = block(attention="softmax")
    return max(abs(block(r if printed else 1, attention="compositional", retrievals=r) / theirs - 1) for r in (1, 2, 4))


# 2 searches and 4 retrievals beside softmax attention's heads; tasks and widths beside 4 heads
HEADS = sides([({"attention": "compositional", "searches": 2, "retrievals": 4}, {"attention": "softmax", "heads": n})
               for n in (2, 4, 8)], "held_out", "loss", held_out=True)
SIZES = tuple(pair for s, r, m, n in ((2, 4, 32, 5_000), (2, 4, 64, 5_000), (4, 8, 64, 20_000), (4, 16, 64, 20_000))
              for pair in sides(OURS, "held_out", "loss", held_out=True, scoring="dot", searches=s, retrievals=r,
                                width=m, steps=n))
CLEVR = tuple(pair for kind in ("unary", "binary", "ternary") for pair in sides(OURS, "chosen", kind, width=32))
BLOCK = "largest difference of a block for triangles, between 1, 2, 4 retrievals and 4 heads"
OF_SCORES = "scores", "mixtures", "value logits", "instantiation"      # products of a block without weights
FOUR = tuple(pair for name in COLUMNS for pair in sides(OURS, "test", name, first="shapes"))

STATEMENTS = (
    Statement("Multi-head attention is one rigid pairing of searches and retrievals", "C, sections 2.2, 2.3, eq. 6",
              Exact("outputs", ("multi_head_attention_is_compositional",
                                "a_fixed_pairing_is_a_multi_head_attention_with_copies"))),
    Statement("Retrieval scores depend on the query, with MLP scoring too", "C, appendix B.7",
              Exact("with one linear map, as in B.7 and released, the query cancels in the softmax",
                    ("linear_scoring_cannot_see_the_query",), refutes=True)),
    *statements("Compositional attention is better on held-out pairings", "C, section 4.1, table 6, figures 3, 9",
                released("held-out loss, beside 4 heads", "held_out", True),
                retrieval("held-out loss, beside 4 heads, seeds from 10 on", "held_out", True),
                retrieval("held-out loss, beside 4 heads, earlier seeds, Haswell kernels", "held_out", True)._replace(
                    records=("contextual_retrieval_separation",), seen=True)),
    Statement("Compositional attention generalises better, training loss being equal", "C, section 4.1",
              retrieval("held-out loss where the training loss first is at most 0.57", "held_out", True,
                        ("train.loss", 0.57))),
    *statements("Compositional attention is better in-distribution", "C, section 4.1, table 6, figure 8",
                released("loss, beside 4 heads", "train", False),
                retrieval("loss, beside 4 heads", "train", False)),
    Statement("Compositional attention is ahead at half of the steps", "C, appendix C.1, figure 10",
              retrieval("training loss at step 2,600, on all tuples", "train", False, ("step", 2600))),
    Statement("Retrievals specialise", "C, section 4.1, appendix C.1, figures 5, 11",
              read("value score of the retrieval asked for, minus that of the untrained network", "specialisation",
                   "trained", "untrained")),
    Statement("Pairings are specific to what is asked, and average out over all", "C, section 4.1, figure 4",
              read("spread of the pairing over retrievals given what is asked, minus that over all tuples", "pairing",
                   "asked", "all", seen=True)),
    Statement("Compositional attention is better, on average over numbers of heads", "C, figures 8, 9, table 6",
              Comparison(f"held-out loss, beside 2, 4 and 8 heads, {SMALL}", "contextual_retrieval", HEADS,
                         (*QUICK, "contextual_retrieval_heads"), "quick", less=True, seen=True)),
    Statement("Compositional attention is better, on average over sizes of task and width", "C, figures 8, 9, table 6",
              Comparison("held-out loss, beside 4 heads, mean of four sizes, 5,000 steps of 2 searches and 4 "
                         "retrievals, 20,000 of more", "contextual_retrieval", SIZES,
                         (*QUICK, "contextual_retrieval_width_64", "contextual_retrieval_sizes"), "quick", less=True,
                         seen=True)),
    Statement("Compositional attention is better with fewer retrievals than heads", "C, section 4, appendix B.7",
              esbn("accuracy, mean of ESBN's four tasks, m = 95 and 50: 1 and 4 retrievals, beside 8 heads",
                   (95, 1, 4), (50, 1, 4))),
    Statement("Compositional attention is better on Sort-of-CLEVR, on average over types", "C, appendix C.2, table 7",
              Comparison("accuracy, mean of the three types, width 32", "sort_of_clevr", CLEVR, ("sort_of_clevr",),
                         "small")),
    Statement("Compositional attention is better on equilateral triangles", "C, section 4.3, table 3",
              Comparison("test accuracy, 32 x 32 pixels", "triangles", sides(OURS, "test", "accuracy"), ("triangles",),
                         "small")),
    Statement("Compositional attention is better on four sets of images at a time", "C, section 4.4, table 2",
              Comparison("test accuracy, mean of triangles and of shapes, gratings and digits in place of CIFAR-10, "
                         "Fashion-MNIST and SVHN, 4,000 steps", "multitask_images", FOUR, ("multitask_images",),
                         "quick")),
    *statements("Compositional attention is better on objects never seen (ESBN), on average over tasks",
                "C, section 4.5, figure 6",
                esbn("accuracy, mean of four tasks and of 1, 4 and 8 retrievals, m = 95", (95, 1, 4, 8)),
                esbn("accuracy, mean of four tasks and of 1 and 4 retrievals, m = 50", (50, 1, 4))),
    Statement("The more objects are held out, the larger its lead (ESBN)", "C, section 4.5, figure 6",
              esbn("its lead at m = 95 minus that at m = 50, mean of four tasks and of 1 and 4 retrievals", (95, 1, 4),
                   beside=((50, 1, 4),))),
    *statements("Compositional attention is better on longer commands (SCAN, cut-off 26)", "C, section 4.6, table 4",
                scan("whole commands, linear scoring with 1 and 2 retrievals, dot with 2, 10,000 steps",
                     ("linear", 1), ("linear", 2), ("dot", 2)),
                scan("whole commands, linear scoring with 2 retrievals, width 64, 2 layers, 2,000 steps",
                     ("linear", 2), record="scan_quick", scale="quick")),
    Statement("Compositional attention is better with MLP scoring too", "C, appendices B.7, C.3",
              scan("whole commands of SCAN (C: triangles, Sort-of-CLEVR), cut-off 26, linear scoring, 10,000 steps",
                   ("linear", 1), ("linear", 2))),
    *statements("Compositional attention predicts text better", "C, section 4.7, figure 7",
                *(text(OURS[0], unit, ", no layers shared") for unit in CORPORA),
                text(OURS[0], "words", ", one block again and again, as the paper's", record="text_shared",
                     shared=True)),
    Statement("Compared models have parameters within about 5 %", "C, appendix B.5",
              Computed("largest difference of the cells of table 6, between compositional attention and 4 heads",
                       parameters_apart, 0.05)),
    *statements("Compared models have multiply-adds within about 10 %", "C, appendix B.5",
                Computed(f"{BLOCK}; all products", products_apart, 0.1),
                Computed(f"{BLOCK}; products with weights, key map in the selector",
                         partial(products_apart, OF_SCORES), 0.1),
                Computed(f"{BLOCK}; products with weights, a key for each retrieval (eq. 11)",
                         partial(products_apart, OF_SCORES, printed=True), 0.1)),
)
