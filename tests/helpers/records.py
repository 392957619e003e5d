"""Synthetic records for tests of tables, figures and claims: complete, partial and no evidence."""

import json
from pathlib import Path

import numpy as np

from varrnn.config.identity import identity_of
from varrnn.records.integrity import KNOWN_DATA, with_digest
from varrnn.reproduction.claims.sentiment import CLAIMS as SENTIMENT
from varrnn.reproduction.published import TABLE1
from varrnn.reproduction.runs import SEEDS, Run, language_model


def nested(options: dict) -> dict:
    tree: dict = {}
    for key, value in options.items():
        *groups, leaf = key.split(".")
        node = tree
        for group in groups:
            node = node.setdefault(group, {})
        node[leaf] = value
    return tree


def data_of(task: str) -> dict:
    return {"name": task, "sha256": KNOWN_DATA.get(task, "0" * 64)}


def record(run: Run, seed: int, metrics: dict, history: dict | None = None, **content) -> dict:
    """A record of this run, with its config composed as run.py does."""
    identity = identity_of(run)
    made = {
        "schema": 1,
        "status": "finished",
        "choices": dict(identity.choices),
        "diff": {},
        "seed": seed,
        "config": nested({**identity.options, "seed": seed, "mc.word_dropout": False}),
        "metrics": metrics,
        "history": history or {"epoch": [1]},
        "data": data_of(identity.choices["task"]),
        "commit": "0" * 40,
        "dirty": False,
        "hardware": {"cpu": "Example CPU", "cores": 2, "gpu": None, "threads": 2},
    }
    return made | content


def language_run(run: Run, seed: int, valid: float, test: float, mc: float | None = None, epochs: int = 39) -> dict:
    """A language model that falls to its level (and stays there)."""
    epoch = np.arange(1, epochs + 1)
    curve = valid * (1 + 3 * np.exp(-epoch / 3))
    curve[-1] = valid
    metrics = {
        "valid_ppl": valid * 1.015,
        "valid_ppl_authors": valid,
        "test_ppl": test,
        "test_ppl_mc": mc,
        "test_ppl_mc_se": 0.01,
        "mc_samples": 1000,
        "wps_train": 5000.0,
        "wps_authors": 4800.0,
        "best_epoch": epochs,
        "epochs": epochs,
    }
    history = {"epoch": epoch.tolist(), "valid_ppl_authors": curve.tolist(), "valid_ppl": (curve * 1.015).tolist()}
    samples = [1, 10, 100, 1000]
    curve_mc = {"samples": samples, "ppl": [mc * (1 + 0.1 / n) for n in samples]} if mc else None
    return record(run, seed, metrics, history, mc_curve=curve_mc)


def table1_records(size: str, seeds: tuple[int, ...] = SEEDS, at: str | None = None) -> list[dict]:
    """Runs that give exactly the paper's Table 1, with a spread of ±0.1 over seeds."""
    rows = {(row.model, row.mc): row for row in TABLE1[size]}
    made = []
    for (model, mc), row in rows.items():
        if not mc:
            with_mc = rows.get((model, True))
            for seed in seeds:
                off = 0.1 * (seed - 2)
                mc_level = with_mc.test + off if with_mc else None
                run = language_model(at or size, model)
                made.append(language_run(run, seed, row.valid + off, row.test + off, mc_level, 55))
    return made


def sentiment_run(
    run: Run, seed: int, epochs: int = 120, final: float = 0.16, rise: float = 0.0, rough: float = 0.0
) -> dict:
    """A test curve that falls to final - rise and climbs to final, with an error of epoch-to-epoch size `rough`."""
    epoch = np.arange(1, epochs + 1)
    noise = np.random.default_rng([seed, *map(ord, " ".join(run))]).normal(size=epochs)
    low = final - rise
    test = low + 0.03 * np.exp(-epoch / 2) + rise * np.clip((epoch - 10) / 60, 0, 1) + rough * noise
    measured = (epoch <= 20) | (epoch % 5 == 0)
    test_mc = [float(value) if use else None for value, use in zip(test, measured)]
    train = (0.03 if rise else 0.12) + 0.15 * np.exp(-epoch / 8)
    history = {"epoch": epoch.tolist(), "test_rmse_mc": test_mc, "test_rmse": (test + 0.001).tolist()}
    history["train_rmse"] = train.tolist()
    if identity_of(run).rates:
        history["train_rmse_mc"] = [float(value) if use else None for value, use in zip(train - 0.001, measured)]
        history["train_rmse"] = (train + 0.03).tolist()  # the approximation overstates it
    metrics = {"constant_rmse": 0.19146, "ridge_rmse": 0.152, "test_rmse_mc": float(test[-1]), "test_ll": -1.0}
    losses = (0.03 + np.exp(-np.arange(0, 83 * epochs, 20) / 500)).tolist()
    return record(run, seed, metrics, history, batches={"train_loss": losses, "every": 20})


