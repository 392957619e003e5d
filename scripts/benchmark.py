"""Words per second of every variant, nn.LSTM, an autograd loop, and the matrix products alone (the limit).

    python scripts/benchmark.py [--size small|medium|large|sentiment|all] [--json FILE | --record] [--quick]
    python scripts/benchmark.py --size library [--filter "lstm T50" | --record]   # the layers alone and torch's

All candidates run in one process, one training step of each in every round. Ratios are medians of the ratios within a
round, which a busy machine affects little. Compare numbers of the same table only.
"""

import argparse
import datetime
import json
import statistics
from pathlib import Path
from typing import Any

import matplotlib
import torch
from matplotlib.figure import Figure

from varrnn import fileio
from varrnn.benchmark import candidates as benchmark_candidates
from varrnn.benchmark import concurrency, launches, library
from varrnn.benchmark.chart import LABELS, draw_speeds
from varrnn.benchmark.timing import CLOCKS, Timer, half_range, paired_ratios
from varrnn.cli.errors import user_errors
from varrnn.errors import UserError
from varrnn.kernels import c_library, cpu_cache
from varrnn.records import integrity
from varrnn.records.paths import benchmark_path, library_path
from varrnn.reporting.style import RC
from varrnn.training import allocator, provenance
from varrnn.training.device import PRECISIONS, parse_device, set_precision

SECONDS, MOST_ROUNDS = 60.0, 40  # per size
ROW_SECONDS = 2.0  # per row of the library's table
ROUNDS, QUICK_ROUNDS = 10, 3  # minimum: the median of fewer rounds is not robust
MC_ROWS = 100
PARALLEL_SIZES = ("small", "sentiment")  # the sizes that are trained on CPUs


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--size",
        default="all",
        choices=[*benchmark_candidates.SHAPES, "all", "library"],
        help="a model of the paper, all of them, or the layers alone at many shapes (all)",
    )
    parser.add_argument("--filter", default="", help="with --size library: rows that contain all of these words")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--json", type=Path, help="write all numbers to this file")
    where.add_argument("--record", action="store_true", help="write a record of this machine for `make paper`")
    parser.add_argument("--chart", type=Path, help="draw a chart of the ratios to nn.LSTM into this file")
    parser.add_argument("--quick", action="store_true", help="only three rounds per size, for a rough result")
    parser.add_argument(
        "--seconds", type=float, help="time per size (60), or per row of the library's table (2); at least ten rounds"
    )
    parser.add_argument("--threads", type=int, help="CPU threads (all by default)")
    parser.add_argument("--device", default="auto", help="auto (a GPU if there is one), cpu, cuda or cuda:N")
    parser.add_argument(
        "--precision",
        default="highest",
        choices=PRECISIONS,
        help="precision of matrix products: highest (float32), or high (TF32 on a GPU, sums of two bfloat16 numbers "
        "on a CPU with AMX)",
    )
    parser.add_argument(
        "--clock",
        default="wall",
        choices=CLOCKS,
        help="wall time, or the CPU time of the process (for one thread on a busy machine)",
    )
    return parser.parse_args()


def measure(name: str, timer: Timer) -> dict[str, Any]:
    """Measure one size."""
    shape = benchmark_candidates.SHAPES[name]
    steps = benchmark_candidates.candidates(shape, timer.device)
    times = timer.interleave(steps)
    words = shape.steps * shape.batch
    found: dict[str, Any] = {key: words / statistics.median(own) for key, own in times.items()}
    found["ratio_to_limit"] = paired_ratios(times, "limit")
    found["ratio_to_nn_lstm"] = paired_ratios(times, "nn_lstm")
    found["untied_to_tied"] = paired_ratios(times, "variational_tied")["variational_untied"]
    found["spread"] = {key: half_range(own) / statistics.median(own) for key, own in times.items()}
    found["rounds"] = len(times["limit"])
    tied = benchmark_candidates.ours(shape, benchmark_candidates.variants(shape)["variational_tied"])
    models = {"nn_lstm": benchmark_candidates.TorchModel(shape), "ours": tied}
    found["saved_mb"] = {
        key: benchmark_candidates.saved_mb(model.to(timer.device), shape) for key, model in models.items()
    }
    if timer.device.type == "cuda":
        found |= gpu_numbers(shape, steps, timer.device)
    if not shape.last_only:
        found["mc"] = measure_mc(shape, timer)
    cores = torch.get_num_threads()
    if name in PARALLEL_SIZES and cores > 1 and timer.device.type == "cpu":
        found["side_by_side"] = concurrency.measure(shape, cores, timer.rounds)
    return found


