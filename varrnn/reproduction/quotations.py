"""The sentences of Gal & Ghahramani (2016) that state the claims, quoted literally.

Citations are replaced by the names of their authors, references to figures and tables by their numbers.
"""

from __future__ import annotations

BEST = (
    "Validation perplexity for the large model is improved from Zaremba et al.'s 82.2 down to 77.3 (with weight tying),"
    " or 77.9 without weight tying. Test perplexity is reduced from 78.4 down to 73.4 (with MC dropout and untied "
    "weights)."
)
TYING = (
    "It is interesting that using the dropout approximation, weight tying results in lower validation error and test "
    "error than the untied weights model. But with MC dropout the untied weights model performs much better."
)
CLOSE = (
    "We also see that the tied weights model achieves very close performance to that of the untied weights one when "
    "using the dropout approximation."
)
TABLE = (
    "For each model we report average perplexity and standard deviation (each experiment was repeated 3 times with "
    "different random seeds and the results were averaged)."
)
MC = (
    "For each model we report performance using both the standard dropout approximation (averaging the weights at test "
    "time – propagating the mean of each approximating distribution as input to the next layer), and using MC dropout "
    "(obtained by performing dropout at test time 1000 times, and averaging the model outputs"
)
IMPROVES = (
    "We improve on Zaremba et al.'s results, and show that our dropout variant improves model performance compared to "
    "early-stopping and compared to using under-specified models."
)
MOON = "It seems that Moon et al. underperform even compared to Zaremba et al."
MOON_EMB = (
    "Adding our embedding dropout, the model performs much better, but still underperforms compared to applying dropout"
    " on the inputs and outputs alone."
)
EITHER_SIZE = (
    "Comparing our results to the non-regularised LSTM (evaluated with early stopping, giving similar performance as "
    "the early stopping experiment in Zaremba et al.) we see that for either model size an improvement can be obtained "
    "by using our dropout variant."
)
LARGER = (
    "Comparing the medium sized Variational model to the large one we see that a significant reduction in perplexity "
    "can be achieved by using a larger model."
)
LARGER_IS_WORSE = "This cannot be done with the non-regularised LSTM, where a larger model leads to worse results."
MOON_OVERFITS = (
    "With no embedding dropout the large model overfits and early stopping is required (with no early stopping the "
    "model's validation perplexity goes up to 131 within 30 epochs)."
)
ENSEMBLE = (
    "Using 10 Variational LSTMs we improve Zaremba et al.'s test set perplexity from 69.5 to 68.7 – obtaining "
    "identical perplexity to Zaremba et al.'s experiment with 38 models."
)
TYPES = (
    "Since we repeat the same mask at each time step, we drop the same words throughout the sequence – i.e. we drop "
    "word types at random rather than word tokens"
)
SPEED = (
    "Assessing model run time though (on a Titan X GPU), we see that tying the weights results in a more "
    "time-efficient implementation."
)
LOW_LEVEL = "Note though that a low level implementation should give similar run times."
NO_DECAY = (
    "even with early stopping, Variational LSTM achieves lower perplexity than naive dropout LSTM and standard LSTM."
)
DECAY = (
    "Note though that a significantly lower perplexity for all models can be achieved with learning rate decay "
    "scheduling as seen in table 1"
)
ONLY_MODEL = (
    "It seems that the only model not to overfit is the Variational LSTM, which achieves lowest test error as well."
)
GRU = "Variational GRU avoids overfitting to the data and converges to the lowest test error."
EARLY = (
    "Early stopping in this dataset will result in smaller test error though (lowest test error is obtained by the "
    "non-regularised GRU model at the second epoch)."
)
PECULIAR = (
    "It is interesting to note that standard techniques exhibit peculiar behaviour where test error repeatedly "
    "decreases and increases. This behaviour is not observed with the Variational GRU."
)
BOTH = (
    "It seems that without both strong embeddings regularisation and strong regularisation over the recurrent layers "
    "the model would overfit rather quickly."
)
BUMP = (
    "The behaviour when p_U=0.5 and p_E=0 is quite interesting: test error decreases and then increases before "
    "decreasing again."
)
ERRATIC = "Also, it seems that when p_U=0 and p_E=0.5 the model becomes very erratic."
NO_EMBEDDING = (
    "Yet it seems that with no embedding dropout, a higher dropout probability within the recurrent layers leads to "
    "overfitting!"
)
ROBUST = (
    "Regularising the embedding layer with dropout probability p_E=0.5 we see that a higher recurrent layer dropout "
    "probability indeed leads to increased robustness to overfitting, as expected."
)
WEIGHT_DECAY = (
    "In figure 6 we can see that higher weight decay values result in lower test error, with significant differences "
    "for different weight decays."
)
LENGTHS = "Longer sequences result in much better performance but with the price of longer convergence time."
SHORT = (
    "But a follow-up experiment with sequence lengths 50 and 200, and different embedding dropout probabilities, shows "
    "that lower dropout probabilities result in even worse model performance (figures 8 and 5)."
)
APPROXIMATION = (
    "It seems that the approximation gives a good estimate to the test error, similar to the results in figure 4a."
)
GRU_APPROXIMATION = "The approximation seems to give similar results to MC dropout in the GRU model (fig. 12)."
IDENTICAL = (
    "It seems that without dropout over the recurrent layers and embeddings both models overfit, and in fact result in "
    "identical performance."
)
STABLE = "All models have converged, with a stable train loss."
SAME_MASK = (
    "In the new dropout variant, we repeat the same dropout mask at each time step for both inputs, outputs, and "
    "recurrent layers (drop the same network units at each time step)."
)
DIFFERENT_MASKS = (
    "no dropout is used with the recurrent connections since the use of different masks with these connections leads "
    "to deteriorated performance"
)
NEAR_ZERO = "In this experiment all models have converged, with the loss getting near zero (not shown)."

