"""What *Transformer Working Memory …* (R, RegularGPT) says, and what it is held against."""

from ...analysis.regular import pairs
from .evidence import Comparison, Computed, Exact, Side, Statement, sides, statements

GPT, XL = "sliding_dilated", "transformer_xl"
PARITY = {"language": "parity", "attention": GPT, "chunk": 2, "layers": 5, "width": 64, "heads": 8, "train_length": 40,
          "rate": 3e-4, "steps": 2_000}
CHUNK_3 = {**PARITY, "chunk": 3}
# Small networks, chosen on seed 100, which counts for nothing: words of up to 16 symbols, asked about up to 500
READ = {"chunk": 2, "width": 32, "heads": 4, "train_length": 16, "rate": 2e-3, "steps": 1_500, "max_length": 500,
        "stride": 30, "evaluation": 64, "far": 1_000, "attention": GPT}
# Even Pairs to 10 symbols, which a Transformer of two layers learns; asked about up to 100
PAIRS = {"language": "even_pairs", "chunk": 2, "layers": 2, "width": 32, "heads": 4, "train_length": 10, "rate": 1e-3,
         "max_length": 100, "stride": 5, "evaluation": 128, "far": 200, "steps": 1_200}
# PARITY to 8 symbols, of which a Transformer of two layers learns nearly all; chosen on seed 100 too
SUMS = {"language": "parity", "attention": XL, "layers": 2, "width": 32, "heads": 4, "train_length": 8, "rate": 1e-3,
        "max_length": 20, "evaluation": 128, "steps": 20_000}
COST = "pairs of query and key at T = 512, C = 128, K = 5 of those of two layers, whole levels"
LEARNED = "train", "accuracy", 0.99
TEXT = {"text": "tiny_shakespeare.txt", "unit": "characters", "length": 128, "longest": 4096}
GPT_TEXT = {"attention": "regular_gpt", "chunk": 16, "layers": 4}
KERPLE, T5, ALIBI = ({"attention": "softmax", "position": name} for name in ("kerple_log", "t5", "alibi"))
NEW_LEVEL = (16, 2), (8, 4), (32, 8)        # (chunk, how many trained lengths its trained levels can read)
SAME = "less the mean of KERPLE and ALiBi at the same windows"


def languages(measured, better, worse, records=("regular_languages_quick",), **more) -> Comparison:
    """Accuracy on longer words, every length weighing the same."""
    return Comparison(measured, "regular_languages", sides([(better, worse)], "longer", "corrected"), records, "quick",
                      **more)


def read(measured, language, split, metrics, **more) -> Comparison:
    """Numbers read off one trained network."""
    fields = {"language": language, **READ}
    return Comparison(measured, "regular_languages", tuple(tuple(Side(fields, split, metric) for metric in pair)
                      for pair in metrics), ("regular_languages_codes",), "quick", **more)


def text(measured, *rises, beside=(), **more) -> Comparison:
    """How much more the last character of a window costs at some times the trained length, from one to another.

    A rise is (fields, times, longer times).
    """
    def pairs_of(rises):
        return tuple(tuple(Side({**TEXT, **fields}, f"times_{n}", "bits") for n in (longer, times))
                     for fields, times, longer in rises)

    return Comparison(measured, "text", pairs_of(rises), ("text_lengths",), "small", beside=pairs_of(beside), seen=True,
                      **more)


def clusters(language: str, maps: str) -> tuple:
    """Whether the outputs of all levels are one cluster for each map of words, and how many clusters there are."""
    return statements(
        f"Layer outputs cluster by the automaton's maps: {maps}", "R, section 7.3, figure 3",
        read("purity minus that of the same network untrained, words of 500", language, "layer outputs",
             (("purity", "untrained purity"),)),
        read("share of words in which the number of clusters, chosen by silhouette from 2 to 10, is that of the maps, "
             "minus that of the untrained network", language, "layer outputs", (("count", "untrained count"),)))


