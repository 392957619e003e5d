"""Export a finished run for sharing: weights in half precision, config, vocabulary, metrics and a model card."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from varrnn import fileio
from varrnn.config import compose
from varrnn.config.schema import LoggerConfig, RunConfig
from varrnn.data import registry
from varrnn.errors import UserError
from varrnn.training import summary as run_summary
from varrnn.training.trained import TrainedRun, open_run
from varrnn.training.vocabulary import VOCABULARY
from varrnn.training.weights import CARD, METRICS, WEIGHTS, save_weights, write_metrics

SHOWN = ("valid_ppl", "test_ppl", "test_ppl_mc", "test_rmse", "test_rmse_mc")


def export_run(folder: Path, out: Path) -> int:
    """Write everything into `out`; returns the size of the weights in bytes."""
    summary = run_summary.load_finished(folder)
    if summary.get("dirty"):
        raise UserError(f"{folder}: was computed by code with uncommitted changes; train it from a clean checkout")
    run = open_run(folder)
    fileio.make_folder(out)
    size = save_weights(run.model, out / WEIGHTS)
    compose.save_config(portable(run.config), out / "config.yaml")
    fileio.write_text(out / VOCABULARY, json.dumps(run.content, ensure_ascii=False) + "\n")
    kept = {key: summary[key] for key in ("metrics", "data", "seed", "commit", "versions")}
    write_metrics(out / METRICS, run_summary.nan_to_null(kept))
    fileio.write_text(out / CARD, model_card(run, summary, size, out.name))
    return size


def portable(config: RunConfig) -> RunConfig:
    """The config without paths of this machine."""
    task = replace(config.task, path=None)
    for option in compose.USER_FILES:
        name = option.removeprefix("task.")
        if getattr(task, name, None):
            setattr(task, name, Path(getattr(task, name)).name)
    machine: dict[str, Any] = {
        "device": "auto",
        "threads": 0,
        "runs_root": "runs",
        "run_dir": None,
        "logger": LoggerConfig(),
    }
    return replace(config, task=task, **machine)


def model_card(run: TrainedRun, summary: dict[str, Any], size: int, name: str) -> str:
    """A model card of ten lines: the model, its training data, its results, and how to use it."""
    config, metrics = run.config, summary["metrics"]
    rates = ", ".join(f"{key} {value}" for key, value in summary["config"]["model"].items()
                      if key.startswith("p_") and value)  # fmt: skip
    numbers = ", ".join(f"{key} {metrics[key]:.2f}" for key in SHOWN if metrics.get(key) is not None)
    network = f"{config.size.layers} layers of {config.size.units} {config.cell.upper()} units"
    corpus = registry.describe(summary["data"]["name"])
    if run.is_language_model:
        use = f'`python scripts/generate.py results/weights/{name} --prompt "the company said"`'
    else:
        use = f'`python scripts/predict.py results/weights/{name} --text "..."`'
    lines = [
        f"# {name}",
        "",
        f"- Model: {config.model.name} (Gal & Ghahramani, 2016), {network}, {metrics['parameters']:,.0f} parameters.",
        f"- Dropout probabilities: {rates or 'none'}.",
        f"- Trained on {corpus}; the corpus itself is not included. SHA-256 {summary['data']['sha256'][:16]}.",
        f"- Training: {metrics['epochs']:.0f} epochs, seed {summary['seed']}, commit {summary['commit'][:12]}.",
        f"- Results of that run in single precision: {numbers}.",
        f"- Files: weights in half precision ({size / 1e6:.1f} MB, safetensors), config, vocabulary, metrics.",
        f"- Use: {use}, or `varrnn.training.open_run(folder)`.",
        "- For research and demonstration; it repeats the style and the biases of its corpus.",
    ]
    return "\n".join(lines) + "\n"
