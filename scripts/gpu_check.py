"""Check this project on a CUDA GPU and write a record: `make gpu-check`, about ten minutes.

    python scripts/gpu_check.py [--device cuda] [--precision highest|high] [--out FILE]

Runs the tests that need a GPU, the benchmark at all sizes, and 200 updates of the large model on the Penn Treebank with
and without a CUDA graph. `python scripts/publish.py FILE` copies the record to results/records. The exit code is 0 if
everything passed, 1 if there are problems (they are listed), 2 without a GPU.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from varrnn import fileio
from varrnn.benchmark import gpu_check
from varrnn.cli.errors import user_errors
from varrnn.config import compose
from varrnn.errors import UserError
from varrnn.records.paths import benchmark_path
from varrnn.tasks import base
from varrnn.training import provenance
from varrnn.training.device import PRECISIONS, parse_device, set_precision
from varrnn.version import SCHEMA

RUN = ["experiment=ptb_large", "model=variational_untied"]
UPDATES = 200


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda or cuda:N")
    parser.add_argument(
        "--precision",
        default="highest",
        choices=PRECISIONS,
        help="precision of matrix products: highest (float32) or high (TF32)",
    )
    parser.add_argument("--out", type=Path, help="the record's file (runs/gpu_check/NAME_OF_THE_GPU.json)")
    return parser.parse_args()


def check(device: torch.device) -> None:
    """Check, before the tests run, that the code is committed: a record names its commit."""
    if device.type != "cuda":
        raise UserError(f"--device {device}: allowed are cuda and cuda:N; a CPU is measured by `make bench`")
    if (code := provenance.code_version()).endswith("+dirty"):
        where = ", ".join(provenance.TRACKED_PATHS)
        raise UserError(f"uncommitted changes in {where} ({code}): no record can be made; commit first")


def examine(device: torch.device, chosen: argparse.Namespace) -> dict[str, Any]:
    """Run all parts; returns the record."""
    config = compose.compose([*RUN, f"device={chosen.device}", f"precision={chosen.precision}"])
    if gpu_check.run_script(["scripts/download_data.py", "ptb", "--if-missing"]) != 0:
        raise UserError("the Penn Treebank could not be fetched: the message is above; nothing was checked")
    task = base.build(config, device)
    with tempfile.TemporaryDirectory() as name:
        print("tests that need a GPU", flush=True)
        tests = gpu_check.run_tests(Path(name) / "tests.xml")
        print("benchmark", flush=True)
        speeds = gpu_check.run_benchmark(Path(name) / "benchmark.json", chosen.device, chosen.precision)
    print(f"{UPDATES} updates of the large model, without and with a CUDA graph", flush=True)
    training = {"run": RUN, **gpu_check.compare_graph(task, config, device, UPDATES)}
    return {"schema": SCHEMA, "kind": "gpu_check", **speeds, "tests": tests, "training": training}


def report(record: dict[str, Any], file: Path) -> list[str]:
    """The lines to print: the result, and what to do with the record."""
    tests, training = record["tests"], record["training"]
    eager, graph = (training[name]["words_per_second"] for name in ("eager", "graph"))
    found = gpu_check.problems(tests, training)
    return [
        f"tests: {tests['passed']} passed, {tests['failed']} failed, {tests['skipped']} skipped",
        f"large model: {eager:,.0f} words/s, with the CUDA graph {graph:,.0f} ({training['graph_to_eager']:.2f} times);"
        f" {training['graph']['cuda_graph']}",
        *found,
        f"wrote {file}",
        f"send us this record, in an issue{'' if found else f', or publish it: python scripts/publish.py {file}'}",
    ]


def main() -> int:
    chosen = arguments()
    if not torch.cuda.is_available():
        print("error: gpu-check: this machine has no CUDA GPU that torch can use; nothing was checked", file=sys.stderr)
        return 2
    device = parse_device(chosen.device)
    check(device)
    set_precision(chosen.precision, device)
    named = benchmark_path(provenance.hardware(device)).name
    file = fileio.prepare_file(chosen.out or Path("runs") / "gpu_check" / named)
    record = examine(device, chosen)
    fileio.write_text(file, json.dumps(record, indent=1) + "\n")
    print("\n".join(report(record, file)))
    return 1 if gpu_check.problems(record["tests"], record["training"]) else 0


if __name__ == "__main__":
    with user_errors():
        sys.exit(main())
