"""Mixture-of-experts and deformable attention kernels of the CANN simulator: both engines agree,
and tokens reach their experts."""
import numpy as np
from _standin_cases import Outcome, call, out

r = np.random.RandomState(0)
EXPERTS = np.array([[0, 2], [1, 2], [0, 1], [2, 0], [1, 0]], np.int32)
# position of each token's copy, sorted by expert
WENT = EXPERTS.reshape(-1).argsort(kind="stable").argsort(kind="stable").astype(np.int32)
N, K, H, E = 5, 2, 4, 3


def f(*shape):
    return r.randn(*shape).astype(np.float32)


def whole(*shape):
    return out(*shape, dtype="int32")


def cases():
    x, big, small = f(N, H), out(N * K, H), out(6, H)
    for kept, empty in ((0, big), (6, small)):
        rows = f(*empty.shape)
        yield call("MoeTokenPermute", x, EXPERTS, kept, False, empty, whole(N * K))
        yield call("MoeTokenPermuteGrad", rows, WENT, K, False, out(N, H))
        yield call("MoeTokenUnpermute", rows, WENT, f(N, K), False, [1], out(N, H))
        yield call("MoeTokenUnpermuteGrad", rows, f(N, H), WENT, f(N, K), False, [1, 1], empty, out(N, K))
    yield call("MoeTokenPermute", x, EXPERTS[:, 0].copy(), 0, False, out(N, H), whole(N))
    one = np.array([2, 0, 1, 4, 3], np.int32)
    yield call("MoeTokenUnpermute", x, one, None, False, None, out(N, H))
    yield call("MoeTokenUnpermuteGrad", x, f(N, H), one, None, False, None, out(N, H), None)
    for finished in (None, np.array([True, False, False, True, False])):
        yield call("MoeGatingTopKSoftmax", f(N, 6), finished, K, out(N, K), whole(N, K), whole(N, K))
    rows = (np.arange(K) * N + np.arange(N).reshape(-1, 1)).astype(np.int32)
    for active in (N, 3):
        yield call("MoeInitRouting", x, rows, EXPERTS, active, out(active * K, H), whole(N * K), whole(N * K))
    for active, capacity, padded, flag, before, shape in ((0, 0, 0, 1, False, (N * K, H)), (6, 0, 0, 2, False, (6, H)), (0, 2, 1, 0, True, (E, 2, H))):
        yield call("MoeInitRoutingV2", x, EXPERTS, active, capacity, E, padded, flag, before, out(*shape), whole(N * K), whole(E), whole(E))
        less, each = out(*shape, dtype="int8"), out(shape[0] * (2 if padded else 1))
        for mode, scale in ((0, np.array([9], np.float32)), (1, None), (1, np.abs(f(E, H)) + 1), (1, np.abs(f(1, H)) + 1)):
            yield call("MoeInitRoutingQuantV2", x, EXPERTS, scale, None if mode else np.array([2], np.float32), active, capacity, E, padded, flag, before, mode,
                       less, whole(N * K), whole(E), whole(E), None if mode == 0 else each)
    places = WENT.reshape(N, K).T.reshape(-1).copy()
    for x2, bias in ((f(N, H), f(E, H)), (None, None)):
        yield call("MoeFinalizeRouting", f(N * K, H), x, x2, bias, f(N, K), places, EXPERTS, out(N, H))
    yield call("MoeComputeExpertTokens", np.array([0, 0, 1, 2, 2], np.int32), 5, whole(5))
    maps = f(2, 8, 3, 4), np.array([[2, 3], [1, 2]], np.int32), np.array([0, 6], np.int32), r.rand(2, 5, 3, 2, 2, 2).astype(np.float32), f(2, 5, 3, 2, 2)
    yield call("MultiScaleDeformableAttnFunction", *maps, out(2, 5, 12))
    yield call("MultiScaleDeformableAttentionGrad", *maps, f(2, 5, 12), out(*maps[0].shape), out(*maps[3].shape), out(*maps[4].shape))


def test_engines():
    found = Outcome(list(cases()), "experts", rtol=1e-4, atol=1e-5)
    assert not found.differences
    assert not found.without_case


def test_permute_and_unpermute_tokens():
    """Tokens sorted by expert are in the right order; merged back with equal weights they are
    unchanged, for both families of kernels."""
    x, halves = f(N, H), np.full((N, K), .5, np.float32)
    by_expert = np.concatenate([x[(EXPERTS == e).any(1)] for e in range(E)])
    rows = (np.arange(K) * N + np.arange(N).reshape(-1, 1)).astype(np.int32)
    first, second, third = Outcome([
        call("MoeTokenPermute", x, EXPERTS, 0, False, out(N * K, H), whole(N * K)),
        call("MoeInitRouting", x, rows, EXPERTS, N, out(N * K, H), whole(N * K), whole(N * K)),
        call("MoeInitRoutingV2", x, EXPERTS, 0, 0, E, 0, 2, False, out(N * K, H), whole(N * K), whole(E), whole(E))]).results
    for found in (first[-2], second[-3], third[-4]):
        np.testing.assert_array_equal(found, by_expert)
    np.testing.assert_array_equal(second[-1], np.sort(EXPERTS.reshape(-1)))
    np.testing.assert_array_equal(third[-2], np.bincount(EXPERTS.reshape(-1)))
    back, finished = Outcome([
        call("MoeTokenUnpermute", first[-2], first[-1], halves, False, None, out(N, H)),
        call("MoeFinalizeRouting", second[-3], np.zeros_like(x), None, None, halves, second[-2], EXPERTS, out(N, H))]).results
    np.testing.assert_allclose(back[-1], x, 1e-6)
    np.testing.assert_allclose(finished[-1], x, 1e-6)
