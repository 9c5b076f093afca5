"""Every planted bug in a page, an operation, a loss or a layer that is searched is located where it was planted.

The line is read from the source: the tag of the changed line.  A function without tags belongs to the lines that call
it: WHERE says which.  `python -m tests.test_located [FIRST EVERY]` prints what is said of each.
"""

import re
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import refattn
from refattn import check

from . import planted
from .test_diagnose import everything

ROOT = Path(refattn.__file__).parent
SUBJECTS = {                   # file -> what is diagnosed, until something is wrong
    "attention/softmax.py": ["softmax"], "attention/linear.py": ["linear"], "attention/hyla.py": ["hyla"],
    "attention/ablations.py": ["hyla_and_softmax", "linear_rms_head_relu_values", "hyla_deep"],
    "attention/compositional.py": ["compositional", "layers/Compositional dot", "layers/Compositional dot across"],
    "attention/value_scores.py": ["compositional", "compositional_linear", "compositional_nonlinear"],
    "attention/sliding_dilated.py": ["sliding_dilated", "layers/SlidingDilated pad"],
    "attention/windows.py": ["sliding_dilated", "sliding_dilated_pad"],
    "attention/layer.py": ["layers/MultiHead hyla"],
    "attention/projections.py": ["layers/MultiHead hyla", "layers/MultiHead softmax across",
                                 "layers/MultiHead softmax read"],
    "layers/positions.py": ["positions/T5", "layers/MultiHead softmax rotary", "layers/MultiHead hyla rotary read"],
    "layers/text_positions.py": ["layers/MultiHead softmax, ALiBi", "layers/MultiHead linear, ALiBi",
                                 "layers/MultiHead softmax, Kerple log", "layers/MultiHead hyla, Kerple power",
                                 "layers/LearnedTable"],
    "layers/convolution.py": ["layers/Conv of overlapping windows"],
    "layers/block.py": ["layers/Block none", "layers/Block post", "layers/Block pre, across",
                        "layers/Block post, across, read"],
    "layers/feed_forward.py": ["layers/FeedForward gelu", "layers/SwiGLU"],
    "attention/as_hypernetwork.py": ["attention/generated weights", "attention/generated nonlinear network"],
    "layers/mixture_of_experts.py": ["layers/MixtureOfExperts, 2 of 5"],
    "layers/next_token.py": ["layers/next_token, 4 at a time", "layers/next_token, all at a time"],
    "losses.py": ["losses/mse", "losses/mean_absolute_error", "losses/sigmoid_mse", "losses/binary_cross_entropy",
                  "losses/cross_entropy"],
    "ops.py": ["softmax", "hyla", "ops/layer_norm", "ops/gelu", "ops/embedding", "ops/embedding in a large table",
               "ops/linear"],
}
WHERE = {                      # function, or the beginning of a sentence -> lines
    "scores": "forward (1)", "scores_backward": "backward (1)", "unbroadcast": "backward (1)",
    "rms_head": "forward (3)", "rms_head_backward": "backward (3)", "ops.py softmax": "forward (2)",
    "relu_backward": "backward (6)", "embedding_backward": "backward (1)", "linear_backward": "backward (1)",
    "LayerNorm's epsilon": "forward (1)", "LayerNorm's variance": "forward (1)", "LayerNorm's backward": "backward (1)",
    "GELU's slope": "backward (1)", "GELU is": "forward (2)", "the gradient of b1": "backward (1)",
    "windows": "forward (1) forward (6)", "present": "forward (4)", "products": "forward (1) backward (6)",
    "mixtures": "forward (6) backward (1)", "scattered": "backward (6) backward (1)",
    "keep is forgotten": "forward (4)",
    "RMSHead's epsilon is missing": "forward (3)", "softmax and RMSHead are": "forward (2)",
    "largest": "forward (2)", "the gradient of x lacks what": "backward (1)", "the gate is not": "backward (1)",
    "the gradient of the mean square lacks": "backward (2)",
    "the gradient of the cross-entropy": "backward (1) backward (3)",
    "a weighted cross-entropy": "forward (3)", "the gradient of the mean square of sigmoids": "backward (1)",
    "the mean square of sigmoids": "forward (3)", "binary cross-entropy lacks": "forward (2)",
    "the weights of binary cross-entropy": "forward (3)",
    "the normaliser's steps": "backward (2)", "out": "forward (out)", "mapped_backward": "backward (in)",
    "project_backward": "backward (in)", "the selector is made": "forward (in)", "x lacks": "backward (in)",
    "the output map's": "backward (out)", "the pad lacks": "backward (in)", "the maps of keys": "backward (in)",
    "T5's": "forward (1)", "of all pairs in a T5": "backward (1)", "rotary's backward": "backward (position)",
    "rotary": "forward (position)", "heads beyond": "forward (position)", "biases by": "forward (position)",
    "the bias by": "forward (position)", "KERPLE's a": "backward (position)", "KERPLE's power": "forward (position)",
    "the queries' part": "backward (in)", "the learned table's": "backward (1)", "patches": "forward (1) forward (2)",
    "the gradient of a pixel": "backward (1) backward (2)", "a pixel has": "backward (1) backward (2)",
    "cross-attention": "forward (2)", "a query that is read": "forward (2)",
    "forward (1)": "forward (5)", "forward (2)": "forward (5)", "forward (3)": "forward (5)",   # of value_scores.py
    "backward (1)": "backward (5)", "backward (2)": "backward (5)", "backward (3)": "backward (5)"}
