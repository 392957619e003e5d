"""Claims C26 to C45, C49 and C50b: sentiment analysis, as data. A verdict needs at least 100 epochs and 3 seeds."""

from __future__ import annotations

import functools

from varrnn.reproduction.claims.sentiment_rules import (
    OPTIMAL,
    approximation_agrees,
    best_final_and_gap,
    converged,
    does_not_overfit,
    early_minimum,
    has_local_maximum,
    identical,
    less_smooth,
    longer_is_better,
    lowest_final,
    near_zero,
    only_one_not_overfitting,
    trend,
)
from varrnn.reproduction.claims.special import unit_test
from varrnn.reproduction.claims.verdict import Claim
from varrnn.reproduction.runs import (
    FIGURE3_MODELS,
    FIGURE4A,
    FIGURE4B,
    FIGURE4C,
    FIGURE5,
    FIGURE6,
    FIGURE6_ONE_GATE,
    FIGURE7,
    FIGURE8,
    FIGURE10,
    FIGURE11,
    figure3,
    sentiment,
)
from varrnn.reproduction.statistics import final_mean, overfitting_gap

VARIATIONAL, NAIVE, STANDARD = FIGURE3_MODELS
RECURRENT = "naive_recurrent"
EVERY_EPOCH = "by the dropout approximation, which is measured at every epoch"
Sentiment = functools.partial(Claim, seeds=3, epochs=100)
BOTH, ONLY_U, ONLY_E = "p_E=0.5 p_U=0.5", "p_E=0 p_U=0.5", "p_E=0.5 p_U=0"

