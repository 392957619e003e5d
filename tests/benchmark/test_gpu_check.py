"""`make gpu-check` without a GPU: its parts, with substitutes for those that need a GPU, and its record."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch
from helpers import ROOT
from helpers.graph_emulator import Emulation, pretend_gpu
from helpers.runs import CPU, python, small

from varrnn.benchmark import gpu_check
from varrnn.errors import UserError
from varrnn.records import publish
from varrnn.records.store import load
from varrnn.training import cuda_graph, provenance

REPORT = """<?xml version="1.0"?><testsuites><testsuite>
<testcase classname="tests.a" name="one"/><testcase classname="tests.a" name="two"><failure message="no"/></testcase>
<testcase classname="tests.b" name="three"><error message="no"/></testcase>
<testcase classname="tests.b" name="four"><skipped/></testcase></testsuite></testsuites>"""
PASSED = {"passed": 30, "failed": 0, "skipped": 1, "failures": []}
MACHINE = {"gpu": "NVIDIA A100-SXM4-40GB", "cpu": "AMD EPYC", "cores": 8, "precision": "highest", "date": "2026-01-01"}


@pytest.fixture
def script():
    spec = importlib.util.spec_from_file_location("gpu_check_script", ROOT / "scripts" / "gpu_check.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_without_a_gpu_it_is_one_line_and_exit_code_2(tmp_path):
    done = python("scripts/gpu_check.py", folder=tmp_path)
    assert done.returncode == 2 and not done.stdout and not list(tmp_path.iterdir())
    assert done.stderr == ("error: gpu-check: this machine has no CUDA GPU that torch can use; nothing was checked\n")


def test_tests_are_counted_from_pytests_report():
    failures = ["tests.a::two", "tests.b::three"]
    assert gpu_check.count_tests(REPORT) == {"passed": 1, "failed": 2, "skipped": 1, "failures": failures}


def test_only_tests_for_a_gpu_are_run(monkeypatch, tmp_path):
    asked = []

    def run(words):
        asked.append(words)
        (tmp_path / "tests.xml").write_text(REPORT)
        return 1

    monkeypatch.setattr(gpu_check, "run_script", run)
    assert gpu_check.run_tests(tmp_path / "tests.xml")["failed"] == 2
    assert asked == [["-m", "pytest", "-q", "-m", "cuda", f"--junitxml={tmp_path / 'tests.xml'}", "tests"]]
    monkeypatch.setattr(gpu_check, "run_script", lambda _: 4)
    with pytest.raises(UserError, match="pytest wrote no report"):
        gpu_check.run_tests(tmp_path / "none.xml")
    with pytest.raises(UserError, match=r"benchmark\.py failed"):
        gpu_check.run_benchmark(tmp_path / "none.json", "cuda", "highest")


@pytest.mark.slow
def test_training_with_and_without_the_graph(monkeypatch):
    recorders = pretend_gpu(monkeypatch)
    task, made = small("model=variational_untied")
    found = gpu_check.compare_graph(task, made, CPU, 12)
    assert found["equal_to_the_bit"] and found["largest_loss_difference"] == 0 and found["updates"] == 12
    assert recorders[0].replays == 13  # one of them for the comparison with an eager step
    assert found["graph"]["cuda_graph"] == cuda_graph.EQUAL and "cuda_graph" not in found["eager"]
    speeds = [found[name]["words_per_second"] for name in ("graph", "eager")]
    assert found["graph_to_eager"] == speeds[0] / speeds[1] and min(speeds) > 0
    assert len(found["eager"]["losses"]) == 12 and found["eager"]["losses"][-1] != found["eager"]["losses"][0]
    assert gpu_check.problems(PASSED, found) == []


@pytest.mark.slow
def test_a_graph_that_drifts_is_a_problem(monkeypatch):
    """The graph equals the eager step in the first comparison, but not during training."""

    class Drifting(Emulation):
        def replay(self):
            super().replay()
            if self.replays > 5:
                self.loss.add_(1.0)

        def capture(self, function):
            out = super().capture(function)
            self.loss = out[0].loss_for_log
            return out

    pretend_gpu(monkeypatch)
    monkeypatch.setattr(cuda_graph, "make_recorder", Drifting)
    task, made = small()
    found = gpu_check.compare_graph(task, made, CPU, 8)
    assert not found["equal_to_the_bit"]
    assert "differs from eager training, by up to 1 in the loss" in gpu_check.problems(PASSED, found)[0]


def test_problems_are_named():
    graph = {"cuda_graph": "not used: the capture failed (no)"}
    training = {"graph": graph, "equal_to_the_bit": True, "largest_loss_difference": 0.0}
    found = gpu_check.problems({"passed": 0, "failed": 1, "skipped": 0, "failures": ["tests.a::two"]}, training)
    assert found[0] == "failed: tests.a::two" and "no test marked cuda" in found[1] and "not used" in found[2]


@pytest.fixture
def record():
    speeds = {name: {"words_per_second": 100.0, "cuda_graph": cuda_graph.EQUAL} for name in ("eager", "graph")}
    training = {**speeds, "equal_to_the_bit": True, "graph_to_eager": 1.0, "largest_loss_difference": 0.0}
    return {"machine": MACHINE | {"commit": "0" * 40}, "large": {"limit": 1.0}, "tests": PASSED, "training": training}


def test_the_whole_check_with_its_parts_replaced(script, record, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(script, "parse_device", torch.device)
    monkeypatch.setattr(script, "set_precision", lambda *_: None)
    monkeypatch.setattr(provenance, "code_version", lambda: "0" * 40)
    monkeypatch.setattr(provenance, "hardware", lambda _: MACHINE)
    monkeypatch.setattr(script.base, "build", lambda *_: None)
    fetched = iter([0, 0, 1])
    monkeypatch.setattr(gpu_check, "run_script", lambda words: next(fetched) if "--if-missing" in words else 9)
    monkeypatch.setattr(gpu_check, "run_tests", lambda _: record["tests"])
    monkeypatch.setattr(gpu_check, "run_benchmark", lambda *_: {key: record[key] for key in ("machine", "large")})
    monkeypatch.setattr(gpu_check, "compare_graph", lambda *_: record["training"])
    monkeypatch.setattr(sys, "argv", ["gpu_check.py"])
    monkeypatch.chdir(tmp_path)
    assert script.main() == 0
    file = Path("runs/gpu_check/nvidia_a100_sxm4_40gb.json")
    written, output = json.loads(file.read_text()), capsys.readouterr().out
    assert written["kind"] == "gpu_check" and written["training"]["run"] == script.RUN
    assert f"send us this record, in an issue, or publish it: python scripts/publish.py {file}" in output
    record["tests"] = PASSED | {"failed": 1, "failures": ["tests.a::two"]}
    assert script.main() == 1 and "failed: tests.a::two" in capsys.readouterr().out
    with pytest.raises(UserError, match="could not be fetched"):
        script.main()
    monkeypatch.setattr(provenance, "code_version", lambda: f"{'0' * 40}+dirty")
    with pytest.raises(UserError, match="uncommitted changes"):
        script.main()
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--device", "cpu"])
    with pytest.raises(UserError, match="--device cpu: allowed are cuda"):
        script.main()


def test_a_gpu_check_is_published_as_a_benchmark(record, monkeypatch, tmp_path):
    monkeypatch.setattr(publish, "in_repository", lambda *_: True)
    file, records = tmp_path / "check.json", tmp_path / "records"
    whole = {"schema": publish.SCHEMA, "kind": "gpu_check", **record}
    file.write_text(json.dumps(whole))
    path = publish.publish(file, records)
    assert path == records / "benchmark" / "nvidia_a100_sxm4_40gb.json"
    (found,) = load(records).benchmarks
    assert found["large"] == {"limit": 1.0} and found["training"]["equal_to_the_bit"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tests": PASSED | {"failed": 2, "failures": ["tests.a::two"]}}, r"2 of its tests failed \(tests\.a::two\)"),
        ({"tests": PASSED | {"passed": 0}}, "0 passed, so its speed is not evidence"),
        ({"machine": MACHINE | {"gpu": None}}, "no GPU is named"),
        ({"machine": MACHINE | {"commit": "1" * 40}}, "is not in this repository"),
        ({"machine": MACHINE | {"commit": f"{'0' * 40}+dirty"}}, "dirty commit"),
        ({"training": 3}, "training is 3, it should be updates with and without"),
        ({"machine": MACHINE | {"commit": "0" * 40, "cpu": "/some/folder"}}, "/some/folder.* names this machine"),
    ],
)
def test_a_record_without_a_gpu_or_with_failed_tests_is_rejected(record, change, message, monkeypatch, tmp_path):
    monkeypatch.setattr(publish, "in_repository", lambda commit, _: commit == "0" * 40)
    file = tmp_path / "check.json"
    file.write_text(json.dumps({"schema": publish.SCHEMA, "kind": "gpu_check", **record, **change}))
    with pytest.raises(UserError, match=message):
        publish.publish(file, tmp_path / "records")
    assert not (tmp_path / "records").exists()
