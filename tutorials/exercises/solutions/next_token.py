"""Solution of tutorial 11, derive: the loss of the next token."""

import numpy as np


def kernel(h, table, target, do):
    """y = ln sum_v exp z_v - z_target with z = h . table_v."""
    z = h @ table.T
    top = z.max(axis=-1, keepdims=True)
    total = np.exp(z - top).sum(axis=-1, keepdims=True)
    y = (np.log(total) + top)[..., 0] - np.take_along_axis(z, target[..., None], axis=-1)[..., 0]
    dz = (np.exp(z - top) / total - (np.arange(len(table)) == target[..., None])) * do[..., None]
    return {"o": y, "dh": dz @ table, "dtable": np.einsum("btv,btm->vm", dz, h)}
