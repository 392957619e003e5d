"""Write every table, figure and claim from results/records, and the generated sections of the READMEs (`make paper`).

`--check` writes nothing and fails if a committed table, the claims or the README would change.
"""

import argparse
import tempfile
from pathlib import Path

from varrnn import fileio
from varrnn.cli.errors import user_errors
from varrnn.errors import UserError
from varrnn.records.store import RECORDS, ROOT, Records, load
from varrnn.reproduction.artefact import RESULTS, experiment, names
from varrnn.reproduction.claims import judge_all
from varrnn.reproduction.claims.report import write as write_claims
from varrnn.reproduction.readme import SECTION, readme_section, replace_section, results_section

TEXTS = (".md", ".tex", ".csv")


def regenerate(records: Records, results: Path, readme: Path, figures: bool = True) -> list[Path]:
    """Write everything and return the files; the sections are replaced in the texts at `results` and `readme`."""
    modules = [experiment(name) for name in names()]
    written = []
    for module in modules:
        artefact = module.ARTEFACT
        if not artefact.is_figure or (figures and artefact.has_data(records)):
            written += artefact.render(records, results)
        elif figures:  # no image of empty axes
            for suffix in (".pdf", ".png"):
                (results / "figures" / artefact.name).with_suffix(suffix).unlink(missing_ok=True)
    verdicts = judge_all(records)
    written += write_claims(verdicts, results)
    artefacts = {module.ARTEFACT.name: module for module in modules}
    for page, section in ((readme, readme_section), (results / "README.md", results_section)):
        old = page.read_text(encoding="utf-8")
        fileio.write_text(page, replace_section(old, SECTION, section(artefacts, records, verdicts), page.name))
        written.append(page)
    return written


def find_outdated(records: Records) -> list[Path]:
    """Committed texts that differ from those generated from the records."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        results, readme = folder / "results", folder / "README.md"
        results.mkdir()
        for page in (readme, results / "README.md"):
            page.write_text((ROOT / page.relative_to(folder)).read_text(encoding="utf-8"), encoding="utf-8")
        written = [path for path in regenerate(records, results, readme, figures=False) if path.suffix in TEXTS]
        committed = {path: ROOT / path.relative_to(folder) for path in written}
        return [old for new, old in committed.items() if not old.is_file() or old.read_bytes() != new.read_bytes()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a committed text is out of date")
    parser.add_argument("--records", type=Path, default=RECORDS, help="folder of records (results/records)")
    options = parser.parse_args()
    records = load(options.records)
    if options.check:
        old = find_outdated(records)
        if old:
            raise UserError(f"out of date: {', '.join(str(path.relative_to(ROOT)) for path in old)}; run `make paper`")
        print("tables, claims and README are up to date")
        return
    for path in regenerate(records, RESULTS, ROOT / "README.md"):
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    with user_errors():
        main()
