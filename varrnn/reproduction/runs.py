"""The runs behind the paper's tables and figures, written as run.py overrides (without the seed).

Tables, figures and claims build their runs with the functions below, so that equal settings are the same run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from varrnn.config.identity import Run

SEEDS = (1, 2, 3)  # "each experiment was repeated 3 times with different random seeds"
TABLE1_MODELS = ("none", "moon", "moon_emb", "naive", "variational_tied", "variational_untied")
FIGURE3_MODELS = ("variational_untied", "naive", "none")
SWEPT_RATES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)  # "p = 0, ..., 0.5"; the steps are ours
WEIGHT_DECAYS = (1e-6, 1e-5, 1e-4, 1e-3)
LENGTHS = (20, 50, 200, 400)


def language_model(size: str, model: str, *extra: str) -> Run:
    """One row of Table 1, or the same for the small model."""
    return (f"experiment=ptb_{size}", f"model={model}", *extra)


def small_grid() -> dict[str, list[Run]]:
    """The planned, coarse grid of each small model, around half of the medium model's dropout rates."""
    grids: dict[str, list[Run]] = {
        model: [(f"model.p_U={p_U}", f"model.p_W={p_W}") for p_U in (0.05, 0.1) for p_W in (0.15, 0.25)]
        for model in ("variational_tied", "variational_untied")
    }
    grids["naive"] = [(f"model.p_W={p}",) for p in (0.15, 0.25, 0.35)]
    grids["moon"] = [(f"model.p_c={p}",) for p in (0.1, 0.2)]
    grids["moon_emb"] = [(f"model.p_c={p}", "model.p_E=0.1") for p in (0.1, 0.2)]
    return {model: [language_model("small", model, *point) for point in points] for model, points in grids.items()}


def sentiment(model: str, cell: str = "lstm", steps: int = 200, protocol: str = "paper", **rates: float) -> Run:
    """One curve of figures 3 to 15; `rates` are p_E p_W p_U p_y and weight_decay; the tuned values by default."""
    run = ["experiment=cornell", f"model={model}", f"cell={cell}"]
    if steps != 200:
        run.append(f"task.steps={steps}")
    if protocol != "paper":
        run.append(f"protocol={protocol}")
    run += [f"{'optim' if key == 'weight_decay' else 'model'}.{key}={value:g}" for key, value in sorted(rates.items())]
    return tuple(run)


def variational_sweep(p_E: float, p_U: float, weight_decay: float = 1e-6, **others: object) -> Run:
    """A Variational LSTM of figures 4 to 9 and 15.

    Differs: the paper gives neither p_W, p_y nor the weight decay of figures 4 to 9 and 15, nor p_E and p_U of figures
    6 and 7; they are the defaults of the authors' scripts, .5 and 1e-6.
    """
    rates = {"p_E": p_E, "p_U": p_U, "p_W": 0.5, "p_y": 0.5, "weight_decay": weight_decay}
    return sentiment("variational_untied", **rates, **others)  # type: ignore[arg-type]


def gru_grid() -> dict[tuple[float, float], Run]:
    """Figure 10's Variational GRUs, (p, weight decay) -> run: the appendix's grid, and 1e-3, its stated optimum."""
    return {(p, decay): grid_point("gru", p, decay) for p in (0.25, 0.5) for decay in WEIGHT_DECAYS}


def grid_point(cell: str, p: float, weight_decay: float) -> Run:
    """All four probabilities at p, as in the appendix."""
    return sentiment("variational_untied", cell, p_E=p, p_U=p, p_W=p, p_y=p, weight_decay=weight_decay)


def no_recurrent(cell: str, p: float) -> Run:
    """Not in the paper: the same without the recurrent mask, with the weight decay of the authors' scripts."""
    return sentiment("variational_untied", cell, p_E=p, p_U=0.0, p_W=p, p_y=p, weight_decay=1e-6)


def figure2() -> dict[str, Run]:
    """The medium models of figure 2: constant learning rate, without early stopping."""
    return {model: language_model("medium", model, "optim=no_decay", "train.patience=0") for model in FIGURE3_MODELS}


def figure3(cell: str) -> dict[str, Run]:
    """The three models of figures 3, 13 and 14, for one kind of cell."""
    return {model: sentiment(model, cell) for model in FIGURE3_MODELS}


