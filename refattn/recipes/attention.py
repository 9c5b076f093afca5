"""The attention of C's experiments: compositional, or multi-head of any variant; heads and searches share the width."""

from ..attention.compositional import Compositional
from ..attention.layer import MultiHead
from ..layers.protocol import Attention


def attention_of(recipe, searches: int, biases: bool = True) -> Attention:
    """The layer that a recipe's attention, width, heads, retrievals, selector_width and scoring ask for.

    `biases` are those of queries, keys, values and the output; a selector has biases always.
    """
    m = recipe.width
    if recipe.attention == "compositional":
        return Compositional(m, searches, recipe.retrievals, m // searches, m // searches, recipe.selector_width,
                             recipe.scoring, biases=biases, selector_biases=True)
    return MultiHead(m, recipe.heads, m // recipe.heads, variant=recipe.attention, biases=biases)
