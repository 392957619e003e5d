"""Compare one run that uses all threads of a machine with as many parallel runs of one thread each."""

import multiprocessing
import statistics
import time
from multiprocessing.connection import Connection

import torch

from varrnn.benchmark import candidates
from varrnn.training import allocator

STEPS = 4  # training steps of every worker in a round


class Worker:
    """A process that trains the untied variational model for some steps on each request."""

    def __init__(self, shape: candidates.Shape, threads: int) -> None:
        spawn = multiprocessing.get_context("spawn")  # a forked process would share the parent's pool of threads
        self.pipe, theirs = spawn.Pipe()
        self.process = spawn.Process(target=_work, args=(shape, threads, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def begin(self) -> None:
        self.pipe.send(STEPS)

    def wait(self) -> None:
        self.pipe.recv()

    def close(self) -> None:
        self.pipe.close()  # ends its loop
        self.process.join()


def _work(shape: candidates.Shape, threads: int, pipe: Connection) -> None:
    torch.set_num_threads(threads)
    allocator.retain_heap()
    torch.manual_seed(0)
    model = candidates.ours(shape, candidates.variants(shape)["variational_untied"])
    step = candidates.training_step(model, shape, torch.device("cpu"))
    try:
        while True:
            for _ in range(pipe.recv()):
                step()
            pipe.send("done")
    except EOFError:
        return


def measure(shape: candidates.Shape, cores: int, rounds: int) -> dict[str, float]:
    """Words per second of the whole machine with one run and with parallel runs, in alternating rounds.

    The ratio is the median over rounds."""
    words = STEPS * shape.steps * shape.batch
    sides = [Worker(shape, 1) for _ in range(cores)]
    alone = [Worker(shape, cores)]
    try:
        _round(alone), _round(sides)  # warms up
        pairs = [(words / _round(alone), cores * words / _round(sides)) for _ in range(rounds)]
    finally:
        for worker in (*alone, *sides):
            worker.close()
    one_run, side_by_side = (statistics.median(speeds) for speeds in zip(*pairs))
    ratio = statistics.median(several / one for one, several in pairs)
    return {"runs": cores, "one_run": one_run, "side_by_side": side_by_side, "ratio": ratio, "rounds": rounds}


def _round(workers: list[Worker]) -> float:
    """Seconds until the last worker has finished."""
    start = time.perf_counter()
    for worker in workers:
        worker.begin()
    for worker in workers:
        worker.wait()
    return time.perf_counter() - start
