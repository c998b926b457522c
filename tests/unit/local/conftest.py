"""Torch on one thread: small tensors gain nothing from more, and busy cores lose much."""

import contextlib

with contextlib.suppress(ImportError):
    import torch

    torch.set_num_threads(1)
