"""The planned grids of the small model: their coverage by records, and the chosen point."""

from varrnn.config.identity import Run, identity_of
from varrnn.records.selection import lowest
from varrnn.records.store import Group, Records
from varrnn.reproduction.runs import small_grid


def grid_coverage(records: Records, model: str) -> tuple[int, int]:
    """The number of points of the model's planned grid that have a record, and of all points."""
    planned = small_grid().get(model, [])
    return sum(bool(records.group(run)) for run in planned), len(planned)


def best_on_validation(records: Records, run: Run) -> Group:
    """The planned grid point with the lowest validation perplexity; the test text is not used."""
    planned = {identity_of(point).rates for point in small_grid().get(identity_of(run).choices["model"], [])}
    points = {rates: group for rates, group in records.grid(run).items() if rates in planned or not planned}
    best = lowest({key: group.by_seed("valid_ppl") for key, group in points.items()})
    return Group() if best is None else points[best]


def at_corner(model: str, chosen: Group) -> bool:
    """Whether a chosen dropout rate is at the edge of the grid, so that a better one may exist outside it."""
    points = [dict(identity_of(point).rates) for point in small_grid().get(model, [])]
    if not chosen.records:
        return False
    for name, rate in chosen.records[0].rates:
        tried = {point[name] for point in points if name in point}
        if len(tried) > 1 and rate in (min(tried), max(tried)):
            return True
    return False
