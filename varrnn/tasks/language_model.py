"""Predict the next word (section 5.1 of the paper): windows of a text, carried state, perplexity."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from varrnn.config import schema
from varrnn.data.corpus import Corpus, batchify, count_windows
from varrnn.data.registry import TEXTS
from varrnn.errors import UserError
from varrnn.tasks import perplexity
from varrnn.tasks.base import Metrics, Step, build_dropout, reject_unused_options
from varrnn.tasks.model import ModelMasks, SequenceModel, initialise

TEST_STEPS = 256  # window length of the test text, which is one stream: it affects memory only


class LanguageModelTask:
    """One corpus as B parallel columns, read in windows of T words."""

    example_command = "python scripts/generate.py {folder} --prompt the --mc"
    selection_metric: str | None = "valid_ppl"
    log_batch_losses = False

    def __init__(self, corpus: Corpus, options: schema.LanguageModelConfig, device: torch.device) -> None:
        self.name, self.sha256, self.num_words = corpus.name, corpus.sha256, corpus.num_words
        self.all_words = corpus.words
        self.steps, self.batch_size, self.headline_choice = options.steps, options.batch_size, options.headline
        self.train, self.valid = (self._columns(corpus, split, device) for split in ("train", "valid"))
        self.test = torch.from_numpy(corpus.test).to(device)
        self.updates_per_epoch = count_windows(len(self.train), self.steps)

    def _columns(self, corpus: Corpus, split: str, device: torch.device) -> Tensor:
        tokens = getattr(corpus, split)
        if len(tokens) < self.batch_size * (self.steps + 1):
            raise UserError(
                f"the {split} text of {corpus.name} has {len(tokens)} words: too few for task.batch_size="
                f"{self.batch_size} rows of task.steps={self.steps} words; lower one of them"
            )
        return torch.from_numpy(batchify(tokens, self.batch_size)).to(device)

    def model(self, config: schema.RunConfig) -> SequenceModel:
        """Embedding, layers and a softmax over the vocabulary; everything starts uniform in [-init, init]."""
        return build_model(config, self.vocabulary()).to(self.train.device)

    def vocabulary(self) -> dict[str, Any]:
        """The words; a word's id is its index in the list."""
        return {"words": self.all_words}

    def words(self, update: int) -> int:
        """T x B, since every window is full."""
        return self.steps * self.batch_size

    def prepare_batch(
        self, model: SequenceModel, epoch: int, update: int, generator: torch.Generator | None
    ) -> tuple[Tensor, ModelMasks]:
        """The window's words (T + 1, B) and their masks."""
        start = update * self.steps
        words = self.train[start : start + self.steps + 1]
        return words, model.sample_masks(words[:-1], generator)

    def compute_loss(self, model: SequenceModel, batch: tuple[Tensor, ModelMasks], state: Any) -> Step:
        """The loss summed over time and averaged over the batch, as in the authors' code: T times the mean per word.

        Every window and row gets new masks; the state is carried over from the previous window, which had other masks.
        Differs: the theory starts every sequence from h_0 = 0; a window starts from the last state, as in the authors'
        code.
        Differs: the first window of an epoch starts from zeros; the authors' code starts it from the last validation
        state, an oversight without a measurable effect.
        """
        words, masks = batch
        features, state = model.features(words[:-1], state, masks)
        nll = -model.target_log_probabilities(features, words[1:]).sum() / self.batch_size
        return Step(nll, nll.detach() / self.steps, detach(state))

    def train_metrics(self, mean_loss: float) -> Metrics:
        """Training perplexity of the epoch, with dropout."""
        return {"train_ppl": perplexity.safe_exp(mean_loss)}

    def epoch_metrics(self, model: SequenceModel, epoch: int) -> Metrics:
        """Validation perplexity, exact and with the authors' normaliser."""
        return perplexity.validation_perplexity(model, self.valid, self.steps)

    def final_metrics(self, model: SequenceModel, row: Metrics | None = None) -> Metrics:
        """Validation perplexity, and that of the test text as a single stream from a zero state."""
        test = perplexity.perplexity(model, self.test.unsqueeze(1), TEST_STEPS)
        return {**perplexity.validation_perplexity(model, self.valid, self.steps), "test_ppl": test}

    def reference_metrics(self) -> Metrics:
        """No baselines: the tables list published ones."""
        return {}

    def headline(self, row: Metrics) -> str:
        """Train and validation perplexity."""
        shown = row["valid_ppl_authors" if self.headline_choice == "authors" else "valid_ppl"]
        return f"train ppl {row['train_ppl']:.2f}  valid ppl {shown:.2f}"

    def sampler(self, model: SequenceModel, config: schema.RunConfig) -> perplexity.MCPerplexity:
        """Test perplexity by MC dropout; existing samples beyond the requested number are kept."""
        rows, memory = perplexity.choose_batch(config.mc.rows, config.mc.memory_mb, self.num_words, self.test.device)
        return perplexity.MCPerplexity(model, self.test, config.seed, config.mc.word_dropout, rows, memory)


def load(config: schema.RunConfig, device: torch.device) -> LanguageModelTask:
    """Read the corpus that the config names."""
    options = config.task
    assert isinstance(options, schema.LanguageModelConfig)
    if options.corpus not in TEXTS:
        raise UserError(f"task.corpus={options.corpus}: allowed are {', '.join(TEXTS)}")
    if options.headline not in ("exact", "authors"):
        raise UserError(f"task.headline={options.headline}: allowed are exact, authors")
    reject_unused_options(options, TEXTS, options.corpus)
    return LanguageModelTask(TEXTS[options.corpus].load(options), options, device)


def build_model(config: schema.RunConfig, vocabulary: Mapping[str, Any]) -> SequenceModel:
    """Embedding, layers and a softmax over the vocabulary; everything starts uniform in [-init, init]."""
    chosen, size, num_words = config.model, config.size, len(vocabulary["words"])
    options: dict[str, Any] = {"cell_scaling": chosen.cell_scaling} if config.cell == "lstm" else {}
    dropout = build_dropout(chosen, chosen.per_gate)
    model = SequenceModel(
        num_words, size.units, size.layers, num_words, dropout, config.cell, chosen.word_tokens, **options
    )
    initialise(model, size.init, config.seed)
    return model


def detach(state: Any) -> Any:
    """Detach the carried state from its graph."""
    return tuple(part.detach() for part in state) if isinstance(state, tuple) else state.detach()
