"""Every option of a run as a typed field with a help string; the YAML files in configs/ only set values.

This module uses dataclasses only, so that tasks and training do not need Hydra.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

# dropout probabilities of words, inputs, recurrent states, memory cells and outputs
DROP_RATES = ("p_E", "p_W", "p_U", "p_c", "p_y")

CELLS = ("lstm", "gru", "rnn")  # those of LAYERS in varrnn.layers, which needs torch; a test compares them
CELLS_WITH_MEMORY = ("lstm",)  # those that model.p_c can be used with
LANGUAGE_MODEL, SENTIMENT = "language_model", "sentiment"  # kinds of tasks
KIND_KEY = "task.kind"
OTHER_FOLDER = "choose another folder with runs_root= or run_dir="  # what to do when a run's folder cannot be written


def option(default, help_text: str):
    """A field with its help string, which `python run.py --help` prints."""
    made = {"default_factory": default} if callable(default) else {"default": default}
    return field(**made, metadata={"help": help_text})


@dataclass
class ModelConfig:
    """A dropout variant: five probabilities of DROPPING and three sharing rules (paper, section 4)."""

    name: str = option("", "the variant's name, that of its file in configs/model")
    p_E: float = option(0.0, "probability of dropping a word type (embedding dropout)")
    p_W: float = option(0.0, "probability of dropping an input of each recurrent layer")
    p_U: float = option(0.0, "probability of dropping a recurrent connection")
    p_c: float = option(0.0, "probability of dropping an LSTM memory cell (Moon et al.)")
    p_y: float = option(0.0, "probability of dropping an input of the output layer")
    per_step: bool = option(False, "draw new masks at every time step (naive dropout) instead of one per sequence")
    per_gate: bool = option(False, "an independent mask for each gate (untied weights) instead of one for all (tied)")
    per_batch: bool = option(
        False, "one mask for all sequences of a batch instead of one for each, so that torch's layers (cuDNN) can run"
    )
    cell_scaling: str = option("read", "scaling of Moon's mask: read scales h; step and inverted scale c (ablations)")
    word_tokens: bool = option(
        False, "drop word tokens instead of word types, as the authors' code did for the paper's results"
    )

    @property
    def has_dropout(self) -> bool:
        """Whether any dropout rate is positive; without dropout, MC dropout equals the deterministic pass."""
        return any(getattr(self, name) for name in DROP_RATES)


@dataclass
class SizeConfig:
    """The size of the network."""

    name: str = option("", "the size's name, that of its file in configs/size")
    units: int = option(128, "units per recurrent layer, and the embedding's dimension")
    layers: int = option(2, "recurrent layers")
    init: float = option(
        0.1, "initial range: U(-init, init) for every parameter (language models) or the embeddings only (sentiment)"
    )


@dataclass
class OptimConfig:
    """The optimizer and its schedule."""

    method: str = option("sgd", "sgd (language models) or adam (sentiment)")
    lr: float = option(1.0, "learning rate of the first epochs")
    epochs: int = option(10, "passes over the training data")
    schedule: str = option("decay", "decay, or constant to keep the learning rate (figure 2)")
    decay: float = option(1.0, "after epoch max_epoch + 1 the learning rate is divided by this every epoch")
    max_epoch: int = option(1000, "epochs 1 to max_epoch + 1 run at the full learning rate")
    clip: float = option(5.0, "maximum global gradient norm; 0 disables clipping")
    weight_decay: float = option(
        0.0, "sgd: each step multiplies the parameters by 1 - weight_decay; adam: penalty weight_decay * sum w^2"
    )
    decay_rule: str = option("all", "the parameters with weight decay: all, or one_gate (the authors' Keras fork)")


@dataclass
class TaskConfig:
    """The options of every task; see the subclasses."""

    name: str = option("", "the task's name, that of its file in configs/task")
    kind: str = option("", "language_model or sentiment; follows from the task")
    path: str | None = option(None, "folder (or file) of the data; default: $VARRNN_DATA/<corpus>, then data/<corpus>")
    steps: int = option(35, "length T of a training sequence")
    batch_size: int = option(20, "sequences per update")

    @property
    def user_files(self) -> bool:
        """Whether the data are the user's files, which may change between two starts."""
        return False