def gpu_numbers(
    shape: benchmark_candidates.Shape, steps: dict[str, benchmark_candidates.Step], device: torch.device
) -> dict[str, dict[str, float]]:
    """Kernel launches of a step (counted, not measured) and its device memory without weights, by candidate."""
    counted = launches.count_window(shape)
    memory = {name: step_mb(step, device) for name, step in steps.items() if name != "limit"}
    return {"launches": {name: counted[name] for name in steps if name in counted}, "step_mb": memory}


def step_mb(step: benchmark_candidates.Step, device: torch.device) -> float:
    """The peak device memory of a step in megabytes, minus the memory allocated before it."""
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    step()
    torch.cuda.synchronize(device)
    return (torch.cuda.max_memory_allocated(device) - before) / 2**20


def measure_mc(shape: benchmark_candidates.Shape, timer: Timer) -> dict[str, float]:
    """Words x samples per second of MC evaluation, sequential and batched."""
    candidates = benchmark_candidates.mc_candidates(shape, timer.device, MC_ROWS)
    times = timer.interleave({name: step for name, (step, _) in candidates.items()}, share=0.3)
    rates = {name: candidates[name][1] / statistics.median(own) for name, own in times.items()}
    ratios = {f"batched_to_{name}": rates["batched"] / rates[name] for name in ("loop", "sequential")}
    if "batched_high" in rates:
        ratios["high_to_batched"] = paired_ratios(times, "batched")["batched_high"]
    return {**rates, **ratios, "rows": MC_ROWS}


def table(name: str, found: dict[str, Any]) -> str:
    on_gpu = "launches" in found
    lines = [f"\n{name} ({found['rounds']} rounds)".ljust(34) + "words/s   of limit   of nn.LSTM   spread"]
    lines[0] += "   launches   MB per step" if on_gpu else ""
    for key, label in LABELS.items():
        if key not in found:  # the protocols differ in the sentiment task only
            continue
        of_limit, of_torch = found["ratio_to_limit"][key], found["ratio_to_nn_lstm"][key]
        lines.append(f"{label:31}{found[key]:9,.0f}{of_limit:11.2f}{of_torch:13.2f}{found['spread'][key]:8.0%}")
        if on_gpu:
            count, memory = found["launches"].get(key), found["step_mb"].get(key)
            lines[-1] += (
                f"{'-' if count is None else f'{count:,}':>11}{'-' if memory is None else f'{memory:,.0f}':>14}"
            )
    lines.append(f"untied / tied {found['untied_to_tied']:.2f}; kept for backward {found['saved_mb']['ours']:.0f} MB")
    lines[-1] += f" (nn.LSTM {found['saved_mb']['nn_lstm']:.0f} MB)"
    if "mc" in found:
        mc = found["mc"]
        lines.append(
            f"MC, words x samples/s: usual loop {mc['loop']:,.0f} and ours {mc['sequential']:,.0f} one stream a time; "
            f"in rows of {mc['rows']} {mc['batched']:,.0f}: {mc['batched_to_loop']:.1f} times the loop"
        )
        if "high_to_batched" in mc:
            lines[-1] += f"; with precision=high {mc['batched_high']:,.0f}: {mc['high_to_batched']:.2f} times that"
    if "side_by_side" in found:
        both = found["side_by_side"]
        lines.append(
            f"{both['runs']:.0f} parallel runs of one thread {both['side_by_side']:,.0f} words/s together, one run "
            f"with all threads {both['one_run']:,.0f}: {both['ratio']:.2f} times"
        )
    return "\n".join(lines)


def measure_library(chosen: argparse.Namespace, record: dict[str, Any]) -> None:
    """Print the table of the layers alone; with ``--threads`` for that number of threads and for one."""
    rows = library.choose_rows(chosen.filter, torch.get_num_threads())
    seconds = ROW_SECONDS if chosen.seconds is None else chosen.seconds
    limits = (0.0, QUICK_ROUNDS) if chosen.quick else (seconds, ROUNDS)
    for line in library.lines(rows, Timer(chosen.clock, *limits), record.setdefault("library", {})):
        print(line, flush=True)


def request_record(machine: dict[str, Any], file: Path | None) -> str:
    """On a GPU: ask for the record, since records of GPUs are rare."""
    if not machine["gpu"]:
        return ""
    precise = f"nn.LSTM and ours ran at precision {machine['precision']}"
    if file is None:
        return f"{precise}; with --record these numbers become a record that you can send us"
    return f"{precise}; send us this record: {file} (in a pull request, or attached to an issue)"


