"""Views of results of a compiled call find their memory after the call, even if the result itself
is also returned."""
import pytest


@pytest.fixture
def torch(npu):
    import mindtorch.torch as mt
    return mt


@pytest.mark.parametrize("whole", [True, False])
def test_views_of_views_of_results(torch, whole):
    def made(x):
        y = x * 2
        q, k, v = y.view(4, 3, 2, 4).transpose(1, 2).split(1, dim=3)[1:]
        return (y, q, k, v) if whole else (q, k, v)
    f = torch.compile(made, backend="mindspore")
    for step in range(6):
        x = torch.arange(96.0).view(4, 24) + step
        for got, want in zip(f(x.to("npu")), made(x)):
            assert torch.equal(got.cpu(), want)
            assert torch.equal(got[1:].cpu(), want[1:])
            assert torch.equal(got.flatten()[3:7].cpu(), want.flatten()[3:7])
            assert torch.equal((got.t() if got.dim() == 2 else got.mT)[2:].contiguous().cpu(), (want.t() if want.dim() == 2 else want.mT)[2:])


def test_returned_views_are_inputs_of_the_next_call(torch):
    first = torch.compile(lambda x: (x + 1).split(2, dim=1), backend="mindspore")
    second = torch.compile(lambda a, b: (a[:, 1:] * b[1:, :1].sum(), a.t() + 1), backend="mindspore")
    for step in range(6):
        x = torch.arange(12.0).view(3, 4) + step
        y = (x + 1).split(2, dim=1)
        want = y[0][:, 1:] * y[1][1:, :1].sum(), y[0].t() + 1
        for got, w in zip(second(*first(x.to("npu"))), want):
            assert torch.equal(got.cpu(), w)
