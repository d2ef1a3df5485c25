"""torch.distributed: results of several processes compared with PyTorch and gloo run the same way.
"""
import numpy as np
import pytest
from _dist_run import program

TOLERANCE = {"float32": 1e-5, "float64": 1e-12, "float16": 2e-3, "bfloat16": 2e-2, "complex64": 1e-5, "complex128": 1e-12}


def same(mine, theirs, name):
    tol = next((t for d, t in TOLERANCE.items() if f"/{d}" in name), 1e-5)
    assert len(mine) == len(theirs), name
    for a, b in zip(mine, theirs):
        assert a.dtype == b.dtype and a.shape == b.shape, (name, a.dtype, b.dtype, a.shape, b.shape)
        if a.dtype.kind in "fc":
            np.testing.assert_allclose(a, b, tol, tol, err_msg=name)
        else:
            np.testing.assert_array_equal(a, b, err_msg=name)


def compare(name, world, tmp_path, **env):
    """Compares both runs and returns (cases with results, cases that PyTorch rejects). Errors are
    compared by type."""
    theirs, mine = program(name, "torch", world, tmp_path), program(name, "ms", world, tmp_path, **env)
    compared, refused, bad = set(), set(), []
    for rank in range(world):
        assert set(mine[rank]) == set(theirs[rank])
        for case, expected in theirs[rank].items():
            got = mine[rank][case]
            try:
                if isinstance(expected, str):
                    assert got == expected, (case, got, expected)
                else:
                    assert not isinstance(got, str), (case, got)
                    same(got, expected, case)
            except AssertionError as e:
                bad.append(f"rank {rank}: {e}")
            (refused if isinstance(expected, str) and expected.startswith("refused") else compared).add(case)
    assert not bad, f"{len(bad)} of {len(compared)} cases differ:\n" + "\n".join(bad[:20])
    return compared, refused


def check(world, tmp_path):
    compared, refused = compare("everything", world, tmp_path)
    assert len(compared) > 1000, len(compared)
    # Averages of integers, bitwise ops on floats, ordering of complex numbers. No other case may be
    # skipped unnoticed.
    assert all(c.startswith("all_reduce/") and len(c.split("/")) == 3 for c in refused), sorted(refused)


@pytest.mark.timeout(150)
def test_two_processes(tmp_path):
    check(2, tmp_path)


@pytest.mark.dist
@pytest.mark.timeout(300)
def test_four_processes(tmp_path):
    check(4, tmp_path)


@pytest.mark.dist
@pytest.mark.timeout(200)
def test_over_mindspore(tmp_path):
    """The accelerator code path, on CPU: MindSpore's communication transfers the data."""
    for world in (2, 4):
        compared, refused = compare("over_mindspore", world, tmp_path, MINDTORCH_CPU_COMM="mccl")
        assert len(compared) > 300 and not refused, (len(compared), refused)
