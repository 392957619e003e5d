"""Predict the next word (section 5.1 of the paper): windows of a text, carried state, perplexity."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from varrnn.config import schema
from varrnn.data import ptb, pydoc, text
from varrnn.data.corpus import Corpus, batchify, count_windows
from varrnn.errors import UserError
from varrnn.tasks import perplexity
from varrnn.tasks.base import Metrics, ResumedWork, Step, build_dropout, reject_unused_options
from varrnn.tasks.model import ModelMasks, SequenceModel, initialise
from varrnn.training import checkpoint
from varrnn.training import summary as run_summary

CORPORA = {
    "ptb": lambda task: ptb.load(task.path),
    "pydoc": lambda task: pydoc.load(),
    "text": lambda task: text.load(task.train, task.valid, task.test, task.min_count),
}
SOURCES = {"ptb": ("path",), "pydoc": (), "text": ("train", "valid", "test", "min_count")}  # the options of each
TEST_STEPS = 256  # the test text is read as one stream; the window's length changes nothing but the memory


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

    @classmethod
    def load(cls, options: schema.LanguageModelConfig, device: torch.device) -> "LanguageModelTask":
        """Read the corpus that the options name."""
        if options.corpus not in CORPORA:
            raise UserError(f"task.corpus={options.corpus}: allowed are {', '.join(CORPORA)}")
        if options.headline not in ("exact", "authors"):
            raise UserError(f"task.headline={options.headline}: allowed are exact, authors")
        reject_unused_options(options, SOURCES, options.corpus)
        return cls(CORPORA[options.corpus](options), options, device)

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
        return build_model(config, self.num_words).to(self.train.device)

    def vocabulary(self) -> dict[str, Any]:
        """A word's id is its place in the list."""
        return {"words": self.all_words}

    def words(self, update: int) -> int:
        """T x B: every window is full."""
        return self.steps * self.batch_size

    def prepare_batch(
        self, model: SequenceModel, epoch: int, update: int, generator: torch.Generator | None
    ) -> tuple[Tensor, ModelMasks]:
        """The window's words (T + 1, B) and their masks."""
        start = update * self.steps
        words = self.train[start : start + self.steps + 1]
        return words, model.sample_masks(words[:-1], generator)

    def loss(
        self, model: SequenceModel, epoch: int, update: int, state: Any, generator: torch.Generator | None
    ) -> Step:
        """The loss of one window."""
        return self.compute_loss(model, self.prepare_batch(model, epoch, update, generator), state)

    def compute_loss(self, model: SequenceModel, batch: tuple[Tensor, ModelMasks], state: Any) -> Step:
        """Summed over time, averaged over the batch, as the authors' code does: T times the mean per word.

        New masks for every window and row; the state is carried over from the window before, masks changing under it.
        Differs: the theory starts every sequence from h_0 = 0; a window starts from the last state, as in the authors'
        code.
        Differs: the first window of an epoch starts from zeros; the authors' code starts it from the last validation
        state, by an oversight that changes nothing measurable.
        """
        words, masks = batch
        features, state = model.features(words[:-1], state, masks)
        nll = -model.target_log_probabilities(features, words[1:]).sum() / self.batch_size
        return Step(nll, nll.detach() / self.steps, detach(state))

    def train_metrics(self, mean_loss: float) -> Metrics:
        """Perplexity of the epoch, masks on."""
        return {"train_ppl": perplexity.safe_exp(mean_loss)}

    def epoch_metrics(self, model: SequenceModel, epoch: int) -> Metrics:
        """Validation perplexity, both ways."""
        return perplexity.validation(model, self.valid, self.steps)

    def final_metrics(self, model: SequenceModel) -> Metrics:
        """Validation, and the test text as a single stream from a zero state."""
        test = perplexity.perplexity(model, self.test.unsqueeze(1), TEST_STEPS)
        return {**perplexity.validation(model, self.valid, self.steps), "test_ppl": test}

    def reference_metrics(self) -> Metrics:
        """None: published yardsticks stand in the tables."""
        return {}

    def headline(self, row: Metrics) -> str:
        """Train and validation perplexity."""
        shown = row["valid_ppl_authors" if self.headline_choice == "authors" else "valid_ppl"]
        return f"train ppl {row['train_ppl']:.2f}  valid ppl {shown:.2f}"

    def described(self, model: SequenceModel, config: schema.RunConfig) -> dict[str, Any]:
        """What the samples in a mc.pt belong to: these weights on this text, with or without word dropout."""
        weights = checkpoint.fingerprint(model)
        return {"word_dropout": config.mc.word_dropout, "weights": weights, "data": self.sha256}

    def mc(
        self, model: SequenceModel, config: schema.RunConfig, folder: Path, monitor: Any
    ) -> tuple[Metrics, dict[str, Any], ResumedWork]:
        """Test perplexity by MC dropout, resumable through a file; more samples than asked for stay."""
        device, samples, started = self.test.device, config.mc.samples, monitor.seconds()
        rows, memory = perplexity.choose_batch(config.mc.rows, config.mc.memory_mb, self.num_words, device)
        sampler = perplexity.MCPerplexity(model, self.test, config.seed, config.mc.word_dropout, rows, memory)
        file, described = folder / samples_file(config), self.described(model, config)
        earlier = resume(sampler, file, described, samples)
        commits = list(dict.fromkeys([*earlier.commits, run_summary.code_version()]))
        monitor.start(
            max(samples, sampler.done) * (len(self.test) - 1), sampler.done * (len(self.test) - 1) + sampler.progress
        )
        monitor.logger.resume_mc(sampler.done)
        while sampler.done < samples:
            before = sampler.done
            monitor.advance(sampler.advance(samples))
            if sampler.done != before:
                ppl, error = sampler.result()
                monitor.set_status(f"{sampler.done} samples: ppl {ppl:.2f} +- {error:.2f}")
                monitor.logger.log_mc(sampler.done, {"test_ppl": ppl, "standard_error": error})
            if monitor.save_due() or sampler.done == samples:
                spent = earlier.seconds + monitor.seconds() - started
                told = {"described": described, "device": device.type, "seconds": spent, "commits": commits}
                checkpoint.save({**sampler.state_dict(), **told}, file)
            monitor.stop_if_requested()
        ppl, error = sampler.result()
        metrics = {"test_ppl_mc": ppl, "test_ppl_mc_se": error, "mc_samples": sampler.done}
        return metrics, {"mc_curve": sampler.curve_ppl()}, earlier


