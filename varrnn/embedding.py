"""Section 4.2 of the paper: dropping word types, not word tokens."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from varrnn.dropout import MaskedModule, bernoulli, check_probability, like


class WordEmbedding(MaskedModule):
    """Word embeddings whose rows are dropped at random for each sequence, the same rows at every time step.

    "the dog and the cat" may become "-- dog and -- cat", never "-- dog and the cat". ``per_token=True`` drops each
    occurrence on its own, which is what the authors' language models actually ran. In train() and under mc_dropout
    each call draws a mask; a mask passed to the call is used in any mode. The parameter is that of ``nn.Embedding``.
    Embed before packing: the data of a PackedSequence would be taken for ONE sequence, with one mask for all of them.
    """

    def __init__(
        self,
        num_words: int,
        dim: int,
        p_E: float = 0.0,
        per_token: bool = False,
        batch_first: bool = False,
        padding_idx: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_probability("p_E", p_E)
        if padding_idx is not None and not -num_words <= padding_idx < num_words:
            raise ValueError(f"padding_idx={padding_idx} must be the id of one of the {num_words} words")
        self.num_words, self.dim, self.p_E = num_words, dim, float(p_E)
        self.per_token, self.batch_first = per_token, batch_first
        self.padding_idx = padding_idx if padding_idx is None else padding_idx % num_words
        self.weight = nn.Parameter(torch.empty(num_words, dim, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Standard normal with a padding row of zeros, as in ``nn.Embedding``."""
        nn.init.normal_(self.weight)
        if self.padding_idx is not None:
            with torch.no_grad():
                self.weight[self.padding_idx].fill_(0)

    def forward(self, words: Tensor, mask: Tensor | None = None) -> Tensor:
        """Embed words (T, B), (B, T) with ``batch_first``, or (T,); see ``sample_mask`` and ``sample_type_mask``."""
        check_axes(words)
        embedded = F.embedding(words, self.weight, self.padding_idx)
        if mask is None:
            if not (self.p_E and self.masks_on):
                return embedded
            mask = self.sample_mask(words)
        return embedded * self._per_occurrence(words, mask)

    def sample_mask(self, words: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """One factor per occurrence, shaped like words with a last axis of 1; equal words of a row share it."""
        check_axes(words)
        draws = bernoulli(tuple(words.shape), self.p_E, generator, **like(self.weight))
        if not self.per_token:
            draws = share_over_types(draws, words, dim=self._time_axis(words))
        return draws.unsqueeze(-1)

    def sample_type_mask(self, batch_size: int = 1, generator: torch.Generator | None = None) -> Tensor:
        """One factor per row and word type, (B, V), to be held over a text that is read in windows."""
        return bernoulli((batch_size, self.num_words), self.p_E, generator, **like(self.weight))

    def _time_axis(self, words: Tensor) -> int:
        return 1 if self.batch_first and words.dim() == 2 else 0

    def _per_occurrence(self, words: Tensor, mask: Tensor) -> Tensor:
        """A mask over types (B or 1, V) is looked up; a mask over occurrences is used as it is."""
        whole = (*words.shape, 1)
        if mask.dim() == len(whole) and all(n in (1, size) for n, size in zip(mask.shape, whole)):
            return mask
        rows = words if self._time_axis(words) == 1 else words.t()  # (B, T), or (T,) unbatched
        batch = rows.shape[0] if words.dim() == 2 else 1
        if mask.dim() != 2 or mask.shape[0] not in (1, batch) or mask.shape[1] != self.num_words:
            raise ValueError(
                f"a word mask of shape {tuple(mask.shape)} fits neither the words {tuple(words.shape)} with a last "
                f"axis of 1 nor (batch of {batch} or 1, {self.num_words} words); see sample_mask and sample_type_mask"
            )
        table = mask.expand(rows.shape[0], -1) if words.dim() == 2 else mask[0]
        factors = table.gather(-1, rows)
        return (factors if self._time_axis(words) == 1 else factors.t()).unsqueeze(-1)

    def extra_repr(self) -> str:
        return f"{self.num_words}, {self.dim}, p_E={self.p_E}" + (", per_token=True" if self.per_token else "")


def check_axes(words: Tensor) -> None:
    """Masks are shared over time, and with more axes than these nobody has said which is time."""
    if words.dim() not in (1, 2):
        raise ValueError(f"words have {words.dim()} axes; give (T, B), with batch_first (B, T), or (T,)")


def share_over_types(draws: Tensor, words: Tensor, dim: int) -> Tensor:
    """Give every occurrence of a word in its row the draw of one of them.

    At most T of the V words occur, so T draws are enough (section 4.2). Sorting finds equal words with static shapes;
    ``unique`` would make a GPU wait.
    """
    if words.numel() == 0:
        return draws
    ordered, position = words.sort(dim=dim)
    changes = ordered.narrow(dim, 1, words.shape[dim] - 1) != ordered.narrow(dim, 0, words.shape[dim] - 1)
    first = torch.zeros_like(ordered.narrow(dim, 0, 1))
    run = torch.cat([first, changes.to(first.dtype)], dim=dim).cumsum(dim)  # which of the row's distinct words
    return draws.scatter(dim, position, draws.gather(dim, run))
