"""Nested tuples, lists and mappings that contain tensors: what models take and give, carried states, saved progress."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor


def leaves(tree: Any) -> Iterator[Any]:
    """Everything in the tree that is not a tuple, a list or a mapping, in order."""
    if isinstance(tree, tuple | list):
        for branch in tree:
            yield from leaves(branch)
    elif isinstance(tree, Mapping):
        for branch in tree.values():
            yield from leaves(branch)
    else:
        yield tree


def tensors(tree: Any) -> list[Tensor]:
    """The tensors of the tree, in order."""
    return [leaf for leaf in leaves(tree) if isinstance(leaf, Tensor)]


def map_tensors(function: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """The same tree with `function(tensor)` in place of every tensor; a mapping becomes a dict."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, Mapping):
        return {key: map_tensors(function, branch) for key, branch in tree.items()}
    if isinstance(tree, tuple | list):
        branches = [map_tensors(function, branch) for branch in tree]
        return type(tree)(*branches) if hasattr(tree, "_fields") else type(tree)(branches)
    return tree
