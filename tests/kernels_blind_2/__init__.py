"""A second bank: attention kernels by somebody who had read neither the checks nor the first bank.

`kernels.py` is theirs.  LINES says which lines of the pages their words for a mistake's place mean; it was written
before the first run, and several lines stand where the words speak of several.

The first run, before anything was mended for it (74 mistakes, 26 right kernels; `python -m tests.bench.diagnoses --bank
tests.kernels_blind_2`, half precision as there):

    float64     74 seen, 68 located (91.9 %), 56 named (75.7 %), 4 named in other lines; no right kernel called wrong
    float32     74 seen, 68 located (91.9 %), 56 named (75.7 %), 4 named in other lines; no right kernel called wrong
    bfloat16    73 seen, 65 located (87.8 %), 54 named (73.0 %), 4 named in other lines; 2 right kernels called wrong

The two were tiled softmax attention, whose backward sums over the output; error bars know that form since.  After the
mending of what it showed in general, in bfloat16: 70 located (94.6 %), 62 named (83.8 %), none in other lines, no right
kernel called wrong; after that of what the third bank showed, in float64: 74 located, 63 named (85.1 %), none in other
lines, none called wrong.
"""

from typing import NamedTuple

from .kernels import ROWS

LINES = {
    "softmax": {
        "forward (1)": "width_of_v bias_before_scale",
        "forward (2)": "finite_fill mask_after causal_top_left causal_without_itself padded_keys maximum_over_queries",
        "forward (3)": "dropout_in_sum", "forward (4)": "not_rescaled", "forward (2) forward (4)": "tail_lost",
        "backward (1) backward (2)": "base_2 recomputed_without_bias",
        "backward (2)": "sum_of_dp sum_over_queries sum_detached",
        "backward (1)": "dk_unscaled dbias_mean dq_last_tile", "backward (3)": "dp_without_dropout",
        "backward (4)": "dv_without_dropout"},
    "hyla": {
        "forward (1)": "bias_after_norm no_scale", "forward (2)": "mask_after_norm",
        "forward (3)": "sum_over_heads epsilon_outside variance rms_over_keys mean_over_kept_heads",
        "forward (5)": "heads_of_v", "forward (5) forward (6)": "relu_per_head", "forward (6)": "gelu",
        "forward (7)": "second_use_without_dropout o_without_relu",
        "backward (7)": "first_use_forgotten value_network_detached", "backward (6)": "dz_not_gated dz_gated_by_dg",
        "backward (5)": "dv_from_dg dv_without_dropout",
        "backward (3)": "ds_sum_over_heads rms_detached s_for_a rho_without_epsilon rho_of_the_first_tile",
        "backward (2)": "ds_not_masked", "backward (1)": "dbias_scaled dk_of_the_next_head"},
    "compositional": {
        "forward (5)": "width_of_search selected_without_dropout nonlinear_without_selector",
        "forward (6)": "softmax_over_searches", "forward (7)": "o_not_weighted", "backward (6)": "g_without_its_sum",
        "backward (5)": "dmap_unscaled dy_by_the_answer_only", "backward (4)": "dv_of_the_last_search dc_mean"},
    "sliding": {
        "forward (1)": "begins_at_the_neighbour queries_first", "forward (2)": "r_in_the_other_order",
        "forward (4)": "outside_clamped outside_scores_zero position_0_outside",
        "backward (1)": "dk_without_dilation pad_into_key_0 pad_k_detached dq_without_pads",
        "backward (6)": "dv_overwritten", "backward (2)": "dr_mean"},
    "linear": {
        "forward (1) forward (2)": "divided_by_keys", "forward (2)": "mask_before_bias",
        "backward (1) backward (2)": "dbias_not_masked", "backward (1)": "dk_within_chunk"},
}
LINE = {f"{page}_{name}": line for page, rows in LINES.items() for line, names in rows.items()
        for name in names.split()}


class Case(NamedTuple):
    name: str
    as_: str
    function: object
    line: str                  # as in the first bank; several with spaces between
    what: str
    options: dict              # how the kernel is called


CASES = [Case(row.name, row.variant, row.kernel, "" if row.right else LINE[row.name], row.what, row.options)
         for row in ROWS]
