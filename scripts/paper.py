"""Regenerate every table, figure and claim from results/records, and the results block of the README (`make paper`).

`--check` writes nothing and fails if a committed table, the claims or the README would change.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from varrnn import outputs
from varrnn.artefact import RESULTS, experiment, names
from varrnn.claims import judge_all
from varrnn.claims.report import write as write_claims
from varrnn.errors import UserError
from varrnn.explain import one_line_errors
from varrnn.marked import begin, replaced
from varrnn.readme_block import PART, block
from varrnn.records import RECORDS, ROOT, Records, load

TEXTS = (".md", ".tex", ".csv")


def regenerate(records: Records, results: Path, readme: Path, figures: bool = True) -> list[Path]:
    """Write everything; returns the files."""
    modules = [experiment(name) for name in names()]
    written = []
    for module in modules:
        if figures or any(hasattr(module, name) for name in ("table", "tables", "page")):
            written += module.ARTEFACT.draw(records, results)
    verdicts = judge_all(records)
    written += write_claims(verdicts, results)
    old = readme.read_text(encoding="utf-8")
    if begin(PART) in old:
        text = block({module.ARTEFACT.name: module for module in modules}, records, verdicts)
        outputs.write_text(readme, replaced(old, PART, text))
        return [*written, readme]
    print(f"README.md has no line {begin(PART)}: left as it is", file=sys.stderr)
    return written


def differing(records: Records) -> list[Path]:
    """Committed texts that are not what the records give."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        readme = folder / "README.md"
        readme.write_text((ROOT / "README.md").read_text(encoding="utf-8"), encoding="utf-8")
        written = [path for path in regenerate(records, folder, readme, figures=False) if path.suffix in TEXTS]
        committed = {
            path: ROOT / "README.md" if path == readme else RESULTS / path.relative_to(folder) for path in written
        }
        return [old for new, old in committed.items() if not old.is_file() or old.read_bytes() != new.read_bytes()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a committed text is out of date")
    parser.add_argument("--records", type=Path, default=RECORDS, help="folder of records (results/records)")
    options = parser.parse_args()
    records = load(options.records)
    if options.check:
        old = differing(records)
        if old:
            raise UserError(f"out of date: {', '.join(str(path.relative_to(ROOT)) for path in old)}; run `make paper`")
        print("tables, claims and README are what the records give")
        return
    for path in regenerate(records, RESULTS, ROOT / "README.md"):
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    with one_line_errors():
        main()
