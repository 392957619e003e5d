"""The paper's testable claims, C1 to C50, with their rules; report.py lists rules that changed after results."""

from __future__ import annotations

import re

from varrnn.records.store import Records
from varrnn.reproduction.claims import language_model, sentiment
from varrnn.reproduction.claims.verdict import Claim, Verdict, judge

__all__ = ["CLAIMS", "Claim", "Verdict", "ids", "judge", "judge_all"]


def _number(claim: Claim) -> tuple[int, str]:
    number, letter = re.fullmatch(r"C(\d+)(\w?)", claim.id).groups()  # type: ignore[union-attr]
    return int(number), letter


CLAIMS: tuple[Claim, ...] = tuple(sorted((*language_model.CLAIMS, *sentiment.CLAIMS), key=_number))


def ids(*numbers: int) -> tuple[str, ...]:
    """The ids of the claims with these numbers: 11 is C11a to C11h."""
    return tuple(claim.id for claim in CLAIMS if _number(claim)[0] in numbers)


def judge_all(records: Records) -> list[tuple[Claim, Verdict]]:
    """A verdict on every claim."""
    return [(claim, judge(claim, records)) for claim in CLAIMS]