STATEMENTS = (
    Statement("A two-layer ReLU network multiplies 0/1 matrices", "R, lemma 1, appendix C",
              Exact("outputs", ("lemma_1_is_the_product_of_0_1_matrices",))),
    Statement("Sliding-dilated attention sees exactly its window, and the tree is the last position",
              "R, sections 3.1-3.3, 7.2, figure 1",
              Exact("outputs", ("the_last_position_sees_exactly_the_last_tokens", "the_tree_is_the_last_position"))),
    Statement("Linear recurrences are a parallel scan", "R, section 4, figure 2",
              Exact("outputs", ("the_parallel_scan_is_the_recurrence",))),
    Statement("RegularGPT can compute any finite automaton, at any length", "R, section 7.2",
              Exact("compiled weights against the automaton, completed by what the paper leaves out",
                    ("compiled_automata_are_exact", "compiled_automata_keep_layer_norm"))),
    Statement("RegularGPT beats a vanilla Transformer on longer words", "R, section 5.2, table 1",
              languages("accuracy at 11 to 100 symbols of Even Pairs, of seeds in which both learned the 10 trained "
                        "lengths", {**PAIRS, "attention": GPT}, {**PAIRS, "attention": XL},
                        ("regular_languages_short",), given=LEARNED)),
    Statement("RegularGPT and an RNN do about equally well on longer words", "R, section 5.2, table 1",
              languages("accuracy at 11 to 100 symbols of Even Pairs, the same within 0.02, of seeds in which both "
                        "learned the trained lengths",
                        {**PAIRS, "attention": GPT}, {**PAIRS, "attention": "rnn", "states": 64},
                        ("regular_languages_short",), given=LEARNED, margin=0.02, seen=True)),
    *statements("A chunk of 3 makes PARITY harder than one of 2", "R, section 5.3, table 1",
                languages("accuracy at 41 to 500 symbols of PARITY, 2,000 steps", PARITY, CHUNK_3),
                languages("the same, of seeds in which both learned the trained lengths", PARITY, CHUNK_3,
                          given=LEARNED)),
    *statements("RegularGPT is cheaper than L layers of attention where K < 3.11 L", "R, section 3.4",
                Computed(f"{COST}; C of each query, of T² as in R", lambda: pairs(512, 128, 5) / (2 * 512**2), 1.0),
                Computed(f"{COST}; keys that exist, of a causal layer's",
                         lambda: pairs(512, 128, 5, "mask") / (512 * 513), 1.0)),
    Statement("Modular Arithmetic is too hard for a chunk of 3", "R, section 5.3, table 1", None,
              "1,000,000 steps, 20 core-hours a run"),
    Statement("RegularGPT and an RNN do about equally well on all twelve languages", "R, section 5.2, table 1", None,
              "at the script's steps 8 core-hours for three seeds of eleven languages, Modular Arithmetic 60 more; "
              "what was run is in table-1"),
    Statement("RegularGPT is robust to other probabilities of a 1", "R, section 5.4, table 2",
              read("accuracy on PARITY to 500 symbols at probabilities 0.1, 0.3, 0.7, 0.9 minus that at 0.5, the same "
                   "within 0.01", "parity", "probability",
                   tuple((f"ones {p}", "ones 0.5") for p in (0.1, 0.3, 0.7, 0.9)), margin=0.01)),
    Statement("A Transformer is not robust to them, even at trained lengths, on average", "R, section 5.4, table 2",
              Comparison("accuracy on PARITY to the 8 trained symbols at probability 0.5 minus that at 0.1, 0.3, 0.7, "
                         "0.9, of seeds that learned at least 0.9 of them", "regular_languages",
                         tuple(tuple(Side(SUMS, "probability", f"ones {p}") for p in (0.5, other))
                               for other in (0.1, 0.3, 0.7, 0.9)), ("regular_languages_transformer_codes",), "quick",
                         given=("probability", "ones 0.5", 0.9))),
    *clusters("parity", "PARITY (2 maps)"),
    *clusters("cycle", "Cycle (5 maps)"),
    Statement("The receptive field reaches further back than before training", "R, section 7.4, figure 4a",
              read("the gradient's share of the first half of 500 symbols of PARITY, minus that in the untrained "
                   "network", "parity", "receptive field", (("first half", "untrained first half"),))),
    Statement("The receptive field is a straight line", "R, section 7.4, figure 4a",
              read("the gradient's share of the first half of 500 symbols of PARITY minus one half, the same within "
                   "0.1", "parity", "receptive field", (("first half", "one half"),), margin=0.1)),
    Statement("Trained on text, RegularGPT looks at a local window", "R, section 7.4, figure 4b",
              Comparison("the gradient's share of the last 32 of 256 characters, minus that in the untrained network, "
                         "chunk 16", "text", (tuple(Side({**TEXT, **GPT_TEXT}, "receptive field", f"{kind}last 32")
                                                    for kind in ("", "untrained ")),), ("text_codes",), "small")),
    Statement("RegularGPT loses where a new level begins", "R, section 6, table 3",
              text("bits for the last character, trained to 128: at 512 minus at 256 with chunk 16, 1,024 minus 512 "
                   f"with 8, 2,048 minus 1,024 with 32, {SAME}",
                   *(({**GPT_TEXT, "chunk": chunk}, n, 2 * n) for chunk, n in NEW_LEVEL),
                   beside=tuple((fields, n, 2 * n) for fields in (KERPLE, ALIBI) for _, n in NEW_LEVEL))),
    Statement("RegularGPT keeps its perplexity up to what its trained levels can read", "R, section 6, table 3",
              text("bits for the last character, trained to 128: at 256 minus at 128 with chunk 16, 512 minus 128 with "
                   f"8, 1,024 minus 128 with 32, {SAME}, the same within 0.05",
                   *(({**GPT_TEXT, "chunk": chunk}, 1, n) for chunk, n in NEW_LEVEL),
                   beside=tuple((fields, 1, n) for fields in (KERPLE, ALIBI) for _, n in NEW_LEVEL), margin=0.05)),
    *(Statement(f"{name} loses less than T5 where texts are longer", "R, table 3",
                text("bits for the last character, 16 minus 1 trained lengths, T5's less its own", (T5, 1, 16),
                     beside=((fields, 1, 16),))) for name, fields in (("KERPLE", KERPLE), ("ALiBi", ALIBI))),
    Statement("More sub-layers predict better", "R, section 6, table 3",
              Comparison("bits a character, 2 sub-layers minus 4, chunk 16, windows of 128", "text",
                         sides([({"layers": 4}, {"layers": 2})], "test", "bits", **TEXT, **GPT_TEXT), ("text_lengths",),
                         "small", less=True, seen=True)),
)
