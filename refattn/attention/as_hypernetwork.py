"""Multi-head attention is a hypernetwork: latent code -> generated weights -> value network.

    concatenate, then map out  sum_k a[h, q, k] v[h, k], all heads side by side, times W^out           eq. (2)
    head by head               sum_h W_h^out sum_k a[h, q, k] W_h^value x_k                            eq. (3)
    generated weights          W[q, k] = sum_h a[h, q, k] W_h^out W_h^value                            eq. (4)
    value network              y[q] = sum_k W[q, k] x_k                                                eq. (5)
    HYLA                       y[q] = sum_k W'[q, k] relu(W[q, k] x_k), the code generates both    eq. (6)-(7)

Source: H, section 2.  Row vectors: W_h^value is wv[:, h] (m, e), W_h^out is wo[h] (e, m); no biases, as in the paper.
Costs O(T^2 m^2) memory: to be looked at, not to be trained.
"""

from typing import Any, NamedTuple

from .. import ops
from ..checks import check_integer
from ..contract import agree, contract

__all__ = ["Generated", "eq_2", "eq_3", "generate", "generate_backward", "nonlinear_value_network",
           "nonlinear_value_network_backward", "value_network", "value_network_backward"]


def eq_2(code, x, wv, wo):
    """y[b, q, m] from code (b, h, q, k), x (b, k, i), wv (i, h, e), wo (h, e, m): heads concatenated, one map."""
    agree(code=(code, "bhqk"), x=(x, "bki"), wv=(wv, "ihe"), wo=(wo, "hem"))
    v = contract("bki,ihe->bkhe", x, wv)
    o = contract("bhqk,bkhe->bqhe", code, v)
    return o.reshape(*o.shape[:2], wo.shape[0] * wo.shape[1]) @ wo.reshape(-1, wo.shape[2])


def eq_3(code, x, wv, wo):
    """y[b, q, m]: every head mapped out by itself, then the sum over heads.  Raises ValueError where there is none."""
    heads = check_integer("heads", agree(code=(code, "bhqk"), x=(x, "bki"), wv=(wv, "ihe"), wo=(wo, "hem"))["h"])
    return sum(contract("bqk,bke->bqe", code[:, h], x @ wv[:, h]) @ wo[h] for h in range(heads))


class Generated(NamedTuple):
    """What the backward of `generate` needs."""
    code: Any
    wv: Any
    wo: Any
    operation: Any             # (h, i, m), W_h^out W_h^value: the hypernetwork's own parameters


def generate(code, wv, wo):
    """W[b, q, k, i, m] = sum_h code[b, h, q, k] sum_e wv[i, h, e] wo[h, e, m], eq. (4).  Returns W and Generated."""
    operation = contract("ihe,hem->him", wv, wo)                # (1)
    w = contract("bhqk,him->bqkim", code, operation)            # (2)
    return w, Generated(code, wv, wo, operation)


def generate_backward(saved, dw):
    """dcode, dwv, dwo from dw (b, q, k, i, m)."""
    code, wv, wo, operation = saved
    dcode = contract("bqkim,him->bhqk", dw, operation)          # (2)
    doperation = contract("bhqk,bqkim->him", code, dw)          # (2)
    dwv = contract("him,hem->ihe", doperation, wo)              # (1)
    dwo = contract("ihe,him->hem", wv, doperation)              # (1)
    return dcode, dwv, dwo


def value_network(w, x):
    """y[b, q, m] = sum_k sum_i W[b, q, k, i, m] x[b, k, i], eq. (5).  Returns y and (w, x)."""
    return contract("bqkim,bki->bqm", w, x), (w, x)


def value_network_backward(saved, dy):
    """dw, dx from dy (b, q, m)."""
    w, x = saved
    return contract("bqm,bki->bqkim", dy, x), contract("bqkim,bqm->bki", w, dy)


class NonlinearSaved(NamedTuple):
    code: Any
    x: Any
    wv: Any
    wo: Any
    inner: Any                 # (b, q, k, i, e), W[q, k]: generated first layer
    outer: Any                 # (b, q, k, e, m), W'[q, k]: generated second layer
    z: Any                     # (b, q, k, e), hidden layer before relu


def nonlinear_value_network(code, x, wv, wo):
    """y[b, q, m] = sum_k W'[q, k] relu(W[q, k] x_k), eq. (6)-(7), both generated.  Returns y and NonlinearSaved."""
    inner = contract("bhqk,ihe->bqkie", code, wv)               # (1) eq. 7, W
    outer = contract("bhqk,hem->bqkem", code, wo)               # (2) eq. 7, W'
    z = contract("bqkie,bki->bqke", inner, x)                   # (3)
    y = contract("bqkem,bqke->bqm", outer, ops.relu(z))         # (4)
    return y, NonlinearSaved(code, x, wv, wo, inner, outer, z)


def nonlinear_value_network_backward(saved, dy):
    """dcode, dx, dwv, dwo from dy (b, q, m)."""
    code, x, wv, wo, inner, outer, z = saved
    douter = contract("bqke,bqm->bqkem", ops.relu(z), dy)       # (4)
    dz = ops.relu_backward(z, contract("bqkem,bqm->bqke", outer, dy))           # (4)
    dinner = contract("bqke,bki->bqkie", dz, x)                 # (3)
    dx = contract("bqkie,bqke->bki", inner, dz)                 # (3)
    dcode = contract("bqkem,hem->bhqk", douter, wo)             # (2)
    dwo = contract("bhqk,bqkem->hem", code, douter)             # (2)
    dcode += contract("bqkie,ihe->bhqk", dinner, wv)            # (1)
    dwv = contract("bhqk,bqkie->ihe", code, dinner)             # (1)
    return dcode, dx, dwv, dwo
