"""Where the chosen point of a planned grid lies."""

from varrnn.config.identity import identify
from varrnn.records.store import Group
from varrnn.reproduction.runs import small_grid


def at_corner(model: str, chosen: Group) -> bool:
    """Whether a chosen rate of the small model lies at the edge of its grid, so that a better one may lie beyond."""
    points = [dict(identify(point).rates) for point in small_grid().get(model, [])]
    if not chosen.records:
        return False
    for name, rate in chosen.records[0].rates:
        tried = {point[name] for point in points if name in point}
        if len(tried) > 1 and rate in (min(tried), max(tried)):
            return True
    return False