def chart(record: dict[str, Any], file: Path) -> None:
    sizes = [name for name in benchmark_candidates.SHAPES if name in record]
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(2 + 2.2 * len(sizes), 2.4))
        draw_speeds(list(figure.subplots(1, len(sizes), squeeze=False)[0]), {"this machine": record}, sizes)
        with fileio.writing(file):
            figure.savefig(file)


def check(chosen: argparse.Namespace) -> None:
    """Check, before anything is measured, that a record will be complete and that file formats can be written."""
    if chosen.threads is not None and chosen.threads < 1:
        raise UserError(f"--threads {chosen.threads}: must be at least 1")
    if chosen.clock == "cpu" and parse_device(chosen.device).type != "cpu":
        raise UserError("--clock cpu: a GPU's work is not in the process's time; add --device cpu, or use --clock wall")
    way_out = "without --record (which `make bench` adds), python scripts/benchmark.py measures any part"
    if chosen.record and chosen.quick:
        raise UserError(f"--record --quick: three rounds are not enough for a record; {way_out}")
    if chosen.record and chosen.size not in ("all", "library"):
        raise UserError(f"--record --size {chosen.size}: a record contains all sizes (--size all); {way_out}")
    if chosen.record and chosen.filter:
        raise UserError(f"--record --filter {chosen.filter!r}: a record contains all rows; {way_out}")
    if chosen.record and (chosen.threads is not None or chosen.clock != "wall"):
        raise UserError(f"--record with --threads or --clock: a record has default threads and wall time; {way_out}")
    if chosen.record and (code := provenance.code_version()).endswith("+dirty"):
        raise UserError(
            f"--record: uncommitted changes in {', '.join(provenance.TRACKED_PATHS)} ({code}); commit first"
        )
    if chosen.filter and chosen.size != "library":
        raise UserError(f"--filter {chosen.filter!r}: only the library's table has rows to choose; add --size library")
    if chosen.size == "library" and (chosen.chart or parse_device(chosen.device).type != "cpu"):
        raise UserError("--size library: a table for CPUs without a chart; leave --chart out and add --device cpu")
    formats = Figure().canvas.get_supported_filetypes()
    if chosen.chart and chosen.chart.suffix[1:] not in formats:
        raise UserError(f"--chart {chosen.chart}: allowed endings are {', '.join(sorted(formats))}")


def environment(device: torch.device, clock: str) -> dict[str, Any]:
    """The machine and the code behind the numbers."""
    return {
        **provenance.hardware(device),
        "caches": cpu_cache.describe() if device.type == "cpu" else None,
        "torch": torch.__version__,
        "clock": clock,
        "commit": provenance.code_version(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def main() -> None:
    chosen = arguments()
    check(chosen)
    allocator.retain_heap()
    torch.set_flush_denormal(True)  # vanishing gradients would slow down torch's layers, not ours (varrnn/kernels)
    device = parse_device(chosen.device)
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    torch.manual_seed(0)
    set_precision(chosen.precision, device)
    if device.type == "cpu":
        print(c_library.load_status()[1])
    machine = environment(device, chosen.clock)
    record_path = library_path if chosen.size == "library" else benchmark_path
    file = record_path(machine) if chosen.record else chosen.json
    written = [fileio.prepare_file(path) for path in (file, chosen.chart) if path]
    print(", ".join(f"{key} {value}" for key, value in machine.items() if value))
    record: dict[str, Any] = {"machine": machine}
    if chosen.size == "library":
        measure_library(chosen, record)
    seconds = SECONDS if chosen.seconds is None else chosen.seconds
    limits = (0.0, QUICK_ROUNDS) if chosen.quick else (seconds, ROUNDS)
    timer = Timer(chosen.clock, *limits, MOST_ROUNDS, device)
    sizes = {"all": list(benchmark_candidates.SHAPES), "library": []}.get(chosen.size, [chosen.size])
    for name in sizes:
        record[name] = measure(name, timer)
        print(table(name, record[name]), flush=True)
    if file:
        if chosen.record:
            integrity.write(file, record)
        else:
            fileio.write_text(file, json.dumps(record, indent=1) + "\n")
    if chosen.chart:
        chart(record, chosen.chart)
    print("".join(f"\nwrote {path}" for path in written))
    if message := request_record(machine, file):
        print(message)


if __name__ == "__main__":
    with user_errors():
        main()
