"""Walks over nested tuples, lists and mappings."""

from typing import NamedTuple

import torch
from torch import Tensor

from varrnn.tensor_trees import leaves, map_tensors, tensors


class Pair(NamedTuple):
    first: Tensor
    rest: tuple


def test_trees_keep_their_kinds():
    pair = Pair(torch.ones(2), (torch.zeros(()), torch.ones(1), None))
    doubled = map_tensors(lambda t: 2 * t, pair)
    assert type(doubled) is Pair and doubled.rest[2] is None
    assert [t.sum().item() for t in tensors(doubled)] == [4, 0, 2]
    assert list(leaves(doubled))[-1] is None


def test_tensors_of_a_tree_are_moved():
    tree = {"state": ((torch.ones(1), [torch.zeros(2)]),), "epoch": 3, "curve": {5: torch.ones(())}}
    there = map_tensors(lambda t: t.to("meta"), tree)
    assert there["state"][0][0].is_meta and there["state"][0][1][0].is_meta and there["curve"][5].is_meta
    assert there["epoch"] == 3 and type(there["state"]) is tuple and len(tensors(there)) == 3