CLAIMS = (
    Sentiment("C26", "LSTM: variational has the lowest test error", "figure 3b", figure3("lstm"),
              lowest_final(VARIATIONAL), rule_text="final: variational < naive and standard"),
    Sentiment("C27", "LSTM: only the variational model does not overfit", "figures 3a, 3b", figure3("lstm"),
              only_one_not_overfitting(VARIATIONAL),
              rule_text="gap <= .003 for variational, > .005 for the others, whose train RMSE (by MC with dropout) "
                        "falls below .05"),
    Sentiment("C28", "GRU: variational converges to the lowest test error", "figure 3c", figure3("gru"),
              lowest_final(VARIATIONAL), rule_text="lowest final"),
    Sentiment("C28b", "GRU: variational avoids overfitting", "figure 3c", {VARIATIONAL: figure3("gru")[VARIATIONAL]},
              does_not_overfit(VARIATIONAL), rule_text="gap <= .003"),
    Sentiment("C29", "GRU: the lowest point of all is the standard GRU's, at the second epoch", "figure 3c, epoch 2",
              figure3("gru"), early_minimum(STANDARD, 3), rule_text="global minimum: standard, epochs 1 to 3"),
    Sentiment("C30", "GRU: standard techniques go up and down, variational does not", "figure 3c", figure3("gru"),
              less_smooth((STANDARD, NAIVE), (VARIATIONAL,)),
              rule_text=f"roughness >= 1.5 x variational, {EVERY_EPOCH}"),
    Sentiment("C31", "LSTM: without both embedding and recurrent dropout the model overfits", "figure 4a", FIGURE4A,
              best_final_and_gap(BOTH), rule_text="(.5, .5) has the lowest final and the smallest gap"),
    Sentiment("C32", "LSTM, p_U=.5, p_E=0: the test error falls, rises, and falls again", "figure 4a",
              {ONLY_U: FIGURE4A[ONLY_U]}, has_local_maximum(ONLY_U),
              rule_text="after a median filter of width 5, a maximum >= .003 above the minima before and after it, "
                        f"and a first fall of as much; {EVERY_EPOCH}"),
    Sentiment("C33", "LSTM, p_U=0, p_E=.5: the test error is very erratic", "figure 4a", FIGURE4A,
              less_smooth((ONLY_E,), [role for role in FIGURE4A if role != ONLY_E]),
              rule_text=f"roughness >= 1.5 x the next, {EVERY_EPOCH}"),
    Sentiment("C34", "LSTM, p_E=0: more recurrent dropout, more overfitting", "figure 4b", FIGURE4B,
              trend(final_mean, +1, 0.6), rule_text="Spearman(p_U, final) >= .6"),
    Sentiment("C35", "LSTM, p_E=.5: more recurrent dropout, less overfitting", "figure 4c", FIGURE4C,
              trend(overfitting_gap, -1, 0.6), rule_text="Spearman(p_U, gap) <= -.6"),
    Sentiment("C36", "LSTM: higher weight decay, lower test error", "figure 6", FIGURE6,
              trend(final_mean, -1, 0.8, 0.005),
              rule_text="Spearman(decay, final) <= -.8 and a spread >= .005; L2 on all layers"),
    Sentiment("C36b", "as C36, with the regulariser of the authors' code, which acts on one gate only", "-",
              FIGURE6_ONE_GATE, trend(final_mean, -1, 0.8, 0.005),
              is_extra=True, rule_text="as C36, reported in addition"),
    Sentiment("C37", "LSTM: longer sequences give a much lower test error", "figure 7", FIGURE7, longer_is_better,
              rule_text="final: 400 <= 200 + .002, 200 < 50 < 20"),
    Sentiment("C38", "LSTM, T=50: lower embedding dropout is worse", "figure 8", FIGURE8, trend(final_mean, -1, 0.6),
              rule_text="Spearman(p_E, final) <= -.6"),
    Sentiment("C39", "LSTM, T=200: lower embedding dropout is worse", "figure 5", FIGURE5, trend(final_mean, -1, 0.6),
              rule_text="Spearman(p_E, final) <= -.6"),
    Sentiment("C40", "LSTM: the dropout approximation has about the error of MC", "figure 9",
              {**FIGURE4A, OPTIMAL: figure3("lstm")[VARIATIONAL]}, approximation_agrees,
              rule_text="|difference| <= .005 (the optimal model too), Kendall >= .67, at the epochs with MC"),
    Sentiment("C41", "GRU: the dropout approximation has about the error of MC", "figure 12", FIGURE10,
              approximation_agrees, rule_text="|difference| <= .005, Kendall >= .67, at the epochs with MC"),
    Sentiment("C42", "LSTM without embedding and recurrent dropout: naive = variational, and both overfit", "figure 11",
              FIGURE11, identical("naive", "fixed mask"), whole=True,
              rule_text="|difference| <= max(2 sd, .003), both gaps > .005; open until both have 100 epochs"),
    Sentiment("C43", "all models converge to a stable train loss", "figures 13 to 15",
              {**{f"lstm {m}": run for m, run in figure3("lstm").items()},
               **{f"gru {m}": run for m, run in figure3("gru").items()}, **FIGURE4A},
              converged,
              rule_text="mean of the last 10 % of batches within 2 % of the 10 % before, up or down, mean over seeds"),
    Claim("C44", "masks: the same at all time steps, different for each sequence, per gate when untied, by word type",
          "section 4", judge_fn=unit_test("tests/library/test_dropout.py tests/library/test_embedding.py"),
          rule_text="unit tests"),
    Claim("C45", "tied and untied give identical deterministic outputs", "section 4",
          judge_fn=unit_test("tests/reproduction/test_claims.py -k c45"), rule_text="unit test"),
    Sentiment("C49", "LSTM: the train loss gets near zero for all settings of figures 4b and 4c",
              "\"near zero (not shown)\"",
              {**{f"p_E=0 p_U={p}": run for p, run in FIGURE4B.items()},
               **{f"p_E=0.5 p_U={p}": run for p, run in FIGURE4C.items()}},
              near_zero, rule_text="train loss (MSE of standardised ratings, without penalty) below .05"),
    Sentiment("C50b", "LSTM: new masks at every step on the recurrent connections are worse", "section 4",
              {NAIVE: sentiment(NAIVE), RECURRENT: sentiment(RECURRENT)}, lowest_final(NAIVE),
              rule_text="final: naive < naive with p_U = .25"),
)  # fmt: skip
