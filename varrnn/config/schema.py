"""Every option of a run as a typed field with a sentence on it; YAML files in configs/ only give values to these.

Knows dataclasses and nothing else, so that the library below never needs Hydra.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

DROP_RATES = (
    "p_E",
    "p_W",
    "p_U",
    "p_c",
    "p_y",
)  # the probabilities of dropping: words, inputs, states, memory, outputs

OTHER_FOLDER = "choose another folder with runs_root= or run_dir="  # what to do when a run's folder cannot be written


def option(default, help_text: str):
    """A field with its explanation, which `python run.py --help` prints and a test asks for."""
    made = {"default_factory": default} if callable(default) else {"default": default}
    return field(**made, metadata={"help": help_text})


@dataclass
class ModelConfig:
    """A variant is data: five probabilities of DROPPING and three sharing rules (paper, section 4)."""

    name: str = option("", "the variant's name: that of its file in configs/model")
    p_E: float = option(0.0, "probability of dropping a word type (embedding dropout)")
    p_W: float = option(0.0, "probability of dropping an input of each recurrent layer")
    p_U: float = option(0.0, "probability of dropping a recurrent connection")
    p_c: float = option(0.0, "probability of dropping an LSTM memory cell (Moon et al.)")
    p_y: float = option(0.0, "probability of dropping an input of the output layer")
    per_step: bool = option(False, "draw new masks at every time step (naive dropout) instead of one per sequence")
    per_gate: bool = option(False, "an independent mask for each gate (untied weights) instead of one for all (tied)")
    per_batch: bool = option(
        False, "one mask for all sequences of a batch instead of one for each: torch's own kernels (cuDNN) can run it"
    )
    cell_scaling: str = option("read", "where Moon's mask is scaled: read (sane), step or inverted (to see why)")
    word_tokens: bool = option(False, "drop word tokens instead of word types: what the authors' code really did")

    @property
    def drops(self) -> bool:
        """Is there anything random in the model? Without dropout MC is the deterministic pass."""
        return any(getattr(self, name) for name in DROP_RATES)


@dataclass
class SizeConfig:
    """How large the network is."""

    name: str = option("", "the size's name: that of its file in configs/size")
    units: int = option(128, "units per recurrent layer, and the embedding's dimension")
    layers: int = option(2, "recurrent layers")
    init: float = option(
        0.1, "every parameter starts uniform in [-init, init] (language models); the word embeddings only (sentiment)"
    )


@dataclass
class OptimConfig:
    """How the parameters are moved."""

    method: str = option("sgd", "sgd (language models) or adam (sentiment)")
    lr: float = option(1.0, "learning rate of the first epochs")
    epochs: int = option(10, "passes over the training data")
    schedule: str = option("decay", "decay, or constant: the learning rate is never reduced (figure 2)")
    decay: float = option(1.0, "after epoch max_epoch + 1 the learning rate is divided by this every epoch")
    max_epoch: int = option(1000, "epochs 1 to max_epoch + 1 run at the full learning rate")
    clip: float = option(5.0, "largest allowed global gradient norm; 0 never clips")
    weight_decay: float = option(
        0.0, "sgd: parameters are multiplied by 1 - weight_decay; adam: weight_decay * sum w^2"
    )
    decay_rule: str = option("all", "what weight decay reaches: all parameters, or one_gate (the Keras fork's fault)")


@dataclass
class TaskConfig:
    """What every task has; see the subclasses."""

    name: str = option("", "the task's name")
    path: str | None = option(None, "folder (or file) of the data; default: $VARRNN_DATA/<corpus>, then data/<corpus>")
    steps: int = option(35, "length T of a training sequence")
    batch_size: int = option(20, "sequences per update")

    @property
    def own_files(self) -> bool:
        """Are the data the user's, so that they may change between two starts?"""
        return False


@dataclass
class LanguageModelConfig(TaskConfig):
    """Predict the next word; perplexity."""

    corpus: str = option("pydoc", "which text: ptb, pydoc or text (your own files)")
    train: str | None = option(None, "corpus=text: the training text")
    valid: str | None = option(None, "corpus=text: the validation text")
    test: str | None = option(None, "corpus=text: the test text")
    min_count: int | None = option(None, "corpus=text: rarer words become <unk>; default 2, or 1 where <unk> is there")
    headline: str = option("exact", "which validation perplexity is shown first: exact, or authors (their normaliser)")

    @property
    def own_files(self) -> bool:
        return self.corpus == "text"


