"""The benchmark at a tiny size: what it measures, prints and writes."""

import importlib.util
import json
import sys

import pytest
import torch
from helpers import ROOT

from varrnn.benchmark import candidates, concurrency
from varrnn.config import compose
from varrnn.errors import UserError
from varrnn.kernels import c_library, record_backends
from varrnn.records.paths import benchmark_path, library_path
from varrnn.training import provenance

TINY = candidates.Shape(8, 2, 4, 3, 30, 30, 0.25, 0.1, 5.0)
SCRIPT = ROOT / "scripts" / "benchmark.py"
KEYS = {"limit", "nn_lstm", "loop_tied", "loop_untied", "variational_tied", "variational_untied", "naive", "moon"}
KEYS |= {"variational_tied_torch"} if c_library.get_library() is not None else set()
HAS_AMX = c_library.split_status()[0] is not None
KEYS |= {"variational_untied_high"} if HAS_AMX else set()

PROTOCOLS = {f"{protocol}_{cell}" for protocol in ("paper", "authors_code") for cell in ("lstm", "gru")}


@pytest.fixture
def benchmark():
    spec = importlib.util.spec_from_file_location("benchmark", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_json_table_and_chart(benchmark, monkeypatch, tmp_path, capsys):
    sentiment = candidates.Shape(8, 1, 6, 3, 30, 1, 0.25, 0.1, 0.0)
    monkeypatch.setattr(candidates, "SHAPES", {"medium": TINY, "sentiment": sentiment})
    monkeypatch.setattr(benchmark.allocator, "retain_heap", lambda: True)
    file, chart = tmp_path / "deep" / "bench.json", tmp_path / "chart.png"
    words = ["benchmark.py", "--size", "all", "--quick", "--device", "cpu", "--json", str(file), "--chart", str(chart)]
    monkeypatch.setattr(sys, "argv", words)
    benchmark.main()
    record = json.loads(file.read_text())
    assert set(record) == {"machine", "medium", "sentiment"}
    assert record["machine"]["torch"] == torch.__version__ and record["machine"]["threads"] > 0
    assert record["machine"]["instructions"] == torch.backends.cpu.get_cpu_capability()
    assert record["machine"]["caches"]["l2_kb"] > 0
    for size in ("medium", "sentiment"):
        found = record[size]
        assert set(found) >= KEYS
        for ratios in ("ratio_to_limit", "ratio_to_nn_lstm"):
            assert set(found[ratios]) == KEYS | (PROTOCOLS if size == "sentiment" else set())
        assert found["ratio_to_limit"]["limit"] == found["ratio_to_nn_lstm"]["nn_lstm"] == 1
    assert record["medium"]["mc"]["batched"] > record["medium"]["mc"]["sequential"]
    assert ("high_to_batched" in record["medium"]["mc"]) is HAS_AMX
    assert chart.stat().st_size > 1000 and benchmark.benchmark_path(record["machine"]).parent.name == "benchmark"
    assert "untied / tied" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--size all --record --quick", "--record --quick"),
        ("--size all --record --size sentiment", "--record --size sentiment"),
        ("--record --size library --filter lstm", "--record --filter 'lstm': a record contains all rows"),
        ("--size all --record --threads 1", "--record with --threads or --clock"),
        ("--size all --record --clock cpu", "--record with --threads or --clock"),
        ("--quick --chart here.foo", r"here\.foo: allowed endings are .*png"),
        ("--quick --json a.txt/x.json", r"a\.txt is a file, not a folder"),
        ("--quick --json .", "is a folder; give the name of a file"),
        ("--quick --chart a.txt/x.png", r"a\.txt is a file, not a folder"),
    ],
)
def test_a_record_or_file_that_cannot_be_written_is_reported_before_measuring(
    benchmark, monkeypatch, tmp_path, words, message
):
    """A record of fewer sizes or rounds would replace the committed one of the same machine."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("")
    monkeypatch.setattr(benchmark.allocator, "retain_heap", lambda: True)
    monkeypatch.setattr(benchmark, "measure", lambda *_: pytest.fail("measured first"))
    monkeypatch.setattr(sys, "argv", ["benchmark.py", *words.split()])
    with pytest.raises(UserError, match=message):
        benchmark.main()


def test_code_with_uncommitted_changes_makes_no_record(benchmark, monkeypatch):
    monkeypatch.setattr(provenance, "commit", lambda: ("a" * 40, True))
    monkeypatch.setattr(sys, "argv", ["benchmark.py", "--size", "all", "--record"])
    monkeypatch.setattr(benchmark.allocator, "retain_heap", lambda: True)
    with pytest.raises(UserError, match="--record: uncommitted changes in varrnn"):
        benchmark.main()
    assert benchmark.environment(torch.device("cpu"), "wall")["commit"].endswith("+dirty")


def test_a_record_is_named_after_its_machine(benchmark):
    cpu = {"cpu": "AMD EPYC 9R14 (Zen 4)", "cores": 2, "gpu": None}
    assert benchmark_path(cpu).name == "amd_epyc_9r14_zen_4_2_cores.json"
    whole = {**cpu, "instructions": "AVX2", "caches": {"l1_kb": 32, "l2_kb": 512, "l3_kb": 32768}}
    assert benchmark_path(whole).name == "amd_epyc_9r14_zen_4_avx2_l3_32768_kb_2_cores.json"
    assert benchmark_path({**cpu, "gpu": "NVIDIA H100"}).name == "nvidia_h100.json"
    assert library_path(cpu).name == benchmark_path(cpu).name and library_path(cpu).parent != benchmark_path(cpu).parent


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_no_gpu(benchmark, monkeypatch):
    monkeypatch.setattr(benchmark.allocator, "retain_heap", lambda: True)
    for words, expected in (("--device foo", "device=foo: allowed are"), ("--threads -3", "must be at least 1")):
        monkeypatch.setattr(sys, "argv", ["benchmark.py", *words.split()])
        with pytest.raises(UserError, match=expected):
            benchmark.main()
    monkeypatch.setattr(sys, "argv", ["benchmark.py", "--device", "cuda"])
    with pytest.raises(UserError, match="no CUDA GPU that torch can use"):
        benchmark.main()


@pytest.mark.slow
def test_parallel_runs(monkeypatch):
    """Every worker trains its steps, the words of all workers are counted, and all end with a success."""
    workers, original = [], concurrency.Worker
    monkeypatch.setattr(concurrency, "Worker", lambda *given: workers.append(original(*given)) or workers[-1])
    found = concurrency.measure(TINY, cores=2, rounds=3)
    assert found["runs"] == 2 and found["rounds"] == 3
    assert found["one_run"] > 0 and found["side_by_side"] > 0
    assert 0.5 < found["ratio"] / (found["side_by_side"] / found["one_run"]) < 2
    assert [worker.process.exitcode for worker in workers] == [0, 0, 0]


def test_the_usual_loop_is_the_same_network():
    """Without dropout the loop, nn.LSTM and ours agree, so that the benchmark compares the same network."""
    plain = candidates.Shape(8, 2, 4, 3, 30, 30, 0.0, 0.0, 5.0)
    torch_model = candidates.TorchModel(plain)
    words = torch.randint(0, 30, (4, 3))
    expected = torch_model(words)[0]
    for tied in (True, False):
        loop = candidates.LoopModel(plain, tied)
        loop.load_state_dict(torch_model.state_dict())
        torch.testing.assert_close(loop(words)[0], expected)
    mine = candidates.ours(plain, candidates.variants(plain)["variational_tied"])
    mine.load_state_dict(torch_model.state_dict())
    torch.testing.assert_close(mine(words)[0], expected)


@pytest.mark.parametrize("name", ["small", "sentiment"])
@pytest.mark.slow
def test_less_memory_than_nn_lstm(name):
    shape = candidates.SHAPES[name]
    reference = candidates.saved_mb(candidates.TorchModel(shape), shape)
    for dropout in candidates.variants(shape).values():
        if dropout.p_U or dropout.p_c:  # without C the others run on torch's own kernel
            assert candidates.saved_mb(candidates.ours(shape, dropout), shape) < 0.6 * reference


@pytest.mark.parametrize("name", candidates.SHAPES)
def test_the_timed_models_have_the_sizes_of_the_trained_models(name):
    shape = candidates.SHAPES[name]
    made = compose.compose(["experiment=cornell" if name == "sentiment" else f"experiment=ptb_{name}", "model=naive"])
    assert (shape.units, shape.layers) == (made.size.units, made.size.layers)
    assert (shape.steps, shape.batch, shape.clip) == (made.task.steps, made.task.batch_size, made.optim.clip)


@pytest.mark.slow
def test_numbers_that_are_measured_on_a_gpu_only(benchmark, monkeypatch):
    """Launches, device memory and the request for the record, with simulated memory counters of a GPU."""
    held, events = iter([100, 300, 100, 500]), []
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 2**20 * next(held))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: 2**20 * next(held))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _: events.append("reset"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: events.append("wait"))
    names = ("limit", "nn_lstm", "variational_untied")
    steps = {name: lambda name=name: events.append(name) for name in names}
    found = benchmark.gpu_numbers(TINY, steps, torch.device("cuda"))
    assert found["step_mb"] == {"nn_lstm": 200, "variational_untied": 400}
    assert events == ["reset", "nn_lstm", "wait", "reset", "variational_untied", "wait"]
    assert 0 < found["launches"]["nn_lstm"] < found["launches"]["variational_untied"]
    ratios = {name: 1.0 for name in names}
    speeds = {name: 1000.0 for name in names}
    rest = {"ratio_to_limit": ratios, "ratio_to_nn_lstm": ratios, "spread": ratios, "rounds": 10, "untied_to_tied": 1.0}
    shown = benchmark.table("large", {**speeds, **found, **rest, "saved_mb": {"ours": 1.0, "nn_lstm": 2.0}}).split("\n")
    assert shown[1].endswith("launches   MB per step") and "C code" not in "".join(shown)
    assert shown[2].split()[-2:] == ["-", "-"]  # the limit has neither
    assert shown[3].split()[-2:] == [str(found["launches"]["nn_lstm"]), "200"]


def test_the_owner_of_a_gpu_is_asked_for_the_record(benchmark, tmp_path):
    gpu, file = {"gpu": "A100", "precision": "highest"}, tmp_path / "a100.json"
    assert benchmark.request_record({"gpu": None}, file) == ""
    assert f"send us this record: {file}" in benchmark.request_record(gpu, file)
    assert "at precision highest" in benchmark.request_record(gpu, file)
    assert "--record" in benchmark.request_record(gpu, None)


@pytest.mark.skipif(c_library.get_library() is None, reason=c_library.load_status()[1])
def test_one_candidate_runs_without_the_c_code():
    steps = candidates.candidates(TINY, torch.device("cpu"))
    for name, backend in (("variational_tied", "c"), ("variational_tied_torch", "torch")):
        with record_backends() as used:
            steps[name]()
        assert set(used) == {backend}


@pytest.mark.skipif(not HAS_AMX, reason=c_library.split_status()[1])
def test_one_candidate_computes_split_products(monkeypatch):
    """For its own step only; with --precision high all candidates do, and it is left out."""
    used, usual = set(), c_library.get_library_for_precision
    monkeypatch.setattr(c_library, "get_library_for_precision", lambda: used.add(usual()) or usual())
    steps = candidates.candidates(TINY, torch.device("cpu"))
    for name, library in (("variational_untied_high", c_library.split_status()[0]), ("naive", c_library.get_library())):
        used.clear()
        steps[name]()
        assert used == {library} and torch.get_float32_matmul_precision() == "highest"
    torch.set_float32_matmul_precision("high")
    try:
        assert "variational_untied_high" not in candidates.candidates(TINY, torch.device("cpu"))
    finally:
        torch.set_float32_matmul_precision("highest")
