"""Steps that GradScaler leaves to the optimizer, and gradients through steps (differentiable=True),
compared with PyTorch."""
import warnings

import pytest
from _both_sides import data, same


def stepping(T, takes_scaler):
    """Returns a parameter, an optimizer that unscales by itself, and the list of what its step
    received."""
    seen = []
    p = T.nn.Parameter(T.ones(3))

    class Base(T.optim.Optimizer):
        _step_supports_amp_scaling = True

        def __init__(self):
            super().__init__([p], {})

        def note(self, scaler):
            attributes = [getattr(self, n, "absent") for n in ("grad_scale", "found_inf")]
            seen.append((isinstance(scaler, T.amp.GradScaler), [x if not T.is_tensor(x) else x.clone() for x in attributes], p.grad.clone()))
            return len(seen)

    class Old(Base):
        def step(self, closure=None, *, grad_scaler=None):
            return self.note(grad_scaler)

    class New(Base):
        def step(self, closure=None):
            return self.note(None)
    return p, (Old if takes_scaler else New)(), seen


@pytest.mark.parametrize("factor", [2.0, float("inf"), float("nan")])
@pytest.mark.parametrize("unscale", [False, True])
@pytest.mark.parametrize("takes_scaler", [False, True])
def test_step_left_to_the_optimizer(takes_scaler, unscale, factor):
    def run(T):
        p, opt, seen = stepping(T, takes_scaler)
        scaler = T.amp.GradScaler("cpu", init_scale=4.0)
        scaler.scale((p * factor).sum()).backward()
        if unscale:
            scaler.unscale_(opt)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            result = scaler.step(opt)
        out = [result, seen, [w.category.__name__ for w in warned], hasattr(opt, "grad_scale"), hasattr(opt, "found_inf")]
        for again in (lambda: scaler.step(opt), scaler.update):
            try:
                again()
            except (RuntimeError, AssertionError) as e:
                out.append(str(e))
        return [*out, scaler.get_scale()]
    same(run)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("factor", [2.0, float("inf"), None])
def test_gradients_that_cannot_be_unscaled_are_refused(dtype, fused, factor):
    """Covers float16 gradients, which only a fused step may receive scaled, and a missing gradient
    (None)."""
    for unscale in (False, True):
        def run(T):
            p = T.nn.Parameter(T.ones(3, dtype=getattr(T, dtype)))
            opt = T.optim.SGD([p], lr=0.1, fused=fused)
            scaler = T.amp.GradScaler("cpu", init_scale=8.0)
            scaled = scaler.scale((p * p * (factor or 1.0)).sum())
            if factor is not None:
                scaled.backward()
            out = []
            for call in ((lambda: scaler.unscale_(opt)) if unscale else (lambda: None), lambda: scaler.step(opt), lambda: scaler.step(opt), scaler.update):
                try:
                    call()
                except (ValueError, AssertionError, RuntimeError) as e:
                    out.append((type(e).__name__, str(e)))
            return [*out, p.detach(), p.grad, scaler.get_scale()]
        same(run)


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD", "Adagrad"])
@pytest.mark.parametrize("fused", [False, True])
def test_fused_steps_are_skipped_like_others(name, fused):
    def run(T):
        out = []
        for factor in (2.0, float("inf"), 3.0):
            for unscale in (False, True):
                p = T.nn.Parameter(T.tensor([1.0, -2.0]))
                opt = getattr(T.optim, name)([p], lr=0.1, fused=fused)
                scaler = T.amp.GradScaler("cpu", init_scale=4.0)
                scaler.scale((p * factor).sum()).backward()
                if unscale:
                    scaler.unscale_(opt)
                scaler.step(opt)
                scaler.update()
                out.append((p.detach(), p.grad, scaler.get_scale(), opt.state[p].get("step")))
        return out
    same(run, rtol=1e-6)


SHAPES = {"Adadelta": {}, "Adagrad": {}, "Adam": {"amsgrad": True}, "AdamW": {}, "Adamax": {}, "NAdam": {"decoupled_weight_decay": True}, "RAdam": {},
          "RMSprop": {"momentum": 0.9, "centered": True}, "Rprop": {}, "SGD": {"momentum": 0.9, "nesterov": True}}


@pytest.mark.parametrize("name", sorted(SHAPES))
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_gradient_reaches_every_state(name, decay):
    """Compares the gradients of a step's results with respect to the parameter, its gradient and
    each state before the step."""
    def run(T):
        kwargs = SHAPES[name] if name == "Rprop" or not decay else {**SHAPES[name], "weight_decay": decay}
        make = getattr(T.optim, name)
        first = T.tensor(data(1, 3, dtype="float64"), requires_grad=True)
        grad = T.tensor(data(2, 3, dtype="float64"), requires_grad=True)
        before = T.nn.Parameter(first.detach().clone())
        opt = make([before], lr=0.1, **kwargs)
        before.grad = grad.detach().clone()
        opt.step()
        leaves = {k: (v.detach() + 0.05).requires_grad_() for k, v in opt.state[before].items()
                  if T.is_tensor(v) and k != "step" and v.is_floating_point()}
        p = first.clone()
        opt2 = make([p], lr=0.1, differentiable=True, **kwargs)
        p.grad = grad
        opt2.state[p] = {k: leaves[k].clone() if k in leaves else v for k, v in opt.state[before].items()}
        opt2.step()
        p.square().sum().backward()
        return [p.detach(), first.grad, grad.grad, {k: T.zeros_like(v) if v.grad is None else v.grad for k, v in leaves.items()}]
    same(run, rtol=1e-6, atol=1e-9)
