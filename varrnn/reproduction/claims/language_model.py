"""Claims C1 to C25, C46 to C48 and C50: perplexity on the Penn Treebank, as data."""

from __future__ import annotations

from varrnn.reproduction.claims.perplexity_rules import (
    MC,
    TEST,
    VALID,
    all_of,
    approx_equal,
    best_level,
    decay_helps,
    does_not_overfit,
    less_than,
    mc_gain,
    mc_untied_wins,
    no_decay_order,
    overfits_from_16,
    paired,
    rise_order,
    within_percent,
)
from varrnn.reproduction.claims.special import judge_ensembles, judge_kernel_speed, judge_loop_speed
from varrnn.reproduction.claims.verdict import Claim
from varrnn.reproduction.published import PUBLISHED_SMALL, TABLE1, Row
from varrnn.reproduction.runs import Run, figure2, language_model

TIED, UNTIED, NAIVE, NONE = "variational_tied", "variational_untied", "naive", "none"
RECURRENT = "naive_recurrent"
MOON, MOON_EMB = "moon", "moon_emb"
SIZES = ("medium", "large")
SMALL_NONE = {"valid_ppl": PUBLISHED_SMALL[0].valid, TEST: PUBLISHED_SMALL[0].test}


def at(size: str, *models: str) -> dict[str, Run]:
    """The runs of these models at one size, by model."""
    return {model: language_model(size, model) for model in models}


def level_claim(letter: str, row: Row) -> Claim:
    """C11: the absolute level of one row of Table 1, medium."""
    levels = {MC: row.test} if row.mc else {VALID: row.valid, TEST: row.test}
    numbers = f"{row.test:.1f}" if row.mc else f"{row.valid:.1f} / {row.test:.1f}"
    statement = f"medium, level of {row.label}"
    rule = within_percent(row.model, levels, 2)
    return Claim(f"C11{letter}", statement, numbers, at("medium", row.model), rule, mc=row.mc, rule_text="within 2 %")


MEDIUM = (
    Claim("C1", "medium, validation: tied variational < naive", "81.8 < 86.2", at("medium", TIED, NAIVE),
          less_than(TIED, NAIVE, VALID, 1.5, 2), small_size=True, rule_text="difference >= 1.5 and > 2 sd"),
    Claim("C2", "medium, test: tied variational < naive", "79.7 < 82.7", at("medium", TIED, NAIVE),
          less_than(TIED, NAIVE, TEST, 1.0, 2), small_size=True, rule_text="difference >= 1.0 and > 2 sd"),
    Claim("C3", "medium, test: untied variational < naive", "79.7 < 82.7", at("medium", UNTIED, NAIVE),
          less_than(UNTIED, NAIVE, TEST, 1.0, 2), small_size=True, rule_text="difference >= 1.0 and > 2 sd"),
    Claim("C4", "medium: tied = untied with the dropout approximation", "81.8 / 81.9, 79.7 / 79.7",
          at("medium", TIED, UNTIED),
          all_of(approx_equal(TIED, UNTIED, VALID, 0.6), approx_equal(TIED, UNTIED, TEST, 0.6)),
          small_size=True, rule_text="|difference| <= 0.6 on both splits"),
    Claim("C5", "medium, tied: MC < dropout approximation", "79.0 < 79.7", at("medium", TIED),
          mc_gain(TIED, 0.2, 1.5), mc=True, small_size=True, rule_text="gain 0.2 to 1.5"),
    Claim("C6", "medium, untied: MC < dropout approximation", "78.6 < 79.7", at("medium", UNTIED),
          mc_gain(UNTIED, 0.5), mc=True, small_size=True, rule_text="gain >= 0.5"),
    Claim("C7", "medium: with MC untied < tied, and untied gains more by MC", "78.6 < 79.0, gains 1.1 > 0.7",
          at("medium", TIED, UNTIED), mc_untied_wins, mc=True, small_size=True, rule_text="both signs"),
    Claim("C8", "medium, test: naive < non-regularised", "82.7 < 121.7", at("medium", NAIVE, NONE),
          less_than(NAIVE, NONE, TEST, 20), small_size=True, rule_text="difference >= 20"),
    Claim("C9", "medium, test: Moon is worse than naive", "97.0 > 82.7", at("medium", MOON, NAIVE),
          less_than(NAIVE, MOON, TEST, 5), small_size=True, rule_text="difference >= 5"),
    Claim("C10", "medium, test: Moon + emb lies between naive and Moon", "82.7 < 86.5 < 97.0",
          at("medium", NAIVE, MOON_EMB, MOON),
          all_of(less_than(NAIVE, MOON_EMB, TEST), less_than(MOON_EMB, MOON, TEST)),
          small_size=True, rule_text="both signs"),
    *(level_claim(letter, row) for letter, row in zip("abcdefgh", TABLE1["medium"])),
)  # fmt: skip

