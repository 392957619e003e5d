"""Durations of interleaved candidates: one of each per round, so that a busy machine slows all of them alike."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

Call = Callable[[], object]
GPU_CALLS = 10  # between two synchronisations, as in training
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


@dataclass(frozen=True)
class Timer:
    """How candidates are timed.

    Args:
        clock: "wall", or "cpu" for the process's own time.
        limit: seconds after which no further round starts.
        rounds: the minimum number of rounds, even if they exceed the limit.
        most_rounds: the maximum number of rounds.
        device: on a GPU, a duration ends when the device has finished.
    """

    clock: str
    limit: float
    rounds: int
    most_rounds: float = float("inf")
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def seconds(self, call: Call, calls: int = 1) -> float:
        """The duration of one call, as the mean of several in a row."""
        clock = CLOCKS[self.clock]
        calls *= GPU_CALLS if self.device.type == "cuda" else 1
        self.synchronize()
        start = clock()
        for _ in range(calls):
            call()
        self.synchronize()
        return (clock() - start) / calls

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def interleave(
        self, candidates: Mapping[str, Call], calls: Mapping[str, int] | None = None, share: float = 1.0
    ) -> dict[str, list[float]]:
        """Durations by candidate, one per round, after one round to warm up.

        `calls` is how often a candidate is called in a row (once by default), `share` the part of the time limit.
        """
        for call in candidates.values():
            call()
        times: dict[str, list[float]] = {name: [] for name in candidates}
        start, rounds = time.perf_counter(), 0
        while rounds < self.rounds or (rounds < self.most_rounds and time.perf_counter() - start < share * self.limit):
            for name, call in candidates.items():
                times[name].append(self.seconds(call, calls[name] if calls else 1))
            rounds += 1
        return times


def paired_ratios(times: Mapping[str, list[float]], to: str) -> dict[str, float]:
    """The speed of each candidate relative to another: the median over rounds."""
    return {name: statistics.median(b / a for a, b in zip(own, times[to])) for name, own in times.items()}


def half_range(values: list[float]) -> float:
    """Half the interquartile range."""
    low, _, high = statistics.quantiles(values, n=4)
    return (high - low) / 2
