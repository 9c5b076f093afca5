"""Our side of the bench: the step as `refattn` trains it, in the shape of the twins."""
from typing import Any, NamedTuple

import numpy as np

from refattn import losses, optim, params
from refattn.attention.layer import MultiHead
from refattn.models.transformer import decoder
from refattn.train import groups
from refattn.train.shards import Shards

from . import problem as P


def initial(seed):
    """{dotted name: array}: random values everywhere, so that comparing gradients sees biases and scales too."""
    parameters = model("softmax").parameters()
    flat, _ = params.allocate(parameters)
    params.initialise(flat, parameters, np.random.default_rng(seed), "random")
    return by_name(flat, parameters)


def by_name(flat, parameters):
    """Views into a flat array by dotted name, in layout order."""
    listed = list(params.entries(parameters))
    ends = np.cumsum([np.prod(p.shape) for _, p in listed])
    return {name: x.reshape(p.shape) for (name, p), x in zip(listed, np.split(flat, ends[:-1]), strict=True)}


def model(variant):
    """H's decoder with one of the variants."""
    attention = MultiHead(P.WIDTH, P.HEADS, P.HEAD_WIDTH, variant=variant)
    return decoder(attention, hidden=P.HIDDEN, layers=P.LAYERS, buckets=P.LENGTH, inputs=P.INPUTS)


class Ours:
    """`step(batch)` -> loss, and after the first step `gradients()`: the use that the twins share."""

    def __init__(self, parameters, variant, read):
        self.model, self.read, self.count = model(variant), slice(-1, None) if read else None, 0
        self.parameters = self.model.parameters()
        dtype = parameters["embed.w"].dtype
        self.flat, self.p = params.allocate(self.parameters, dtype)
        self.flat_grads, self.grads = params.allocate(self.parameters, dtype)
        self.flat[...] = np.concatenate([parameters[name].ravel() for name, _ in params.entries(self.parameters)])
        self.moments, self.mask = optim.moments(self.flat), params.decay_mask(self.parameters, "released", dtype)

    def step(self, batch):
        tokens, target, dropout = batch
        y, saved = self.model.forward(self.p, tokens, dropout=dropout, read=self.read)
        loss, dlast = losses.mse(y[:, -1, 0], target)
        dy = np.zeros_like(y)
        dy[:, -1, 0] = dlast
        self.flat_grads[...] = 0
        self.model.backward(self.p, saved, dy, self.grads)
        optim.adamw_step(self.flat, self.flat_grads, self.moments, step=self.count + 1, mask=self.mask, decay=P.DECAY,
                         rate=optim.warmup_cosine(self.count, rate=P.RATE, steps=P.STEPS, warmup=P.WARMUP))
        self.count += 1
        return loss

    def gradients(self):
        """{name: gradient} of the first step, read from the first moment."""
        return by_name(self.moments.first / (1 - P.BETAS[0]), self.parameters)


class Batch(NamedTuple):
    dropout: Any
    tokens: Any
    target: Any


class Sharded:
    """What `Shards` has to know of the bench's problem: a recipe in everything but its name."""
    TURNS, seed, steps = 1, 0, 10**9

    def __init__(self, shards, read):
        self.shards, self.read = shards, read

    def draw(self, step):
        tokens, target, dropout = P.sample(step)
        return Batch(dropout, tokens, target)

    def turns(self, batch):
        return [batch]

    def cut(self, batch, rows):
        return Batch(batch.dropout, batch.tokens[rows], batch.target[rows])

    def loss_terms(self, batch):
        return len(batch.target)

    def inputs(self, batch):
        return batch.tokens, {"dropout": batch.dropout, "read": self.read}

    def dropouts(self, *_):
        return {}

    def loss(self, y, batch):
        loss, dlast = losses.mse(y[:, -1, 0], batch.target)
        dy = np.zeros_like(y)
        dy[:, -1, 0] = dlast
        return loss, dy


class Workers(Ours):
    """The same step by forked processes that share the shards of a batch; made before there is any thread."""

    def __init__(self, parameters, variant, read, workers, shards):
        super().__init__(parameters, variant, read)
        self.recipe = Sharded(shards, self.read)
        group = groups.group(workers, shards)
        self.shared = Shards(self.recipe, self.model, self.flat, group)
        self.work = group.at_work(self.shared)
        self.work.__enter__()

    def step(self, batch):
        tokens, target, dropout = batch
        loss, gradient = self.shared.gradient(self.count, Batch(dropout, tokens, target))
        optim.adamw_step(self.flat, gradient, self.moments, step=self.count + 1, mask=self.mask, decay=P.DECAY,
                         rate=optim.warmup_cosine(self.count, rate=P.RATE, steps=P.STEPS, warmup=P.WARMUP))
        self.count += 1
        return float(loss)