LARGE = (
    Claim("C12", "large: variational < naive, tied and untied, both splits", "77.3 / 77.9 < 82.2, 75.0 / 75.2 < 78.4",
          at("large", TIED, UNTIED, NAIVE),
          all_of(*(less_than(kind, NAIVE, split, 2) for split in (VALID, TEST) for kind in (TIED, UNTIED))),
          small_size=True, rule_text="each difference >= 2"),
    Claim("C13", "large: tied < untied with the dropout approximation", "77.3 < 77.9, 75.0 < 75.2",
          at("large", TIED, UNTIED), paired(TIED, UNTIED, (VALID, TEST), lambda difference: difference < 0),
          seeds=3, small_size=True, rule_text="sign over at least 3 paired seeds"),
    Claim("C14", "large: untied MC < tied MC", "73.4 < 74.1", at("large", UNTIED, TIED),
          less_than(UNTIED, TIED, MC, 0.3), mc=True, small_size=True, rule_text="difference >= 0.3"),
    Claim("C15", "large: the best single model", "73.4 (73.3 corrected)", at("large", UNTIED, TIED), best_level(74.5),
          mc=True, rule_text="<= 74.5"),
    Claim("C16", "larger is better when variational, test", "75.0 < 79.7",
          {"large": language_model("large", TIED), "medium": language_model("medium", TIED)},
          less_than("large", "medium", TEST, 2), rule_text="difference >= 2"),
    Claim("C17", "larger is worse when unregularised, test", "127.4 > 121.7",
          {"large": language_model("large", NONE), "medium": language_model("medium", NONE)},
          less_than("medium", "large", TEST, 1), rule_text="difference >= 1"),
    Claim("C18", "large: Moon overfits", "after 16 epochs; valid up to 131 within 30", at("large", MOON),
          overfits_from_16, rule_text="minimum at epoch 16 +- 5, then >= 125 by epoch 30"),
    Claim("C19", "large: Moon + emb does not overfit", "88.8", at("large", MOON_EMB), does_not_overfit,
          rule_text="final - minimum <= 1"),
    Claim("C20", "the average of ten large variational models with MC is below that of ten naive ones",
          "68.7 < 69.5", judge_fn=judge_ensembles, rule_text="within 1 % of 68.7 and below ten naive"),
    Claim("C21", "dropping word types instead of tokens changes little (untied, large)",
          "-0.44 valid, -0.09 test, -0.08 MC",
          {"types": language_model("large", UNTIED),
           "tokens": language_model("large", UNTIED, "protocol=authors_code")},
          paired("types", "tokens", (VALID, TEST, MC), lambda difference: abs(difference) <= 0.7),
          mc=True, small_size=True, rates_of="types",
          rule_text="paired seeds, |difference| <= 0.7, sign reported"),
    Claim("C22", "tied is faster than untied with four separate products", "4.7K / 2.7K, 2.4K / 1.6K words/s",
          judge_fn=judge_loop_speed, rule_text="tied >= 1.4 x untied; autograd loop on CUDA only"),
    Claim("C22b", "with our kernels untied is as fast as tied at the sizes of Table 1",
          '"a low level implementation should give similar run times"',
          judge_fn=judge_kernel_speed, is_extra=True, rule_text="untied >= 0.95 x tied on every machine on record"),
)  # fmt: skip

WITHOUT_DECAY = (
    Claim("C23", "medium, constant learning rate: the best valid of variational is below naive and none", "figure 2",
          figure2(), no_decay_order, small_size=True,
          rule_text="min over epochs: variational < naive, none"),
    Claim("C24", "medium: each is worse without learning-rate decay", "figure 2 and Table 1",
          {**at("medium", *figure2()), **{f"{model}, no decay": run for model, run in figure2().items()}}, decay_helps,
          small_size=True, rule_text="best point without decay above the value with decay"),
    Claim("C25", "medium, constant learning rate: valid rises after its best epoch, none > naive > variational", "-",
          figure2(), rise_order, small_size=True, is_extra=True,
          rule_text="order of last - min"),
)  # fmt: skip

BOTH_SIZES = (
    Claim("C46", "variational < non-regularised at each size", "79.7 < 121.7, 75.0 < 127.4",
          {f"{model} {size}": language_model(size, model) for size in SIZES for model in (TIED, UNTIED, NONE)},
          all_of(*(less_than(f"{kind} {size}", f"{NONE} {size}", TEST) for size in SIZES for kind in (TIED, UNTIED))),
          small_size=True, rule_text="sign at both sizes"),
    Claim("C47", "large, test: naive < Moon + emb < Moon", "78.4 < 86.0 < 118.7", at("large", NAIVE, MOON_EMB, MOON),
          all_of(less_than(NAIVE, MOON_EMB, TEST), less_than(MOON_EMB, MOON, TEST)),
          small_size=True, rule_text="both signs"),
    Claim("C48", "level of the non-regularised LSTM", "121.1 / 121.7, 128.3 / 127.4",
          {size: language_model(size, NONE) for size in SIZES},
          all_of(within_percent("medium", {VALID: 121.1, TEST: 121.7}, 3, SMALL_NONE),
                within_percent("large", {VALID: 128.3, TEST: 127.4}, 3, SMALL_NONE)),
          small_size=True, rule_text="within 3 %"),
    Claim("C50", "medium, test: new masks at every step on the recurrent connections are worse", "section 4",
          at("medium", NAIVE, RECURRENT), less_than(NAIVE, RECURRENT, TEST), small_size=True,
          rule_text="sign: naive < naive with p_U = .1"),
)  # fmt: skip

CLAIMS = (*MEDIUM, *LARGE, *WITHOUT_DECAY, *BOTH_SIZES)