def stated_optimum() -> Run:
    """The Variational LSTM with the appendix's stated optimum, p = .25 and weight decay 1e-3."""
    return grid_point("lstm", 0.25, 1e-3)


def figure3_authors(cell: str) -> dict[str, Run]:
    """Figure 3 as the authors' code computes it: their scripts' defaults, p = .5 and 1e-6.

    The LSTM also at the optimum that the paper states. The naive and the standard model have no weight decay.
    """
    runs = {"variational": (0.5, 1e-6)} | ({"stated optimum": (0.25, 1e-3)} if cell == "lstm" else {})
    made = {role: (*grid_point(cell, p, decay), "protocol=authors_code") for role, (p, decay) in runs.items()}
    return made | {model: sentiment(model, cell, protocol="authors_code") for model in ("naive", "none")}


def fixed_mask() -> Run:
    """Figure 11's "dropout LSTM": one mask for all steps, on inputs and outputs only.

    Differs: the paper states no weight decay for the Variational LSTM of figure 11 (the optimal one has 1e-3);
    ours gets none, like the naive LSTM that it is compared with, so that only the masks differ.
    """
    return sentiment("variational_untied", p_E=0.0, p_U=0.0, p_W=0.5, p_y=0.5, weight_decay=0.0)


def format_decay(decay: float) -> str:
    """A weight decay as `1e-6`."""
    return f"{decay:.0e}".replace("e-0", "e-")


def command(run: Sequence[str], seeds: Iterable[int] = SEEDS) -> str:
    """The command that makes these runs; finished ones are skipped by run.py."""
    seeds = list(seeds)
    values = ",".join(map(str, seeds))
    several = len(seeds) > 1 or any("," in override for override in run)
    return " ".join(["python run.py", *(["-m"] if several else []), *run, f"seed={values}"])


def commands(missing: Iterable[tuple[Run, Sequence[int]]]) -> list[str]:
    """Combine runs that differ in one override into one multirun, to get few commands."""
    by_seeds: dict[tuple[int, ...], list[Run]] = {}
    for run, seeds in missing:
        by_seeds.setdefault(tuple(seeds), []).append(run)
    return [command(run, seeds) for seeds, runs in by_seeds.items() for run in _merged(runs)]


def _merged(runs: list[Run]) -> list[Run]:
    runs = list(dict.fromkeys(runs))
    for key in dict.fromkeys(override.split("=")[0] for run in runs for override in run):
        runs = _merge_over(key, runs)
    return runs


def _merge_over(key: str, runs: list[Run]) -> list[Run]:
    """Join the values of one key where everything else is equal: a=1 b=2, a=1 b=3 -> a=1 b=2,3."""
    joined: dict[Run, list[str]] = {}
    for run in runs:
        rest = tuple(f"{key}=?" if override.startswith(f"{key}=") else override for override in run)
        own = [override.split("=", 1)[1] for override in run if override.startswith(f"{key}=")]
        joined.setdefault(rest, []).extend(own)
    return [tuple(o.replace("?", ",".join(values)) for o in rest) for rest, values in joined.items()]


FIGURE4A = {f"p_E={p_E:g} p_U={p_U:g}": variational_sweep(p_E, p_U) for p_E in (0.0, 0.5) for p_U in (0.0, 0.5)}
FIGURE4B = {f"{p_U:g}": variational_sweep(0.0, p_U) for p_U in SWEPT_RATES}
FIGURE4C = {f"{p_U:g}": variational_sweep(0.5, p_U) for p_U in SWEPT_RATES}
FIGURE5 = {f"{p_E:g}": variational_sweep(p_E, 0.5) for p_E in SWEPT_RATES}
FIGURE6 = {format_decay(decay): variational_sweep(0.5, 0.5, decay) for decay in WEIGHT_DECAYS}
FIGURE6_ONE_GATE = {decay: (*run, "optim.decay_rule=one_gate") for decay, run in FIGURE6.items()}
FIGURE7 = {str(steps): variational_sweep(0.5, 0.5, steps=steps) for steps in LENGTHS}
FIGURE8 = {f"{p_E:g}": variational_sweep(p_E, 0.5, steps=50) for p_E in SWEPT_RATES}
FIGURE10 = {f"p={p:g} decay={format_decay(decay)}": run for (p, decay), run in gru_grid().items()}
FIGURE11 = {"naive": sentiment("naive"), "fixed mask": fixed_mask()}
