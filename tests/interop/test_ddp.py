"""DistributedDataParallel on two processes: equal weights after a step, other masks on each of them."""

import os
import socket

import pytest
import torch
from helpers import processes

WORKER = """
import os, sys, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from varrnn import DropoutRates, VariationalLSTM, hold_masks

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
layer = VariationalLSTM(3, 4, 2, dropout=DropoutRates.variational(p_W=0.3, p_U=0.3, tied=False))
model = DistributedDataParallel(layer)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(rank + 1)
for _ in range(2):
    out = model(torch.ones(5, 2, 3))[0]
    optimizer.zero_grad()
    out.square().sum().backward()
    optimizer.step()
with hold_masks(model):
    assert torch.equal(model(torch.ones(5, 2, 3))[0], model(torch.ones(5, 2, 3))[0])
torch.save({"weights": layer.state_dict(), "out": out.detach()}, sys.argv[1] + f"/{rank}.pt")
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
def test_two_processes(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    workers = [
        processes.Process("-c", WORKER, str(tmp_path), environment={**os.environ, **environment, "RANK": str(rank)})
        for rank in range(2)
    ]
    for worker in workers:
        _, errors = worker.communicate()
        assert worker.returncode == 0, errors
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    for name, weight in first["weights"].items():
        assert torch.equal(weight, second["weights"][name])
    assert not torch.equal(first["out"], second["out"])