@dataclass
class LanguageModelConfig(TaskConfig):
    """Language modelling: predict the next word; the metric is perplexity."""

    kind: str = option(LANGUAGE_MODEL, "language_model or sentiment; set by task=")
    corpus: str = option("pydoc", "which text, by its name in varrnn/data/registry.py; set by task=")
    train: str | None = option(None, "corpus=text: the training text")
    valid: str | None = option(None, "corpus=text: the validation text")
    test: str | None = option(None, "corpus=text: the test text")
    min_count: int | None = option(None, "corpus=text: rarer words become <unk>; default 2, or 1 if train has <unk>")
    headline: str = option("exact", "which validation perplexity is shown first: exact, or authors (their normaliser)")

    @property
    def user_files(self) -> bool:
        return self.corpus == "text"


@dataclass
class SentimentConfig(TaskConfig):
    """Sentiment regression: predict a rating from a segment of T words; the metric is RMSE in rating units."""

    kind: str = option(SENTIMENT, "language_model or sentiment; set by task=")
    reviews: str = option("synthetic", "which reviews, by their name in varrnn/data/registry.py; set by task=")
    csv: str | None = option(None, "reviews=csv: a file with the columns text and rating; task=reviews takes task.path")
    max_words: int = option(20_000, "words with this id or a higher one become the unknown word")
    hold_out: float = option(
        0.0, "share of the training reviews held out for validation; with it, no test curve is measured"
    )
    mc_samples: int = option(
        10, "MC samples of the per-epoch test error, 50 in the last tenth of epochs; 0 for the deterministic error only"
    )
    mc_every: int = option(5, "MC test error at epochs 1 to 20, at multiples of this number, and at the last epoch")
    gate_activation: str = option("sigmoid", "sigmoid, or hard_sigmoid of slope 0.2 (the authors' Keras fork)")
    gru_candidate: str = option("tanh", "the GRU's candidate: tanh, or sigmoid (the authors' Keras fork)")
    recurrent_gain: float = option(1.0, "factor on the orthogonal initial recurrent weights (1.1 in the Keras fork)")
    word_mask: str = option("sequence", "a word mask per sequence, or per minibatch (the Keras fork)")
    scaling: str = option(
        "retain", "retain: masks of 0 and 1, and a factor 1 - p at test time; inverted: masks of 0 and 1 / (1 - p)"
    )
    untied_naive: bool = option(False, "per-step masks are also drawn per gate (the Keras fork)")

    @property
    def user_files(self) -> bool:
        return self.reviews == "csv"


@dataclass
class TrainConfig:
    """Model selection, logging and checkpoints."""

    early_stopping: bool = option(False, "report the epoch with the best validation value instead of the last")
    patience: int = option(0, "stop training after this many epochs without improvement; 0 disables it")
    log_every: int = option(50, "updates between two readings of the loss (each synchronises with the device)")
    checkpoint_minutes: float = option(5.0, "minutes between two checkpoints inside an epoch")
    cuda_graph: bool = option(
        False, "replay the training step as one CUDA graph (a GPU only); checked against a step without it first"
    )


@dataclass
class MCConfig:
    """MC dropout: average the predictions over mask samples."""

    samples: int = option(1000, "stochastic passes over the test data; 0 skips MC dropout")
    word_dropout: bool = option(False, "keep word dropout on in MC (an ablation; the paper's 73.4 is without it)")
    rows: int = option(0, "samples evaluated as one batch; 0 chooses by device and vocabulary")
    memory_mb: int = option(0, "memory for the logits of one chunk, about half of the total; 0 chooses by device")