@dataclass
class SentimentConfig(TaskConfig):
    """Predict a rating from a segment of T words; root mean squared error in units of the ratings."""

    reviews: str = option("synthetic", "which reviews: cornell, synthetic or csv (your own file)")
    csv: str | None = option(None, "reviews=csv: a file with the columns text and rating; task=reviews takes task.path")
    max_words: int = option(20_000, "ids from here on are one and the same unknown word")
    hold_out: float = option(
        0.0, "share of the training reviews set apart for choosing rates; they replace the test curve"
    )
    mc_samples: int = option(
        10, "stochastic passes of the per-epoch test error, 50 in the last tenth; 0 measures the approximation only"
    )
    mc_every: int = option(5, "MC test error at epochs 1 to 20, at the last, and at every one divisible by this")
    gate_activation: str = option("sigmoid", "sigmoid, or hard_sigmoid of slope 0.2 (the authors' Keras fork)")
    gru_candidate: str = option("tanh", "the GRU's candidate: tanh, or sigmoid (the authors' Keras fork)")
    recurrent_gain: float = option(1.0, "the orthogonal recurrent weights start times this (1.1 in the Keras fork)")
    word_mask: str = option("sequence", "a word mask per sequence, or per minibatch (the Keras fork)")
    scaling: str = option(
        "retain", "retain: masks of 0 and 1, and a factor 1 - p at test; inverted: masks of 1 / (1 - p)"
    )
    untied_naive: bool = option(False, "masks drawn at every step are also drawn for every gate (the Keras fork)")

    @property
    def own_files(self) -> bool:
        return self.reviews == "csv"


@dataclass
class TrainConfig:
    """How a run is carried out."""

    early_stopping: bool = option(False, "report the epoch with the best validation value instead of the last")
    patience: int = option(0, "cut the run short after this many epochs without improvement; 0 never does")
    log_every: int = option(50, "updates between two looks at the loss (each look waits for the device)")
    checkpoint_minutes: float = option(5.0, "minutes between two checkpoints inside an epoch")
    cuda_graph: bool = option(
        False, "replay the training step as one CUDA graph (a GPU only); checked against a step without it first"
    )


@dataclass
class MCConfig:
    """MC dropout: average the predictions of several mask samples."""

    samples: int = option(1000, "stochastic passes over the test data; 0 skips MC dropout")
    word_dropout: bool = option(False, "keep word dropout on in MC (an ablation; off behind the paper's 73.4)")
    rows: int = option(0, "samples evaluated as one batch; 0 chooses by device and vocabulary")
    memory_mb: int = option(0, "memory for the logits of one chunk, about half of what is used; 0 chooses by device")


@dataclass
class Logger:
    """Where live curves go, beside log.csv."""

    name: str = option("csv", "csv (log.csv alone), tensorboard or wandb")
    project: str = option("varrnn", "wandb: the project that runs appear in")
    mode: str = option("online", "wandb: online, offline or disabled")


@dataclass
class RunConfig:
    """One run."""

    model: ModelConfig = option(ModelConfig, "the dropout variant")
    size: SizeConfig = option(SizeConfig, "the network's size")
    optim: OptimConfig = option(OptimConfig, "the optimizer")
    task: TaskConfig = option(TaskConfig, "the data and what is predicted")
    train: TrainConfig = option(TrainConfig, "how the run is carried out")
    mc: MCConfig = option(MCConfig, "MC dropout at test time")
    logger: Logger = option(Logger, "live curves")
    cell: str = option("lstm", "lstm, gru or rnn")
    protocol: str = option("paper", "paper (the text), or authors_code (what their code did)")
    seed: int = option(1, "seed of the initial weights, of the masks and of the shuffling")
    device: str = option("auto", "auto, cpu, cuda or cuda:1; auto takes a GPU where there is one")
    precision: str = option("highest", "of products on a GPU: highest (float32), or high (TF32, from Ampere on)")
    threads: int = option(0, "CPU threads; 0 leaves the choice to torch")
    progress: bool = option(True, "show progress bars when the output is a terminal")
    runs_root: str = option("runs", "folder that holds all runs")
    run_dir: str | None = option(
        None, "this run's folder; default: made from the choices, the differences and the seed"
    )


TASKS = {"language_model": LanguageModelConfig, "sentiment": SentimentConfig}
# what may differ between two starts of one run: where and how it is carried out, not what is computed
EPOCHS_KEY = "optim.epochs"
NON_IDENTITY_KEYS = (
    *("device", "precision", "threads", "progress", "runs_root", "run_dir", "mc", "logger"),
    *("train.log_every", "train.checkpoint_minutes", "train.cuda_graph", "task.path", "task.headline"),
)
EVERY_EPOCH = 20  # up to here a sentiment run measures its MC error after every epoch
SCALING = "task.scaling"  # of masks, which runs without dropout do not have
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


def effective(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options by dotted name, without what changes nothing in this run: scaling of masks where nothing is dropped.

    A run's folder, the place of its record and the match between the two all rest on this.
    """
    drops = any(options.get(f"model.{name}") for name in DROP_RATES)
    return {key: value for key, value in options.items() if drops or key != SCALING}


def mc_due(epoch: int, every: int, epochs: int) -> bool:
    """Whether a sentiment run of so many epochs measures its MC error after this one."""
    return epoch <= EVERY_EPOCH or epoch % every == 0 or epoch == epochs
