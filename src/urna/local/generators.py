"""Global generators of random numbers, which strangers' code draws from, apart for each client."""

import contextlib
import random
import sys
from collections.abc import Iterator

import numpy as np

__all__ = ["own_generators"]


@contextlib.contextmanager
def own_generators(seed: int, device: str = "cpu") -> Iterator[None]:
    """Let code inside draw from global generators that begin at `seed`, and put them back after.

    Covers `random`, `numpy.random`, and PyTorch's generators where PyTorch is imported.

    Guarantee:
        What code inside draws follows from the seed and from how often it draws. What drew
        before plays no part, and what draws after does not notice.

    Assumes:
        One thread at a time is in here, but for its own. The seed is public, and follows from no
        data: nothing drawn inside is secret. Code inside that uses PyTorch at all finds it
        imported, and a GPU's generator in use or named by `device`.

    Args:
        seed: Where the generators begin.
        device: A device of PyTorch's whose generator is used inside.

    Example:
        >>> with own_generators(3):
        ...     first = random.random()
        >>> with own_generators(3):
        ...     assert random.random() == first
    """
    torch = sys.modules.get("torch")
    python, numbers = random.getstate(), np.random.get_state(legacy=False)
    with contextlib.ExitStack() as stack:
        if torch is not None:
            gpus = set(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else set()
            if device.startswith("cuda"):
                number = torch.device(device).index
                gpus.add(torch.cuda.current_device() if number is None else number)
            # No generator is touched whose state is not put back.
            stack.enter_context(torch.random.fork_rng(devices=sorted(gpus)))
            torch.default_generator.manual_seed(seed % 2**63)
            for gpu in gpus:
                torch.cuda.default_generators[gpu].manual_seed(seed % 2**63)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numbers)
