"""Which cases of a grid belong to the fast tests."""

import itertools
from types import SimpleNamespace

import pytest
from conftest import beyond_representatives


def grid(mark=None, **values):
    """Items as pytest collects them."""
    return [
        SimpleNamespace(
            nodeid=f"test_x.py::test_x[{number}]",
            callspec=SimpleNamespace(params=dict(zip(values, case))),
            get_closest_marker=lambda name: mark if mark is not None and mark.name == name else None,
        )
        for number, case in enumerate(itertools.product(*values.values()))
    ]


def kept(items):
    left_out = [item.nodeid for item in beyond_representatives(items)]
    return [item.callspec.params for item in items if item.nodeid not in left_out]


def test_every_pair_of_values_stays():
    values = {"cell": ["lstm", "gru", "rnn"], "variant": ["tied", "untied", {}], "dtype": [1, 1.0]}  # not all hashable
    found = kept(grid(**values))
    assert 9 <= len(found) < 18
    for one, other in itertools.combinations(values, 2):
        wanted = [(repr(a), repr(b)) for a, b in itertools.product(values[one], values[other])]
        assert set(wanted) == {(repr(case[one]), repr(case[other])) for case in found}


def test_every_value_of_a_costly_test_stays_or_the_first_cases():
    values = {"cell": ["lstm", "gru", "rnn"], "variant": ["tied", "untied"]}
    found = kept(grid(pytest.mark.costly.mark, **values))
    assert {case["cell"] for case in found} == set(values["cell"]) and len(found) == 4
    assert {case["variant"] for case in found} == set(values["variant"])
    assert kept(grid(pytest.mark.costly(2).mark, **values)) == [case.callspec.params for case in grid(**values)][:2]


def test_a_small_grid_stays_whole():
    assert len(kept(grid(a=[1, 2], b=[3, 4], c=[5, 6]))) == 8
    assert len(kept(grid(a=range(40)))) == 40
