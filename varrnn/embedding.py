"""Section 4.2 of the paper: dropping word types, not word tokens."""

from typing import Any

import torch
from torch import Tensor, nn

from varrnn.dropout import MaskedModule, check_probability, device_and_dtype, is_held, sample_mask


class WordEmbedding(MaskedModule, nn.Embedding):
    """Word embeddings whose rows are dropped at random for each sequence, the same rows at every time step.

    "the dog and the cat" may become "-- dog and -- cat", never "-- dog and the cat". In train() and under
    ``mc_dropout`` each call draws a mask. In a ``hold_masks`` block the same word types of a row stay dropped in all
    calls. A mask passed to the call is applied in train() and eval(). Embed before packing: the data of a
    PackedSequence would be read as ONE sequence, with one mask for all of them.

    Args:
        num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, device, dtype: as
            in ``torch.nn.Embedding``. The only parameter is ``weight``, as there.
        p_E: the probability of dropping a word type.
        per_token: True drops each occurrence independently, as the authors' published language model code does.
        batch_first: whether words are (B, T) instead of (T, B).

    Shape:
        - words: (T, B), (B, T) with ``batch_first``, or (T,) for one sequence. Give one step of a batch as (1, B).
        - mask (optional): one factor per occurrence, shaped like the words with a last axis of 1 (``sample_mask``), or
          one per row and word type, (B, num_embeddings) or (1, num_embeddings) (``sample_type_mask``).
        - output: like the words, with a last axis of ``embedding_dim``.

    Example:
        >>> embedding = WordEmbedding(10, 3, p_E=0.5)
        >>> out = embedding(torch.tensor([[4], [7], [4]]))  # (T, B) = (3, 1): word 4 occurs twice
        >>> out.shape, torch.equal(out[0], out[2])
        (torch.Size([3, 1, 3]), True)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        p_E: float = 0.0,
        per_token: bool = False,
        batch_first: bool = False,
    ) -> None:
        """The arguments are those of the class."""
        for name, size in (("num_embeddings", num_embeddings), ("embedding_dim", embedding_dim)):
            if isinstance(size, bool) or not isinstance(size, int):
                raise TypeError(f"WordEmbedding: {name}={size!r} must be an int, not a {type(size).__name__}")
        for name, flag in (("per_token", per_token), ("batch_first", batch_first)):
            if not isinstance(flag, bool):
                raise TypeError(f"WordEmbedding: {name}={flag!r} must be True or False, not a {type(flag).__name__}")
        if padding_idx is not None and not isinstance(padding_idx, int):
            raise TypeError(f"WordEmbedding: padding_idx={padding_idx!r} must be an int; give the dropout rate as p_E=")
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ValueError(f"padding_idx={padding_idx} must be the id of one of the {num_embeddings} words")
        super().__init__(
            num_embeddings,
            embedding_dim,
            padding_idx,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            sparse,
            _weight,
            _freeze,
            device=device,
            dtype=dtype,
        )
        self.p_E, self.per_token, self.batch_first = p_E, per_token, batch_first

    @property
    def p_E(self) -> float:
        """The probability of dropping a word type; it can be set, and is checked as in the constructor."""
        return self._p_E

    @p_E.setter
    def p_E(self, p_E: float) -> None:
        check_probability("p_E", p_E)
        self._p_E = float(p_E)

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None, **options: Any
    ) -> "WordEmbedding":
        """Create embeddings from a matrix (num_embeddings, embedding_dim), as ``nn.Embedding.from_pretrained`` does.

        Args:
            embeddings: the matrix, used as ``weight``.
            freeze: True keeps it fixed in training (``requires_grad=False``).
            padding_idx: as in the constructor.
            options: further arguments of the constructor by name, such as ``p_E``.

        Example:
            >>> embedding = WordEmbedding.from_pretrained(torch.eye(4), p_E=0.2)
            >>> embedding.weight.requires_grad, embedding.p_E
            (False, 0.2)
        """
        if embeddings.dim() != 2:
            raise ValueError(f"embeddings have {embeddings.dim()} axes; give (num_embeddings, embedding_dim)")
        rows, columns = embeddings.shape
        return cls(rows, columns, padding_idx, _weight=embeddings, _freeze=freeze, **options)

    def forward(self, words: Tensor, mask: Tensor | None = None) -> Tensor:
        """Embed words (T, B), (B, T) with ``batch_first``, or (T,); see ``sample_mask`` and ``sample_type_mask``."""
        validate_shape(words)
        embedded = super().forward(words)
        if mask is None:
            if not (self.p_E and self.dropout_active):
                return embedded
            mask = self._draw_mask(words)
        return embedded * self._expand_mask(words, mask)

    def _draw_mask(self, words: Tensor) -> Tensor:
        """A new mask, or the mask of the open ``hold_masks`` block.

        The block stores one random key per row, from which ``hashed_mask`` computes the factor of any word. A table of
        (B, V) factors would take gigabytes for a test set.
        """
        if self.per_token or not is_held(self):
            return self.sample_mask(words)
        batch = 1 if words.dim() == 1 else words.shape[1 - self._time_axis(words)]
        keys = self.sample_unless_held((batch, words.device), sample_keys, batch, words.device)
        rows = keys.unsqueeze(self._time_axis(words)) if words.dim() == 2 else keys
        return hashed_mask(rows, words, self.p_E, self.weight.dtype).unsqueeze(-1)

    def sample_mask(self, words: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """One factor per occurrence, shaped like words with a last axis of 1; equal words of a row share it."""
        validate_shape(words)
        draws = sample_mask(tuple(words.shape), self.p_E, generator, **device_and_dtype(self.weight))
        if not self.per_token:
            draws = tie_by_word_type(draws, words, dim=self._time_axis(words))
        return draws.unsqueeze(-1)

    def sample_type_mask(self, batch_size: int = 1, generator: torch.Generator | None = None) -> Tensor:
        """One factor per row and word type, (B, V), for a text that is read in several windows."""
        return sample_mask((batch_size, self.num_embeddings), self.p_E, generator, **device_and_dtype(self.weight))

    def _time_axis(self, words: Tensor) -> int:
        return 1 if self.batch_first and words.dim() == 2 else 0

    def _expand_mask(self, words: Tensor, mask: Tensor) -> Tensor:
        """Expand a mask over word types, (B or 1, V), to one factor per occurrence; other masks already have that."""
        whole = (*words.shape, 1)
        if mask.dim() == len(whole) and all(n in (1, size) for n, size in zip(mask.shape, whole)):
            return mask
        rows = words if self._time_axis(words) == 1 else words.t()  # (B, T), or (T,) unbatched
        batch = rows.shape[0] if words.dim() == 2 else 1
        if mask.dim() != 2 or mask.shape[0] not in (1, batch) or mask.shape[1] != self.num_embeddings:
            raise ValueError(
                f"a word mask of shape {tuple(mask.shape)} fits neither the words {tuple(words.shape)} with a last "
                f"axis of 1 nor (batch of {batch} or 1, {self.num_embeddings} words); see sample_mask and "
                "sample_type_mask"
            )
        table = mask.expand(rows.shape[0], -1) if words.dim() == 2 else mask[0]
        factors = table.gather(-1, rows)
        return (factors if self._time_axis(words) == 1 else factors.t()).unsqueeze(-1)

    def extra_repr(self) -> str:
        return ", ".join(
            [super().extra_repr(), f"p_E={self.p_E}"]
            + [f"{name}=True" for name in ("per_token", "batch_first") if getattr(self, name)]
        )


def sample_keys(batch_size: int, device: torch.device) -> Tensor:
    """A random int64 for each row."""
    return torch.randint(-(2**63), 2**63 - 1, (batch_size,), device=device)


def hashed_mask(keys: Tensor, words: Tensor, p: float, dtype: torch.dtype) -> Tensor:
    """0 with probability p, else 1/(1-p), as a deterministic function of key and word.

    The output function of SplitMix64 (Steele et al., 2014) mixes key and word; int64 products wrap around.
    """
    x = keys + words.long() * -7046029254386353131  # 0x9E3779B97F4A7C15, as all constants here in two's complement
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -4658895280553007687  # 0xBF58476D1CE4E5B9; the mask makes shifts logical
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685  # 0x94D049BB133111EB
    x = x ^ ((x >> 31) & 0x1FFFFFFFF)
    kept = ((x >> 33) & 0x7FFFFFFF) >= round(p * 2**31)
    return kept.to(dtype) / (1.0 - p)


def validate_shape(words: Tensor) -> None:
    """Masks are shared over time; with more than two axes the time axis would be unknown."""
    if words.dim() not in (1, 2):
        raise ValueError(f"words have {words.dim()} axes; give (T, B), with batch_first (B, T), or (T,)")


def tie_by_word_type(draws: Tensor, words: Tensor, dim: int) -> Tensor:
    """Give all occurrences of a word in a row the same draw.

    At most T of the V words occur, so T draws are enough (section 4.2). Sorting finds equal words with static shapes;
    ``unique`` would synchronise a GPU with the CPU.
    """
    if words.numel() == 0:
        return draws
    ordered, position = words.sort(dim=dim)
    changes = ordered.narrow(dim, 1, words.shape[dim] - 1) != ordered.narrow(dim, 0, words.shape[dim] - 1)
    first = torch.zeros_like(ordered.narrow(dim, 0, 1))
    run = torch.cat([first, changes.to(first.dtype)], dim=dim).cumsum(dim)  # index among the distinct words
    return draws.scatter(dim, position, draws.gather(dim, run))