UNSEEN = {                     # no wrong number in float64, or not in a kernel, or shapes that disagree wherever asked
    "the halves of a window are swapped: offset 0 is the farthest key instead of the query's own",
    "1/sqrt(d) is a NumPy float64, which makes float32 scores float64", "q is scaled in the caller's array",
    "the softmax does not subtract the maximum, so large scores overflow", "of equal logits more than k are chosen",
    "the softmax puts all results of one shape into the same array", "a score of exactly 0 is taken for a masked one",
    "an array of NumPy is mixed in, whatever the module of the others is",
    "LayerNorm's variance is E[x^2] - E[x]^2, which cancels when the mean is large",
    "the relu's backward writes into the upstream gradient", "the backward overwrites the saved code",
    "rows are read in memory order, whatever the axes are", "the gradient of bo is overwritten, not added",
    "the gradient of w1 is overwritten, not added", "the gradient passes the dropout of hidden features as if it were "
    "not there", "tokens that are added to a state are turned as if they were the first",
    "the state stops after the first piece",
    "an offset bias of exactly 0 is taken for a mask, as in the released code",
    "the selector is made from the context instead of the query's token",
    "T5's buckets tell keys after the query apart, which the released code does not",
    "the table of the image tasks counts pairs of features instead of features",
    "the language model's positions begin at 0 instead of 2",
    "while decoding, cross-attention sees the paddings of the source",
    "while decoding, a new token has the biases of the first one",
    "cross-attention looks at the target's own tokens instead of the source"}
BUGS = [bug for bug in planted.BUGS if bug.file in SUBJECTS and bug.sentence not in UNSEEN]


def place(bug) -> str:
    """Where it was planted: "forward (3)", or several."""
    source = (ROOT / bug.file).read_text()
    at = source.index(bug.old)
    changed = source[source.rfind("\n", 0, at) + 1:source.find("\n", at + len(bug.old))]
    function = ["", *re.findall(r"^ *def (\w+)", source[:at], re.MULTILINE)][-1]
    tags = re.findall(r"# \((\d+)\)", changed)
    if tags and not bug.file.endswith("positions.py"):
        found = f"{'backward' if function.endswith('backward') else 'forward'} ({tags[-1]})"
        return WHERE[found] if bug.file.endswith("value_scores.py") else found
    words = [w for w in WHERE if bug.sentence.startswith(w) or w in (function, f"{bug.file} {function}")]
    return WHERE[words[0]]


def diagnosed(bug):
    """The diagnosis of the first subject in which the bug changes something."""
    subjects = import_module(f"{planted.load(bug).__name__}.check.subjects")
    for name in SUBJECTS[bug.file]:
        of = subjects.subject(name)

        def kernel(*arrays, of=of, **options):
            with np.errstate(all="ignore"):                     # 0 / 0, say, which is the bug
                return of.run(dict(zip(of.arrays, arrays, strict=True)) | options)
        whole = everything(name)
        for options in ({},) if "/" in name else (whole, whole | {"bias": f"1{whole['bias'][1:]}"}):
            try:
                found = check.diagnose(kernel, name, dtype="float64", **options)
            except ValueError:                                  # the bug makes shapes disagree
                continue
            if not found.comparison.ok:
                return name, found
    raise AssertionError(f"nothing is wrong with {', '.join(SUBJECTS[bug.file])}: {bug.sentence}")


def located(bug, found) -> bool:
    """Whether the line is among those named, three at most."""
    return len(found.lines) <= 3 and any(line in place(bug) for line in found.lines)


@pytest.mark.parametrize("bug", BUGS[::20], ids=lambda bug: bug.sentence)
def test_some_planted_bugs_are_located(bug):
    found = diagnosed(bug)[1]
    assert located(bug, found), found


@pytest.mark.long
def test_planted_bugs_are_located():
    missed = [bug.sentence for bug in BUGS if not located(bug, diagnosed(bug)[1])]
    assert len(missed) <= 0.05 * len(BUGS), missed


if __name__ == "__main__":
    first, every = map(int, sys.argv[1:] or (0, 1))
    for each in BUGS[first::every]:
        name, found = diagnosed(each)
        print("located" if located(each, found) else "MISSED ", f"{each.file}: {each.sentence}; {place(each)}; {name}:",
              found.lines, "named" if found.named else "", flush=True)
