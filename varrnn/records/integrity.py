"""Detect records that were edited after publication: a digest of their content, and the hashes of the corpora.

A digest detects accidental edits. It does not prevent forgery: anybody can compute it again.
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
    """The SHA-256 of a record without its digest."""
    rest = {key: value for key, value in content.items() if key != DIGEST}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def with_digest(content: Mapping[str, Any]) -> dict[str, Any]:
    """The record as it is written, with the digest of the content as JSON stores it."""
    as_read = json.loads(json.dumps(content))
    return {**as_read, DIGEST: digest(as_read)}


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write a record with its digest: indented JSON for a benchmark (it has `machine`), compact JSON otherwise."""
    if "machine" in content:
        text = json.dumps(with_digest(content), indent=1)
    else:
        text = json.dumps(with_digest(content), separators=(",", ":"), sort_keys=True)
    fileio.write_text(path, text + "\n")


def check_digest(path: Path, content: Mapping[str, Any]) -> None:
    """Reject a record that was edited after it was published."""
    if DIGEST not in content:
        raise UserError(
            f"{path}: this record has no {DIGEST}; `python scripts/publish.py --relocate` adds it to early records"
        )
    if content[DIGEST] != digest(content):
        raise UserError(
            f"{path}: edited after it was published ({DIGEST} is {str(content[DIGEST])[:12]}..., that of the content "
            f"{digest(content)[:12]}...); restore the file (git checkout), or delete it and publish the run again"
        )


def check_known_data(path: Path, content: Mapping[str, Any]) -> None:
    """Reject a record of a known corpus whose data hash is not that of the original files."""
    data = content.get("data") or {}
    for name in (data.get("name"), (content.get("choices") or {}).get("task")):
        if name in KNOWN_DATA and data.get("sha256") != KNOWN_DATA[name]:
            raise UserError(
                f"{path}: data hash of {name} is {data.get('sha256')}, that of the original files is "
                f"{KNOWN_DATA[name]}; run again with the original files"
            )
