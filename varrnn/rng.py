"""One random number stream for each purpose, so that a resumed run gives the same numbers as an uninterrupted one."""

import numpy as np
import torch

SHUFFLE, MASKS, MONTE_CARLO, GENERATION = range(4)  # what a stream is for


def derive_seed(*numbers: int) -> int:
    """Derive a seed from several numbers (purpose, seed, epoch, window, ...); similar inputs give unrelated streams."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def make_generator(device: torch.device | str, *numbers: int) -> torch.Generator:
    """A generator on the device, seeded by `derive_seed`."""
    return torch.Generator(device).manual_seed(derive_seed(*numbers))
