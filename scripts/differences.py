"""Collect every `Differs:` comment of the code and the configs into results/DIFFERENCES.md.

A difference from the paper is documented where it occurs, in a comment or docstring that starts with `Differs:`; the
page lists them between two markers. With --check nothing is written, and an outdated page is an error.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from varrnn import fileio
from varrnn.cli.errors import user_errors
from varrnn.reproduction.readme import replace_section

ROOT = fileio.PROJECT_ROOT
FOLDERS = ("varrnn", "configs", "experiments")
MARK = "Differs:"
PAGE = ROOT / "results" / "DIFFERENCES.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only check whether the page is up to date")
    parser.add_argument("--page", type=Path, default=PAGE, help="the file to write (results/DIFFERENCES.md)")
    options = parser.parse_args()
    old = options.page.read_text(encoding="utf-8")
    new = replace_section(old, "differs", differences_section(), options.page.name)
    if new == old:
        print(f"{options.page.name} is up to date")
    elif options.check:
        sys.exit(f"error: {options.page.name}: its list is out of date; run python scripts/differences.py")
    else:
        fileio.write_text(options.page, new)
        print(f"wrote {options.page.name}")


def differences_section() -> str:
    """One line for each difference, with links to its files."""
    found: dict[str, list[str]] = {}
    for file in files():
        name = file.relative_to(ROOT).as_posix()
        for text in differences(file.read_text(encoding="utf-8")):
            found.setdefault(text, []).append(name)
    return "\n".join(f"- {text[:1].upper()}{text[1:]} ({where(names)})" for text, names in found.items())


def files() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from sorted(file for file in (ROOT / folder).rglob("*") if file.suffix in (".py", ".yaml"))


def differences(source: str) -> Iterator[str]:
    """The text after each mark, up to the end of its comment, or of its paragraph in a docstring."""
    lines = source.splitlines()
    for number, line in enumerate(lines):
        if MARK in line:
            before, after = line.split(MARK, 1)
            yield _tidy([after, *_further(lines[number + 1 :], comment="#" in before)])


def _further(lines: list[str], comment: bool) -> Iterator[str]:
    for line in lines:
        text = line.strip()
        if not text or MARK in text or text.startswith('"""') or (comment and not text.startswith("#")):
            return
        yield text.lstrip("# ") if comment else text
        if '"""' in text:
            return


def _tidy(parts: list[str]) -> str:
    return re.sub(r"\s+", " ", " ".join(parts).split('"""')[0]).strip()


def where(names: list[str]) -> str:
    """Links to the first files, and the number of further ones."""
    shown = ", ".join(f"[{name}](../{name})" for name in names[:2])
    return shown + (f" and {len(names) - 2} more" if len(names) > 2 else "")


if __name__ == "__main__":
    with user_errors():
        main()
