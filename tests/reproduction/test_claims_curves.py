"""Claims about validation curves of language models: curves as the paper describes them, and others."""

import numpy as np
import pytest
from helpers import records as synthetic

from varrnn.reproduction.claims import CLAIMS, judge
from varrnn.reproduction.claims.verdict import NOT_REPRODUCED, REPRODUCED
from varrnn.reproduction.runs import FIGURE3_MODELS, Run, figure2, language_model

BY_ID = {claim.id: claim for claim in CLAIMS}


def moon_curve(turn: int, top: float) -> list[dict]:
    run, epochs = language_model("large", "moon"), np.arange(1, 56)
    curve = 122.9 + np.where(epochs < turn, 4.0 * (turn - epochs), (epochs - turn) * (top - 122.9) / (30 - turn))
    history = {"epoch": epochs.tolist(), "valid_ppl_authors": curve.tolist()}
    return [synthetic.language_run(run, seed, 122.9, 118.7) | {"history": history} for seed in (1, 2, 3)]


@pytest.mark.parametrize(
    ("turn", "top", "status"), [(16, 131, REPRODUCED), (16, 124, NOT_REPRODUCED), (24, 131, NOT_REPRODUCED)]
)
def test_c18_moon_turns_at_epoch_16(records_of, turn, top, status) -> None:
    assert judge(BY_ID["C18"], records_of(moon_curve(turn, top))).status == status


def falling_and_rising(run: Run, low: float, end: float) -> list[dict]:
    """Three seeds whose validation curve falls to `low` in 20 epochs and ends at `end` in 19 more."""
    curve = np.concatenate([np.linspace(3 * low, low, 20), np.linspace(low, end, 20)[1:]])
    history = {"epoch": list(range(1, 40)), "valid_ppl_authors": curve.tolist()}
    return [synthetic.language_run(run, seed, end, end) | {"history": history} for seed in (1, 2, 3)]


@pytest.mark.parametrize(("end", "status"), [(88.5, REPRODUCED), (89.5, REPRODUCED), (90.0, NOT_REPRODUCED)])
def test_c19_moon_with_word_dropout_ends_at_its_lowest(records_of, end, status) -> None:
    contents = falling_and_rising(language_model("large", "moon_emb"), 88.5, end)
    assert judge(BY_ID["C19"], records_of(contents)).status == status


def without_decay(levels: list[tuple[float, float]]) -> list[dict]:
    """The runs of figure 2 with these lowest and last values: variational, naive, none."""
    return [
        content for run, (low, end) in zip(figure2().values(), levels) for content in falling_and_rising(run, low, end)
    ]


@pytest.mark.parametrize(
    ("lows", "status"),
    [
        ((84.0, 88.0, 125.0), REPRODUCED),
        ((89.0, 88.0, 125.0), NOT_REPRODUCED),  # naive is lower
        ((89.0, 125.0, 88.0), NOT_REPRODUCED),  # none is lower
    ],
)
def test_c23_the_lowest_point_without_decay_is_the_variational_one(records_of, lows, status) -> None:
    contents = without_decay([(low, 130.0) for low in lows])  # the final value is not part of the claim
    assert judge(BY_ID["C23"], records_of(contents)).status == status


@pytest.mark.parametrize("better", [None, *FIGURE3_MODELS])
def test_c24_decay_helps_every_model(records_of, better) -> None:
    with_decay = dict(zip(FIGURE3_MODELS, (82.0, 86.0, 121.0)))
    lows = [level + (-1.0 if model == better else 1.0) for model, level in with_decay.items()]
    contents = without_decay([(low, 130.0) for low in lows])
    for model, level in with_decay.items():
        contents += [synthetic.language_run(language_model("medium", model), seed, level, level) for seed in (1, 2, 3)]
    assert judge(BY_ID["C24"], records_of(contents)).status == (NOT_REPRODUCED if better else REPRODUCED)


@pytest.mark.parametrize(
    ("rises", "status"),
    [
        ((1.0, 10.0, 30.0), REPRODUCED),
        ((20.0, 10.0, 30.0), NOT_REPRODUCED),  # variational rises more than naive
        ((1.0, 30.0, 10.0), NOT_REPRODUCED),  # naive rises more than none
    ],
)
def test_c25_none_rises_most_and_variational_least(records_of, rises, status) -> None:
    lows = (90.0, 80.0, 70.0)  # their order is not part of the claim
    contents = without_decay([(low, low + rise) for low, rise in zip(lows, rises)])
    assert judge(BY_ID["C25"], records_of(contents)).status == status
