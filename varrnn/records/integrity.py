"""What shows that a record was changed after it was published: a digest of its content, and the hashes of the corpora.

A digest shows an edit. It does not prove honesty: someone who edits a record on purpose can compute the digest again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from varrnn import fileio
from varrnn.data import cornell, ptb
from varrnn.data.files import sha256_of_files
from varrnn.errors import UserError

DIGEST = "digest"
KNOWN_DATA = {"ptb": sha256_of_files(ptb.SHA256), "cornell": sha256_of_files(cornell.SHA256)}


def digest(content: Mapping[str, Any]) -> str:
    """The SHA-256 of everything in a record but the digest itself."""
    rest = {key: value for key, value in content.items() if key != DIGEST}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def with_digest(content: Mapping[str, Any]) -> dict[str, Any]:
    """The record as it is written, with the digest of what a reader will find in the file."""
    as_read = json.loads(json.dumps(content))
    return {**as_read, DIGEST: digest(as_read)}


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write a record with its digest: a benchmark (it names its machine) to be read, a run or ensemble compact."""
    if "machine" in content:
        text = json.dumps(with_digest(content), indent=1)
    else:
        text = json.dumps(with_digest(content), separators=(",", ":"), sort_keys=True)
    fileio.write_text(path, text + "\n")


def check_digest(path: Path, content: Mapping[str, Any]) -> None:
    """Reject a record that was edited after it was published."""
    if DIGEST not in content:
        raise UserError(
            f"{path}: no digest in this record; `python scripts/publish.py --relocate` adds it to early records"
        )
    if content[DIGEST] != digest(content):
        raise UserError(
            f"{path}: edited after it was published ({DIGEST} is {str(content[DIGEST])[:12]}..., that of the content "
            f"{digest(content)[:12]}...); restore the file (git checkout), or delete it and publish the run again"
        )


def check_known_data(path: Path, content: Mapping[str, Any]) -> None:
    """Reject a record of a known corpus whose data were not the true files."""
    data = content.get("data") or {}
    for name in (data.get("name"), (content.get("choices") or {}).get("task")):
        if name in KNOWN_DATA and data.get("sha256") != KNOWN_DATA[name]:
            raise UserError(
                f"{path}: data hash of {name} is {data.get('sha256')}, that of the true files is {KNOWN_DATA[name]}"
            )
