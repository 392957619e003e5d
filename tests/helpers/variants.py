"""The dropout variants that grids of tests go through, by name."""

from varrnn import DropoutRates

VARIANTS = {
    "none": DropoutRates.none(),
    "naive": DropoutRates.naive(0.4).for_layers(),
    "moon": DropoutRates.moon(0.3).for_layers(),
    "tied": DropoutRates.variational(p_W=0.3, p_U=0.2),
    "untied": DropoutRates.variational(p_W=0.3, p_U=0.2, tied=False),
    "tied_per_step": DropoutRates(p_W=0.3, p_U=0.2, per_step=True),
    "untied_per_step": DropoutRates(p_W=0.3, p_U=0.2, per_step=True, per_gate=True),
    "everything": DropoutRates(p_W=0.3, p_U=0.2, p_c=0.2, per_step=True, per_gate=True),
}
