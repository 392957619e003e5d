"""Execute the notebooks and save their outputs, without times and paths: `python scripts/notebooks.py [NAME ...]`."""

import argparse
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="forecast, quickstart, ...; default: all")
    names = parser.parse_args().names or sorted(file.stem for file in FOLDER.glob("*.ipynb"))
    for name in names:
        file = FOLDER / f"{name}.ipynb"
        if not file.is_file():
            parser.error(f"{name}: there is no such notebook in {FOLDER.name}/")
        notebook = nbformat.read(file, as_version=4)
        resources = {"metadata": {"path": str(FOLDER)}}
        NotebookClient(notebook, timeout=600, kernel_name="python3", record_timing=False, resources=resources).execute()
        notebook.metadata["language_info"] = {"name": "python"}  # not the version of this machine
        nbformat.write(notebook, file)
        print(f"wrote {file.relative_to(FOLDER.parent)}")


if __name__ == "__main__":
    main()
