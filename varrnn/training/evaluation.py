"""Final metrics of a trained model by the dropout approximation, and loading of the reported parameters."""

from pathlib import Path

from varrnn.config.identity import folder_identity
from varrnn.config.schema import RunConfig
from varrnn.errors import UserError
from varrnn.tasks.base import Metrics, Task
from varrnn.tasks.model import SequenceModel
from varrnn.training import checkpoint
from varrnn.training import summary as run_summary
from varrnn.training.trainer import BEST, CHECKPOINT, Progress


def final_metrics(task: Task, model: SequenceModel, config: RunConfig, folder: Path, progress: Progress) -> Metrics:
    """The final metrics of the last and the best epoch; names without a suffix are those of the reported epoch."""
    model.eval()
    row = {name: values[-1] for name, values in progress.history.items() if values[-1] is not None}
    last = task.final_metrics(model, row)
    best = last
    if progress.best_epoch not in (0, progress.epoch - 1):
        load_parameters(model, config, folder / BEST, progress.best_epoch)
        best = task.final_metrics(model)
    reported = best if config.train.early_stopping else last
    metrics = dict(reported)
    if task.selection_metric is not None:
        metrics |= {f"{name}_last": value for name, value in last.items()}
        metrics |= {f"{name}_best": value for name, value in best.items()}
        metrics["best_epoch"] = progress.best_epoch
    return metrics | {
        **task.reference_metrics(),
        "epochs": progress.epoch - 1,
        "wps_train": progress.words / progress.train_seconds,
        "wps_authors": progress.words / progress.total_seconds,
        "parameters": sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad),
    }


def load_parameters(model: SequenceModel, config: RunConfig, file: Path, epoch: int | None) -> None:
    """Load checkpoint.pt or best.pt into the model; raises if it is of another run or epoch."""
    saved = checkpoint.load(file)
    checkpoint.check_identity(file, saved, folder_identity(config))
    with checkpoint.checkpoint_errors(file):
        found = saved["epoch"] if file.name == BEST else saved["progress"]["epoch"] - 1
    if epoch is not None and found != epoch:
        raise UserError(
            f"{file}: contains epoch {found}, but this run's metrics are of epoch {epoch}; {checkpoint.TRAIN_AGAIN}"
        )
    checkpoint.load_weights(model, saved, file)


def load_reported_weights(model: SequenceModel, config: RunConfig, folder: Path) -> None:
    """Load the parameters of the reported metrics of a finished run."""
    summary = run_summary.load_finished(folder)
    if config.train.early_stopping:
        load_parameters(model, config, folder / BEST, summary["metrics"].get("best_epoch"))
    else:
        load_parameters(model, config, folder / CHECKPOINT, summary["history"]["epoch"][-1])
