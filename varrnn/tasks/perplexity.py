"""The perplexity of a text: by the dropout approximation, and by MC dropout, which averages the PROBABILITIES
of many mask samples (equation 4 of the paper).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from varrnn import rng
from varrnn.tasks.base import Metrics
from varrnn.tasks.model import ModelMasks, SequenceModel, concat_masks
from varrnn.tensor_trees import map_tensors

STATE = ("done", "position", "pass_rows", "log_sums", "pass_log_sums", "state", "curve", "partial_curve")
SAVED_AS = {"pass_log_sums": "fresh"}  # attributes with other names in mc.pt
GROUPS = 20  # sample i belongs to group i % GROUPS; leaving out one group at a time gives the standard error
CURVE = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)


@dataclass
class MCPerplexity:
    """Samples are rows of one batch; one pass reads the whole text, with fixed masks for each row.

    Only the targets' probabilities are kept: per group and position the log of their sum, in float64, so that memory
    does not grow with the number of samples. `advance` reads one window; the state can be saved between two windows.
    """

    model: SequenceModel
    text: Tensor  # (N,)
    seed: int
    word_dropout: bool
    rows: int
    memory_mb: int
    done: int = 0  # samples of finished passes
    position: int = 0  # in the current pass
    pass_rows: int = 0
    log_sums: Tensor = field(init=False)  # (GROUPS, N - 1), log of summed probabilities of finished passes
    pass_log_sums: Tensor = field(init=False)  # the same, of the current pass
    state: Any = None
    curve: dict[int, float] = field(default_factory=dict)  # samples -> summed log of the mean probability
    partial_curve: dict[int, Tensor] = field(default_factory=dict)
    _masks: ModelMasks | None = None

    def __post_init__(self) -> None:
        shape = (GROUPS, len(self.text) - 1)
        self.log_sums = torch.full(shape, -math.inf, dtype=torch.float64, device=self.text.device)
        self.pass_log_sums = self.log_sums.clone()

    @torch.no_grad()
    def advance(self, samples: int) -> int:
        """Read one window of the current or next pass, up to `samples` in total; returns its samples x words."""
        if self.position == 0:
            self.pass_rows = min(self.rows, samples - self.done)
            reached = (k for k in CURVE if self.done < k <= self.done + self.pass_rows)
            self.partial_curve = {k: self.pass_log_sums.new_zeros(()) for k in reached}  # complete after the pass
            self._masks = None
        steps = window_steps(self.pass_rows, self.model.output.out_features, self.memory_mb)
        words = self.text[self.position : self.position + steps + 1].unsqueeze(1).expand(-1, self.pass_rows)
        features, self.state = self.model.features(words[:-1], self.state, self._window_masks(len(words) - 1))
        self._add(target_log_probabilities(self.model, features, words[1:]))
        self.position += len(words) - 1
        if self.position == len(self.text) - 1:
            self._finish_pass()
        return (len(words) - 1) * words.shape[1]

    def _window_masks(self, steps: int) -> ModelMasks:
        """Masks, drawn once per pass; variants that draw at every step get new masks for each window instead."""
        if self._masks is None or self.model.dropout.per_step:
            samples = range(self.done, self.done + self.pass_rows)
            self._masks = sample_mask_batch(self.model, samples, self.seed, self.word_dropout, self.position, steps)
        return self._masks

    def _add(self, log_p: Tensor) -> None:
        """Add a window's log-probabilities (W, rows)."""
        here = slice(self.position, self.position + len(log_p))
        for group in range(GROUPS):
            members = log_p[:, (group - self.done) % GROUPS :: GROUPS]
            if members.shape[1]:
                self.pass_log_sums[group, here] = members.logsumexp(1)
        if self.partial_curve:
            before = self.log_sums[:, here].logsumexp(0)  # (W,)
            summed = torch.logaddexp(before.unsqueeze(1), log_p.logcumsumexp(1))  # (W, rows)
            for samples in self.partial_curve:
                column = summed[:, samples - self.done - 1]
                self.partial_curve[samples] += column.sum() - len(column) * math.log(samples)

    def _finish_pass(self) -> None:
        self.log_sums = torch.logaddexp(self.log_sums, self.pass_log_sums)
        self.curve |= {samples: float(value) for samples, value in self.partial_curve.items()}
        self.done += self.pass_rows
        self.restart_pass()

    def restart_pass(self) -> None:
        """Discard the current pass; keep finished ones."""
        self.pass_log_sums.fill_(-math.inf)
        self.position, self.state, self._masks = 0, None, None

    def words(self, samples: int) -> int:
        """Samples x words of `samples` whole passes."""
        return samples * (len(self.text) - 1)

    def words_done(self) -> int:
        """Samples x words of the finished passes and the current pass."""
        return self.words(self.done) + self.position * self.pass_rows

    def metrics(self) -> Metrics:
        """Test perplexity with its standard error."""
        ppl, error = self.result()
        return {"test_ppl_mc": ppl, "test_ppl_mc_se": error, "mc_samples": self.done}

    def curves(self) -> dict[str, Any]:
        """Perplexity against the number of samples, for the summary."""
        return {"mc_curve": self.curve_ppl()}

    def result(self) -> tuple[float, float]:
        """Perplexity of the averaged probabilities over the finished passes, and its standard error (jackknife)."""
        positions = self.log_sums.shape[1]
        mean = float(self.log_sums.logsumexp(0).sum()) / positions - math.log(self.done)
        sizes = [len(range(group, self.done, GROUPS)) for group in range(GROUPS)]
        used = [group for group in range(GROUPS) if sizes[group]]
        if len(used) < 2:
            return safe_exp(-mean), math.nan
        left_out = []
        for group in used:
            others = [other for other in used if other != group]
            rest = self.log_sums[others].logsumexp(0).sum() / positions
            left_out.append(float(rest) - math.log(self.done - sizes[group]))
        centre = sum(left_out) / len(left_out)
        variance = (len(used) - 1) / len(used) * sum((x - centre) ** 2 for x in left_out)
        return safe_exp(-mean), safe_exp(-mean) * math.sqrt(variance)

    def curve_ppl(self) -> dict[str, list[float]]:
        """Perplexity against the number of samples: 1, 2, 5, ..."""
        samples = sorted(self.curve)
        positions = self.log_sums.shape[1]
        return {"samples": list(samples), "ppl": [safe_exp(-self.curve[k] / positions) for k in samples]}

    def state_dict(self) -> dict[str, Any]:
        """The state for resuming, without masks: they are drawn again from their seeds."""
        return {SAVED_AS.get(name, name): getattr(self, name) for name in STATE}

    def resume(self, state: dict[str, Any], samples: int, same_device: bool) -> None:
        """Continue from `state`. An unfinished pass is discarded if it would exceed a total of `samples` samples.

        It is also discarded on another kind of device, where the same seeds give other masks.
        """
        self.load_state_dict(state)
        if not same_device or (self.position and self.done + self.pass_rows > samples):
            self.restart_pass()

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Restore what `state_dict` returned. Raises ValueError where a file was damaged or edited."""
        values = map_tensors(
            lambda tensor: tensor.to(self.text.device), {name: saved[SAVED_AS.get(name, name)] for name in STATE}
        )
        for name in ("done", "position", "pass_rows"):
            if type(values[name]) is not int or values[name] < 0:
                raise ValueError(name)
        if values["position"] >= len(self.text) - 1 or (values["position"] and not values["pass_rows"]):
            raise ValueError("position")
        for name in ("log_sums", "pass_log_sums"):
            check_tensor(name, values[name], self.log_sums.shape, torch.float64)
        for name in ("curve", "partial_curve"):
            if not isinstance(values[name], dict) or not all(type(samples) is int for samples in values[name]):
                raise ValueError(name)
        if not all(isinstance(value, float) for value in values["curve"].values()):
            raise ValueError("curve")
        for value in values["partial_curve"].values():
            check_tensor("partial_curve", value, (), torch.float64)
        state, layers = values["state"], self.model.layers
        parts = state if isinstance(state, tuple) else () if state is None else (state,)
        if len(parts) != (layers.cell.num_states if values["position"] else 0):
            raise ValueError("state")
        for part in parts:
            check_tensor("state", part, (layers.num_layers, values["pass_rows"], layers.hidden_size), None)
        for name, value in values.items():
            setattr(self, name, value)


def check_tensor(name: str, value: Any, shape: tuple[int, ...], dtype: torch.dtype | None) -> None:
    """Raise ValueError for anything but a tensor of this shape and dtype (None: any floating point)."""
    if not isinstance(value, Tensor) or value.shape != shape or not value.is_floating_point():
        raise ValueError(name)
    if dtype is not None and value.dtype != dtype:
        raise ValueError(name)


def choose_batch(rows: int, memory_mb: int, num_words: int, device: torch.device) -> tuple[int, int]:
    """The samples in a batch, and the megabytes for their logits: as configured, or (0) by device."""
    default_rows, default_mb = (1000, 1024) if device.type == "cuda" else (100, 256)
    memory_mb = memory_mb or default_mb
    return rows or max(1, min(default_rows, memory_mb * 2**20 // (4 * num_words))), memory_mb


def sample_mask_batch(
    model: SequenceModel, samples: range, seed: int, word_dropout: bool, position: int, steps: int
) -> ModelMasks:
    """The masks of the given samples as rows of one batch; sample i does not depend on the batch.

    They are for the whole text. A variant that draws at every step gets those of one window, `steps` from `position`;
    its masks depend on where windows begin.
    """
    window, drawn = (position, steps) if model.dropout.per_step else (0, None)
    device = model.output.weight.device
    draws = (rng.make_generator(device, rng.MONTE_CARLO, seed, i, window) for i in samples)
    return concat_masks([model.sample_document_masks(1, word_dropout, drawn, draw) for draw in draws])


def log_probabilities(
    model: SequenceModel, columns: Tensor, steps: int, masks: ModelMasks | None = None
) -> Iterator[Tensor]:
    """Read the columns (N, B) in windows of `steps` with a carried state; yields log p of the targets (W, B).

    Without masks the dropout approximation is used, in train() and in eval().
    """
    masks = model.mean_masks() if masks is None else masks
    state = None
    for start in range(0, len(columns) - 1, steps):
        words = columns[start : start + steps + 1]
        features, state = model.features(words[:-1], state, masks)
        yield target_log_probabilities(model, features, words[1:])


def target_log_probabilities(model: SequenceModel, features: Tensor, targets: Tensor) -> Tensor:
    """log softmax(features W_y + b_y) at the targets: (W, B, H) and (W, B) -> (W, B), in float64."""
    return model.target_log_probabilities(features, targets).double()


@torch.no_grad()
def perplexity(model: SequenceModel, columns: Tensor, steps: int) -> float:
    """exp of the mean over all predictions, by the dropout approximation."""
    total = sum(log_p.sum() for log_p in log_probabilities(model, columns, steps))
    return safe_exp(-float(total) / ((len(columns) - 1) * columns.shape[1]))


@torch.no_grad()
def validation_perplexity(model: SequenceModel, columns: Tensor, steps: int) -> dict[str, float]:
    """Validation perplexity over all full windows: the exact one, and as the authors' code computes it.

    Their code sums the mean of each full window but divides by the number of windows BEFORE rounding it down (3687 / 35
    = 105.343 instead of 105 on PTB), so every validation perplexity they print is 1.4 to 1.6 % too low.
    """
    windows = (len(columns) - 1) // steps
    total = sum(log_p.sum() for log_p in log_probabilities(model, columns[: windows * steps + 1], steps))
    exact_nll = -float(total) / (windows * steps * columns.shape[1])
    authors_nll = exact_nll * windows / ((len(columns) - 1) / steps)
    return {"valid_ppl": safe_exp(exact_nll), "valid_ppl_authors": safe_exp(authors_nll)}


def safe_exp(mean_nll: float) -> float:
    """exp, but infinity instead of an OverflowError for a diverged model."""
    return math.exp(mean_nll) if mean_nll < 700 else math.inf


def window_steps(rows: int, num_words: int, memory_mb: int) -> int:
    """The number of steps (at most 256) whose logits for `rows` rows fit into the given memory."""
    return max(1, min(256, memory_mb * 2**20 // (4 * rows * num_words)))
