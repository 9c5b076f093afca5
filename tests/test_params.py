"""Parameters: one flat array and its views, initial values by their statistics, decay, checkpoints."""

import numpy as np
import pytest

from refattn import params
from refattn.attention.layer import MultiHead
from refattn.models.transformer import decoder

MODEL = decoder(MultiHead(8, 4, 2, variant="hyla_deep"), hidden=9, layers=2, buckets=6, inputs=3)
LIST = MODEL.parameters()


def test_views_are_the_flat_array():
    flat, p = params.allocate(LIST, "float64")
    assert flat.shape == (params.count(LIST),) and not flat.any() and flat.dtype == np.float64
    p.blocks[1].attention.wq += 2.0
    p.readout.b[...] = 3.0
    assert flat.sum() == 2 * p.blocks[1].attention.wq.size + 3 * p.readout.b.size
    assert sum(np.prod(entry.shape) for _, entry in params.entries(LIST)) == flat.size
    assert "blocks.1.attention.wv2" in dict(params.entries(LIST)) and "wq" in repr(p.blocks[0].attention)


def test_dtypes_and_generators_are_refused():
    listed = {"a": params.Parameter("n", (2,), 1, "bias")}
    with pytest.raises(ValueError, match="dtype is int64; allowed: floating point"):
        params.allocate(listed, np.int64)
    with pytest.raises(TypeError, match="rng is a int; allowed: a numpy.random.Generator"):
        params.initialise(params.allocate(listed)[0], listed, 0)


def test_rebinding_and_a_wrong_size_are_refused():
    flat, p = params.allocate(LIST)
    with pytest.raises(AttributeError, match=r"bound to another array; allowed: p.w\[...\]"):
        p.embed.w = np.zeros(3)
    with pytest.raises(AttributeError, match=r"no_such_name cannot be bound"):
        p.no_such_name = None
    with pytest.raises(ValueError, match=rf"the flat array has shape \(5,\); allowed: \({flat.size},\)"):
        params.view(flat[:5], LIST)


def test_initial_values_have_the_published_deviations():
    layer = MultiHead(60, 8, 5)
    flat, p = params.allocate(layer.parameters(), "float64")
    params.initialise(flat, layer.parameters(), np.random.default_rng(0))
    for w, fan_in in (p.wq, 60), (p.wv, 60), (p.wo, 40):
        assert w.std() == pytest.approx(fan_in**-0.5, rel=0.05)
        assert np.abs(w).max() <= 2 * fan_in**-0.5 / 0.8796
    assert not p.bq.any() and not p.bo.any()


def test_initial_values_are_the_same_for_every_dtype():
    arrays = [params.allocate(LIST, dtype)[0] for dtype in ("float32", "float64")]
    for flat in arrays:
        params.initialise(flat, LIST, np.random.default_rng(1))
    assert np.array_equal(arrays[0], arrays[1].astype("float32"))


@pytest.mark.parametrize("scheme", ["lecun_normal", "pytorch", "haiku", "gpt2"])
def test_scales_begin_at_one_shifts_at_zero_and_tables_are_drawn(scheme):
    flat, p = params.allocate(LIST, "float64")
    params.initialise(flat, LIST, np.random.default_rng(0), scheme)
    assert (p.blocks[0].norm1.scale == 1).all() and p.blocks[0].position.table.std() > 0
    assert (p.blocks[0].norm1.shift == 0).all()


@pytest.mark.parametrize(("width", "heads", "head_width"), [(128, 8, 2), (128, 16, 4), (64, 4, 8)])
def test_rms_head_keeps_the_variance_of_hylas_second_generated_layer_not_of_its_first(width, heads, head_width):
    """H, section 2.2, says that RMSHead keeps it: sum_h a_h^2 is H, so it is 1 / fan-in of W', but H / fan-in of W."""
    layer, rng = MultiHead(width, heads, head_width, variant="hyla"), np.random.default_rng(0)
    first, second, hidden = [], [], []
    for _ in range(20):
        flat, p = params.allocate(layer.parameters(), np.float64)
        params.initialise(flat, layer.parameters(), rng)
        code = (saved := layer.forward(p, rng.standard_normal((2, 9, width)))[1].attention).code
        first.append(width * np.einsum("bhqk,mhe->bqkme", code, p.wv).var())
        second.append(head_width * np.einsum("bhqk,hem->bqkem", code, p.wo).var())
        hidden.append(saved.z.var())
    assert np.mean(second) == pytest.approx(1, rel=0.05)
    assert np.mean(first) == pytest.approx(heads, rel=0.05) and np.mean(hidden) == pytest.approx(heads, rel=0.1)