# by claim; additional claims, which are not in the paper, have no quotation
QUOTATIONS: dict[str, str] = {
    **dict.fromkeys(("C1", "C2", "C3"), IMPROVES),
    "C4": CLOSE,
    **dict.fromkeys(("C5", "C6"), MC),
    "C7": TYING,
    "C8": EITHER_SIZE,
    "C9": MOON,
    "C10": MOON_EMB,
    **{f"C11{letter}": TABLE for letter in "abcdefgh"},
    "C12": BEST,
    **dict.fromkeys(("C13", "C14"), TYING),
    "C15": "To the best of our knowledge, these are currently the best single model perplexities on the Penn Treebank.",
    "C16": LARGER,
    "C17": LARGER_IS_WORSE,
    "C18": MOON_OVERFITS,
    "C19": MOON_EMB,
    "C20": ENSEMBLE,
    "C21": TYPES,
    "C22": SPEED,
    "C22b": LOW_LEVEL,
    "C23": NO_DECAY,
    "C24": DECAY,
    **dict.fromkeys(("C26", "C27"), ONLY_MODEL),
    **dict.fromkeys(("C28", "C28b"), GRU),
    "C29": EARLY,
    "C30": PECULIAR,
    "C31": BOTH,
    "C32": BUMP,
    "C33": ERRATIC,
    "C34": NO_EMBEDDING,
    "C35": ROBUST,
    "C36": WEIGHT_DECAY,
    "C37": LENGTHS,
    **dict.fromkeys(("C38", "C39"), SHORT),
    "C40": APPROXIMATION,
    "C41": GRU_APPROXIMATION,
    "C42": IDENTICAL,
    "C43": STABLE,
    **dict.fromkeys(("C44", "C45"), SAME_MASK),
    "C46": EITHER_SIZE,
    "C47": MOON_EMB,
    "C48": EITHER_SIZE,
    "C49": NEAR_ZERO,
    **dict.fromkeys(("C50", "C50b"), DIFFERENT_MASKS),
}
