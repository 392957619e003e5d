"""One stream of random numbers for each purpose, so that stopping and resuming changes nothing."""

import numpy as np
import torch

SHUFFLE, MASKS, MONTE_CARLO, GENERATION = range(4)  # what a stream is for


def derive_seed(*numbers: int) -> int:
    """A seed from several numbers (purpose, seed, epoch, window, ...) such that near inputs give unrelated streams."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def make_generator(device: torch.device | str, *numbers: int) -> torch.Generator:
    """A generator on the device, seeded by `derive_seed`."""
    return torch.Generator(device).manual_seed(derive_seed(*numbers))
