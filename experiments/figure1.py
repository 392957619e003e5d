"""Figure 1: the paper's dropout (right) against naive dropout (left), drawn from sampled masks.

Each connection shows the mask that the library sampled for it (a square per unit, filled = kept). Equal masks have
equal colours; a dashed grey arrow is a connection without dropout.
"""

from collections.abc import Iterator

import torch
from matplotlib.axes import Axes

from varrnn import DropoutRates
from varrnn.dropout import is_identity, sample_mask, sample_masks
from varrnn.records.store import Records
from varrnn.reproduction.artefact import main
from varrnn.reproduction.figures import figure_artefact

STEPS, LAYERS, UNITS, P = 3, 2, 8, 0.5
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8B4513", "#6A3D9A", "#B22222", "#2F4F4F")
Point = tuple[float, float]
Arrow = tuple[Point, Point, tuple[bool, ...] | None]


def arrows(dropout: DropoutRates, seed: int) -> Iterator[Arrow]:
    """Every connection of a two-layer RNN over three steps with its mask, None without dropout."""
    generator = torch.Generator().manual_seed(seed)
    for layer in range(LAYERS):
        masks = sample_masks(dropout.for_layers(), 1, 1, UNITS, UNITS, STEPS, generator)
        for step in range(STEPS):
            yield (step, layer), (step, layer + 1), kept_units(masks.z_x, step)
        for step in range(-1, STEPS):
            yield (step, layer + 1), (step + 1, layer + 1), kept_units(masks.z_h, step)
    z_y = sample_mask((STEPS if dropout.per_step else 1, 1, 1, UNITS), dropout.p_y, generator)
    for step in range(STEPS):
        yield (step, LAYERS), (step, LAYERS + 1), kept_units(z_y, step)


def kept_units(z: torch.Tensor, step: int) -> tuple[bool, ...] | None:
    """Which units a mask keeps at this step; an axis of size 1 is shared by all steps."""
    if is_identity(z):
        return None
    return tuple((z.expand(STEPS, *z.shape[1:])[step % STEPS, 0, 0] > 0).tolist())


def draw_panel(axes: Axes, title: str, note: str, dropout: DropoutRates, seed: int) -> None:
    """Draw the network with the masks that were sampled with this seed, and a note below it."""
    colours: dict[tuple[bool, ...], str] = {}
    for start, end, mask in arrows(dropout, seed):
        if mask is not None and mask not in colours:
            colours[mask] = COLOURS[len(colours) % len(COLOURS)]
        draw_arrow(axes, start, end, mask, colours[mask] if mask is not None else "#888888")
    for step in range(STEPS):
        for layer in range(1, LAYERS + 1):
            axes.plot(step, layer, "s", ms=11, mfc="white", mec="black", zorder=3)
        name = ("t-1", "t", "t+1")[step]
        axes.text(step, 0.06, f"$x_{{{name}}}$", ha="center", va="top")
        axes.text(step, LAYERS + 0.94, f"$y_{{{name}}}$", ha="center", va="bottom")
    axes.set(title=title, xlim=(-0.95, STEPS - 0.05), ylim=(-0.2, LAYERS + 1.2), xticks=[], yticks=[])
    axes.set_xlabel(note, fontsize=6.5)
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)


def draw_arrow(axes: Axes, start: Point, end: Point, mask: tuple[bool, ...] | None, colour: str) -> None:
    """An arrow between two squares, with the units of the mask next to it."""
    (x0, y0), (x1, y1) = start, end
    upward = x0 == x1
    gap = 0.17
    tail, head = ((x0, y0 + gap), (x1, y1 - gap)) if upward else ((x0 + gap, y0), (x1 - gap, y1))
    style = {"arrowstyle": "-|>", "color": colour, "lw": 1.8 if mask else 0.9, "ls": "-" if mask else "--"}
    axes.annotate("", head, tail, arrowprops=style)
    for number, kept in enumerate(mask or ()):
        shift = (number - (UNITS - 1) / 2) * 0.075
        spot = (x0 + 0.12, (y0 + y1) / 2 + shift) if upward else ((x0 + x1) / 2 + shift, y0 + 0.13)
        axes.plot(*spot, "s", ms=2.3, mfc=colour if kept else "white", mec=colour, mew=0.5)


def draw(panels: list[Axes], records: Records) -> None:
    squares, colours = (
        "small squares: units (filled: kept, empty: dropped)",
        "same colour: same mask; dashed: no dropout",
    )
    draw_panel(panels[0], "Naive dropout RNN", squares, DropoutRates.naive(P), seed=3)
    draw_panel(panels[1], "Variational RNN", colours, DropoutRates.variational(p_W=P, p_U=P, p_y=P), seed=3)


ARTEFACT = figure_artefact(
    __file__, "Figure 1: naive dropout and the paper's, from sampled masks", draw, panels=2, height=3.0, claims=("C44",)
)

if __name__ == "__main__":
    main(ARTEFACT)