def build_model(config: schema.RunConfig, num_words: int) -> SequenceModel:
    """Embedding, layers and a softmax over `num_words` words; everything starts uniform in [-init, init]."""
    chosen, size = config.model, config.size
    options: dict[str, Any] = {"cell_scaling": chosen.cell_scaling} if config.cell == "lstm" else {}
    dropout = build_dropout(chosen, chosen.per_gate)
    model = SequenceModel(
        num_words, size.units, size.layers, num_words, dropout, config.cell, chosen.word_tokens, **options
    )
    initialise(model, size.init, config.seed)
    return model


def samples_file(config: schema.RunConfig) -> str:
    """The ablation has a file of its own: asking for it costs nobody's samples."""
    return "mc_word_dropout.pt" if config.mc.word_dropout else "mc.pt"


def resume(sampler: perplexity.MCPerplexity, file: Path, described: dict[str, Any], samples: int) -> ResumedWork:
    """Take over what an earlier start has left; a pass under way that leads beyond `samples` is begun anew."""
    if not file.is_file():
        return ResumedWork()
    device = sampler.text.device
    saved = checkpoint.load(file)
    with checkpoint.checkpoint_errors(file):
        if saved["described"] != described:
            return ResumedWork()
        sampler.load_state_dict(saved)
        too_far = sampler.position and sampler.done + sampler.pass_rows > samples
        if too_far or saved["device"] != device.type:  # the same seeds draw other masks on another device
            sampler.restart_pass()
        return ResumedWork(tuple(saved["commits"]), saved["seconds"])


def detach(state: Any) -> Any:
    """Carry the state on without its history."""
    return tuple(part.detach() for part in state) if isinstance(state, tuple) else state.detach()