def sentiment_records(seeds: tuple[int, ...] = SEEDS, epochs: int = 120) -> list[dict]:
    """Every run of figures 3 to 15, with curves as the paper describes them."""
    made = {}
    for claim in SENTIMENT:
        for run in claim.runs.values():
            for seed in seeds:
                key = (repr(identity_of(run)), seed)  # two lists of overrides may describe one run
                if key not in made:
                    made[key] = sentiment_run(run, seed, epochs, **shape(run))
    return list(made.values())


def shape(run: Run) -> dict:
    """The curve of one run as the paper describes it: its final value, its rise before, and its roughness."""
    given = dict(override.split("=") for override in run)
    if given["model"] == "none":
        return {"final": 0.18, "rise": 0.02 if given["cell"] == "lstm" else 0.04, "rough": 0.003}
    if given["model"] == "naive_recurrent":
        return {"final": 0.18, "rise": 0.012, "rough": 0.003}
    if given["model"] == "naive":
        return {"final": 0.175, "rise": 0.012, "rough": 0.003}
    p_E, p_U = float(given.get("model.p_E", 0.5)), float(given.get("model.p_U", 0.5))
    if "model.p_E" not in given:
        return {"final": 0.155, "rough": 0.0002}
    steps = float(given.get("task.steps", 200))
    decay = np.log10(float(given["optim.weight_decay"]) or 1e-6) + 6
    final = 0.165 - 0.002 * decay + 0.002 * np.log2(400 / steps) - 0.01 * (p_E - 0.5) + (0.02 * p_U if p_E == 0 else 0)
    rise = 0.012 * (1 - p_U) if p_E else 0.01
    return {
        "final": float(final),
        "rise": rise if p_E < 0.5 or p_U < 0.5 else 0.0,
        "rough": 0.004 if p_U == 0 < p_E else 0.0005,
    }


def save(records: list[dict], folder: Path) -> Path:
    """Write them as results/records has them."""
    for number, content in enumerate(records):
        kind = "benchmark" if "machine" in content else content.get("kind", "run")
        path = folder / kind / f"{number}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(with_digest(content)))
    return folder


def ensemble(size: str, model: str, members: int, test: float) -> dict:
    mc = model.startswith("variational")
    return {
        "schema": 1,
        "kind": "ensemble",
        "choices": dict(identity_of(language_model(size, model)).choices),
        "diff": {},
        "members": members,
        "mc": mc,
        "mc_samples": 1000 if mc else 0,
        "mc_word_dropout": False,
        "metrics": {"test_ppl": test},
        "data": data_of("ptb"),
    }


def benchmark(gpu: str | None = None) -> dict:
    speeds = {"limit": 1650, "nn_lstm": 1420, "loop_tied": 760, "loop_untied": 500, "naive": 1400, "moon": 1400}
    speeds |= {"variational_tied": 1400, "variational_untied": 1380}
    machine = {"cpu": "Example CPU", "cores": 2, "threads": 2, "gpu": gpu, "torch": "2.13.0"}
    medium = speeds | {"untied_to_tied": 0.99, "ratio_to_limit": {k: v / 1650 for k, v in speeds.items()}, "rounds": 9}
    medium["mc"] = {"sequential": 250, "batched": 4500, "batched_to_loop": 18.0}
    medium["side_by_side"] = {"runs": 2, "one_run": 1000, "side_by_side": 1070, "ratio": 1.07, "rounds": 9}
    return {"machine": machine, "medium": medium, "large": {k: v / 4 for k, v in speeds.items()}}
