"""What every recipe promises of its loss, whichever it is: a further row of RECIPES is asked by itself."""

import numpy as np
import pytest

from refattn import params
from refattn.recipes import RECIPES, recipe

TASKS = {name: {"batch": 6} for name in RECIPES}
TASKS["text"] |= {"text": "library"}                        # long enough in every Python
TASKS["multitask_images"] |= {"third": "shapes"}            # scikit-learn's digits may be missing


def initial(made):
    """A model, and its parameters as a run begins."""
    model = made.build()
    flat, p = params.allocate(model.parameters())
    params.initialise(flat, model.parameters(), np.random.default_rng(0), made.initialise)
    return model, p


@pytest.fixture(scope="module", params=TASKS)
def drawn(request):
    """A recipe, the batch of its first step, and answers to it in float64."""
    made = recipe(request.param, **TASKS[request.param])
    batch = made.turns(made.draw(0))[0]
    model, p = initial(made)
    x, options = made.inputs(batch)
    return made, batch, model.forward(p, x, **options)[0].astype(float)


def test_the_gradient_of_a_loss_is_its_derivative(drawn):
    made, batch, y = drawn
    _, dy = made.loss(y, batch)
    assert dy.shape == y.shape, f"{made.TASK}: loss returns a gradient of shape {dy.shape} for answers of {y.shape}"
    for seed in range(3):
        step = np.random.default_rng(seed).standard_normal(y.shape)
        above, below = (made.loss(y + h * step, batch)[0] for h in (1e-5, -1e-5))
        slope, claimed = (above - below) / 2e-5, (dy * step).sum()
        assert abs(slope - claimed) <= 1e-4 * np.abs(dy * step).sum(), (
            f"{made.TASK}: along a direction the loss has slope {slope:.8g}, by its gradient {claimed:.8g}")


def test_the_loss_of_a_batch_is_that_of_its_parts(drawn):
    """As `shards` add them: each part weighs its loss_terms.  A sample may have several rows of answers."""
    made, batch, y = drawn
    whole, dy = made.loss(y, batch)
    rows = slice(0, 1), slice(1, None)
    parts = [made.cut(batch, x) for x in rows]
    terms = [made.loss_terms(x) for x in parts]
    assert abs(sum(terms) - made.loss_terms(batch)) <= 1e-6 * abs(sum(terms))
    first = len(y) // len(batch[-1])
    found = [made.loss(each, part) for each, part in zip((y[:first], y[first:]), parts, strict=True)]
    value = sum(n * loss for n, (loss, _) in zip(terms, found, strict=True)) / sum(terms)
    assert value == pytest.approx(whole), f"{made.TASK}: the loss is no mean over loss_terms"
    ours = np.concatenate([n * d for n, (_, d) in zip(terms, found, strict=True)])
    np.testing.assert_allclose(ours, sum(terms) * dy, rtol=1e-5, atol=1e-7 * np.abs(sum(terms) * dy).max())


def test_scores_have_labels_and_every_split_can_be_asked(drawn):
    made, model, p = drawn[0], *initial(drawn[0])
    for split in made.SPLITS:
        batch = next(iter(made.asked(split, 4)))
        found = made.summary(made.score(made.predict(model, p, batch), batch))
        missing = {metric for _, where, metric in made.TABLE if where == split} - set(found)
        assert not missing, f"{made.TASK}: the summary of split {split} has no {', '.join(sorted(missing))}"
        assert set(found) <= set(made.LABELS), f"{made.TASK}: {', '.join(set(found) - set(made.LABELS))} has no label"


def test_a_task_may_be_named_as_on_the_command_line():
    assert recipe("fuzzy-logic") == recipe("fuzzy_logic") and recipe("even-pairs") == recipe("even_pairs")