@dataclass
class LoggerConfig:
    """Where live curves are logged, in addition to log.csv."""

    name: str = option("csv", "the logger's name, that of its file in configs/logger; csv writes log.csv only")
    project: str = option("varrnn", "wandb: the project that runs appear in")
    mode: str = option("online", "wandb: online, offline or disabled")


@dataclass
class RunConfig:
    """One run."""

    model: ModelConfig = option(ModelConfig, "the dropout variant")
    size: SizeConfig = option(SizeConfig, "the network's size")
    optim: OptimConfig = option(OptimConfig, "the optimizer")
    task: TaskConfig = option(TaskConfig, "the data and the prediction target")
    train: TrainConfig = option(TrainConfig, "model selection, logging and checkpoints")
    mc: MCConfig = option(MCConfig, "MC dropout at test time")
    logger: LoggerConfig = option(LoggerConfig, "live curves")
    cell: str = option("lstm", f"the recurrent cell: {', '.join(CELLS)}")
    protocol: str = option("paper", "paper (as the text says), or authors_code (as their published code does)")
    seed: int = option(1, "seed of the initial weights, of the masks and of the shuffling")
    device: str = option("auto", "auto, cpu, cuda or cuda:N; auto takes a GPU if there is one")
    precision: str = option(
        "highest",
        "of matrix products: highest (float32), or high: TF32 on a GPU, sums of two bfloat16 numbers on a CPU with AMX",
    )
    threads: int = option(0, "CPU threads; 0 leaves the choice to torch")
    progress: bool = option(True, "show progress bars when the output is a terminal")
    runs_root: str = option("runs", "folder that holds all runs")
    run_dir: str | None = option(
        None, "this run's folder; default: built from the group choices, the changed options and the seed"
    )


TASKS = {LANGUAGE_MODEL: LanguageModelConfig, SENTIMENT: SentimentConfig}  # by kind, the module's name in tasks/
# options that may differ between two starts of one run, since they do not affect its numbers
EPOCHS_KEY = "optim.epochs"
NON_IDENTITY_KEYS = (
    *("device", "precision", "threads", "progress", "runs_root", "run_dir", "mc", "logger"),
    *("train.log_every", "train.checkpoint_minutes", "train.cuda_graph", "task.path", "task.headline"),
)
EVERY_EPOCH = 20  # up to this epoch a sentiment run measures its MC error after every epoch
SCALING = "task.scaling"  # of masks: has no effect on runs without dropout
EARLIER_HEADLINE = ("true", True)  # what early versions called "exact"
CHOICE_GROUPS = ("task", "size", "model", "cell", "protocol")


def flatten(config: RunConfig | Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"model.p_U": 0.2, ...}`: every option by its dotted name, sorted."""
    tree = asdict(config) if isinstance(config, RunConfig) else config
    flat: dict[str, Any] = {}
    for key in sorted(tree):
        if isinstance(tree[key], Mapping):
            flat |= flatten(tree[key], f"{prefix}{key}.")
        else:
            flat[prefix + key] = tree[key]
    return flat


def task_kind(task: Mapping[str, Any], prefix: str = "") -> str:
    """The kind of a saved task.

    Configs and records from before `task.kind` existed lack it; in these, only sentiment tasks have the option
    `reviews`.
    """
    return task.get(f"{prefix}kind") or (SENTIMENT if f"{prefix}reviews" in task else LANGUAGE_MODEL)


def effective(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options by dotted name, without those that have no effect in this run (mask scaling without dropout).

    A run's folder, the path of its record and the matching of records to runs are computed from them.
    """
    has_dropout = any(options.get(f"model.{name}") for name in DROP_RATES)
    return {key: value for key, value in options.items() if has_dropout or key != SCALING}


def mc_due(epoch: int, every: int, epochs: int) -> bool:
    """Whether a sentiment run of `epochs` epochs measures its MC error after `epoch`."""
    return epoch <= EVERY_EPOCH or epoch % every == 0 or epoch == epochs