def test_decay_masks():
    released, text, none = (params.view(params.decay_mask(LIST, rule), LIST) for rule in ("released", "text", "none"))
    block = released.blocks[0]
    assert block.attention.bq.all() and block.position.table.all() and block.attention.wq.all()
    assert not block.attention.bo.any() and not block.norm1.scale.any() and not block.feed_forward.b1.any()
    assert not text.blocks[0].attention.bq.any() and text.blocks[0].position.table.all()
    assert not none.blocks[0].attention.wq.any()


@pytest.mark.parametrize("call, words", [
    (lambda: params.initialise(np.zeros(3), LIST, None, "xavier"),
     "scheme is 'xavier'; allowed: lecun_normal, pytorch, haiku, gpt2, random"),
    (lambda: params.decay_mask(LIST, "some"), "rule is 'some'; allowed: all, released, text, none"),
])
def test_unknown_names(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_a_checkpoint_comes_back_bitwise(tmp_path):
    flat = np.random.default_rng(0).standard_normal(params.count(LIST)).astype("float32")
    params.save(tmp_path / "a.npz", LIST, {"flat": flat}, step=7)
    arrays, meta = params.load(tmp_path / "a.npz", LIST)
    assert arrays["flat"].tobytes() == flat.tobytes() and arrays["flat"].dtype == flat.dtype and meta == {"step": 7}
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


def test_a_checkpoint_that_is_cut_off_or_foreign_is_refused_in_one_line(tmp_path):
    path = tmp_path / "a.npz"
    params.save(path, LIST, {"flat": np.zeros(params.count(LIST))})
    whole = path.read_bytes()
    for count in (0, 1, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:count])
        with pytest.raises(ValueError, match="is not a complete refattn checkpoint") as caught:
            params.load(path)
        assert "\n" not in str(caught.value)
    np.savez(path, header=np.array('{"format": "other"}'))
    with pytest.raises(ValueError, match="its format is 'other', not 'refattn-1'"):
        params.load(path)
    for parts in '"layout": {}, "meta": {}', '"layout": [], "meta": []':
        np.savez(path, header=np.array(f'{{"format": "refattn-1", {parts}}}'))
        with pytest.raises(ValueError, match="its layout is no list, or its meta no object"):
            params.load(path)
    for data, said in ("text 'a'", ", trained on text 'a',"), (None, ""):
        params.save(path, LIST, {"flat": np.zeros(params.count(LIST))}, data=data)
        with pytest.raises(ValueError, match=rf"a\.npz{said} was written for other parameters: it has .*; allowed: "):
            params.load(path, MultiHead(8, 4, 2).parameters())
    with pytest.raises(FileNotFoundError):
        params.load(tmp_path / "none.npz")


def test_a_failed_save_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.npz"
    params.save(path, LIST, {"flat": np.zeros(3)})
    with pytest.raises(TypeError):
        params.save(path, LIST, {"flat": np.zeros(3)}, step=object())
    assert params.load(path)[0]["flat"].shape == (3,) and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("name, array, dtype", [
    ("a", None, "object"), ("a", np.array([None, "b"]), "object"), ("header", np.ones(3), "float64"),
    ("file", np.ones(3), "float64"), ("allow_pickle", np.ones(3), "float64")])
def test_what_a_checkpoint_could_not_be_read_with_is_not_written(tmp_path, name, array, dtype):
    """Objects were pickled, and `load` then refused the whole file; an array named allow_pickle was left out."""
    with pytest.raises(ValueError, match=f"array '{name}' has dtype {dtype}; allowed: numbers"):
        params.save(tmp_path / "x.npz", LIST, {name: array})
    assert not list(tmp_path.iterdir())
