"""Learning rate schedulers compared with PyTorch: the same program runs on both, and all results
must agree."""
import copy
import pickle

import pytest
import torch as real
from _both_sides import agree, plain, refused, same
from hypothesis import given, settings
from hypothesis import strategies as st

import mindtorch.torch as mine


def optimizer(T, kind="SGD", lr=0.1, groups=2, **kwargs):
    given = [{"params": T.nn.Parameter(T.zeros(2))}, {"params": T.nn.Parameter(T.zeros(3)), "lr": 0.05}][:groups]
    if kind == "SGD":
        kwargs.setdefault("momentum", 0.9)
    return getattr(T.optim, kind)(given, lr=lr, **kwargs)


def row(opt):
    return [[g["lr"].item() if hasattr(g["lr"], "item") else g["lr"], g.get("momentum"), g.get("betas")]
            for g in opt.param_groups]


MAKE = {
    "LambdaLR": lambda L, o: L.LambdaLR(o, lambda e: 0.9 ** e),
    "LambdaLR list": lambda L, o: L.LambdaLR(o, [lambda e: e // 3 + 1, lambda e: 0.5 ** e]),
    "MultiplicativeLR": lambda L, o: L.MultiplicativeLR(o, lambda e: 0.9 if e % 2 else 1.1),
    "StepLR": lambda L, o: L.StepLR(o, 3),
    "MultiStepLR": lambda L, o: L.MultiStepLR(o, [2, 4, 4, 7], gamma=0.5),
    "ConstantLR": lambda L, o: L.ConstantLR(o, 0.5, 4),
    "LinearLR": lambda L, o: L.LinearLR(o, 0.1, 0.8, 4),
    "ExponentialLR": lambda L, o: L.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda L, o: L.PolynomialLR(o, 6, 2.0),
    "CosineAnnealingLR": lambda L, o: L.CosineAnnealingLR(o, 4, 0.01),
    "CosineAnnealingWarmRestarts": lambda L, o: L.CosineAnnealingWarmRestarts(o, 3, 2, 0.01),
    "CyclicLR": lambda L, o: L.CyclicLR(o, 0.01, 0.1, 3),
    "CyclicLR triangular2": lambda L, o: L.CyclicLR(o, [0.01, 0.02], [0.1, 0.3], 3, 2, mode="triangular2"),
    "CyclicLR exp_range": lambda L, o: L.CyclicLR(o, 0.01, 0.1, 3, mode="exp_range", gamma=0.9,
                                                  base_momentum=[0.1, 0.2]),
    "CyclicLR own scale": lambda L, o: L.CyclicLR(o, 0.01, 0.1, 2, scale_fn=lambda x: 0.9 ** x,
                                                  scale_mode="iterations"),
    "CyclicLR no momentum": lambda L, o: L.CyclicLR(o, 0.01, 0.1, 3, cycle_momentum=False),
    "OneCycleLR": lambda L, o: L.OneCycleLR(o, [0.1, 0.3], total_steps=12),
    "OneCycleLR three phases": lambda L, o: L.OneCycleLR(o, 0.1, epochs=4, steps_per_epoch=3, three_phase=True),
    "OneCycleLR linear": lambda L, o: L.OneCycleLR(o, 0.1, total_steps=12, anneal_strategy="linear", pct_start=0.5,
                                                   div_factor=10, final_div_factor=3, max_momentum=[0.9, 0.8]),
    "OneCycleLR no momentum": lambda L, o: L.OneCycleLR(o, 0.1, total_steps=12, cycle_momentum=False),
    "SequentialLR": lambda L, o: L.SequentialLR(
        o, [L.LinearLR(o, 0.1, total_iters=3), L.CosineAnnealingWarmRestarts(o, 4), L.ExponentialLR(o, 0.9)], [3, 8]),
    "SequentialLR of cosine": lambda L, o: L.SequentialLR(o, [L.ConstantLR(o), L.CosineAnnealingLR(o, 5)], [4]),
    "ChainedScheduler": lambda L, o: L.ChainedScheduler([L.ConstantLR(o, 0.1, 3), L.ExponentialLR(o, 0.9)],
                                                        optimizer=o),
    "chain in a sequence": lambda L, o: L.SequentialLR(
        o, [L.ChainedScheduler([L.LinearLR(o), L.StepLR(o, 2)]), L.StepLR(o, 3)], [4]),
    "ReduceLROnPlateau": lambda L, o: L.ReduceLROnPlateau(o, factor=0.5, patience=1, cooldown=1, min_lr=[0.01, 0.0]),
    "SWALR": lambda L, o: L.swa(o, [0.5, 0.01], 4),
    "SWALR linear": lambda L, o: L.swa(o, 0.5, 3, "linear"),
}


class Names:
    """Namespace of torch.optim.lr_scheduler and SWALR."""

    def __init__(self, T):
        self.T = T

    def __getattr__(self, name):
        return self.T.optim.swa_utils.SWALR if name == "swa" else getattr(self.T.optim.lr_scheduler, name)


METRICS = [1, 0.95, 0.99, 1.2, float("nan"), 0.5, 0.5, 0.5, 0.6, 0.6, 0.4]


def step(scheduler, n):
    if type(scheduler).__name__ == "ReduceLROnPlateau":
        scheduler.step(METRICS[n])
    else:
        scheduler.step()


def tidy(state):
    """Returns a state dict without the addresses of functions."""
    return {k: v for k, v in state.items() if k not in ("_scale_fn_ref", "anneal_func")}


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize("name", MAKE)
def test_rates_momenta_and_state(name, kind):
    def run(T):
        opt = optimizer(T, kind)
        scheduler = MAKE[name](Names(T), opt)
        out = [row(opt), tidy(scheduler.state_dict()), opt.state_dict()["param_groups"]]
        for n in range(11):
            opt.step()
            step(scheduler, n)
            out += [row(opt), scheduler.get_last_lr()]
        return out, tidy(scheduler.state_dict()), opt.state_dict()["param_groups"]
    same(run, rtol=1e-12)


@pytest.mark.parametrize("name", MAKE)
def test_state_continues_in_another_scheduler(name):
    def run(T):
        opt = optimizer(T)
        scheduler = MAKE[name](Names(T), opt)
        for n in range(5):
            opt.step()
            step(scheduler, n)
        other = optimizer(T)
        twin = MAKE[name](Names(T), other)
        other.load_state_dict(opt.state_dict())
        twin.load_state_dict(copy.deepcopy(scheduler.state_dict()))
        out = [row(other), tidy(twin.state_dict())]
        for n in range(5, 10):
            other.step()
            step(twin, n)
            out += [row(other)]
        return out
    same(run, rtol=1e-12)


@pytest.mark.parametrize("name", MAKE)
def test_state_dicts_are_interchangeable_with_torch(name):
    """A state saved by PyTorch continues here, and vice versa."""
    for source, target in ((real, mine), (mine, real)):
        opt = optimizer(source)
        scheduler = MAKE[name](Names(source), opt)
        for n in range(5):
            opt.step()
            step(scheduler, n)
        other = optimizer(target)
        twin = MAKE[name](Names(target), other)
        other.load_state_dict(opt.state_dict())
        twin.load_state_dict(scheduler.state_dict())
        for n in range(5, 10):
            for o, s in ((opt, scheduler), (other, twin)):
                o.step()
                step(s, n)
            agree(plain(row(opt)), plain(row(other)), rtol=1e-12)


@pytest.mark.parametrize("name", MAKE)
def test_learning_rate_as_tensor(name):
    def run(T):
        opt = optimizer(T, lr=T.tensor(0.1))
        rate = opt.param_groups[0]["lr"]
        scheduler = MAKE[name](Names(T), opt)
        last = scheduler.get_last_lr()
        out = [row(opt), [x is rate for x in last]]
        for n in range(6):
            opt.step()
            step(scheduler, n)
            out.append(row(opt))
        return out, opt.param_groups[0]["lr"] is rate, last, tidy(scheduler.state_dict())
    same(run, rtol=2e-6)


CLOSED = [n for n in MAKE if n not in ("ReduceLROnPlateau", "SequentialLR", "SequentialLR of cosine",
                                       "ChainedScheduler", "chain in a sequence")]


@pytest.mark.parametrize("name", CLOSED)
def test_epoch_argument(name):
    def run(T):
        opt = optimizer(T)
        scheduler = MAKE[name](Names(T), opt)
        out = []
        for epoch in (3, 1, 7, 0, 8):
            scheduler.step(epoch)
            out.append([row(opt), scheduler.last_epoch])
        scheduler.step()
        return out, row(opt)
    same(run, rtol=1e-12)



@pytest.mark.parametrize("epoch", [0, 3, 4, 5, 9])
def test_resuming_at_an_epoch(epoch):
    makers = {
        "lambda": lambda L, o: L.LambdaLR(o, lambda e: 0.9 ** e, epoch),
        "times": lambda L, o: L.MultiplicativeLR(o, lambda e: 0.9, epoch),
        "step": lambda L, o: L.StepLR(o, 3, last_epoch=epoch),
        "milestones": lambda L, o: L.MultiStepLR(o, [2, 6], last_epoch=epoch),
        "constant": lambda L, o: L.ConstantLR(o, last_epoch=epoch),
        "linear": lambda L, o: L.LinearLR(o, last_epoch=epoch),
        "exponential": lambda L, o: L.ExponentialLR(o, 0.9, epoch),
        "cosine": lambda L, o: L.CosineAnnealingLR(o, 10, last_epoch=epoch),
        "polynomial": lambda L, o: L.PolynomialLR(o, last_epoch=epoch),
        "restarts": lambda L, o: L.CosineAnnealingWarmRestarts(o, 4, 2, last_epoch=epoch),
        "cyclic": lambda L, o: L.CyclicLR(o, 0.01, 0.1, 4, last_epoch=epoch),
        "one cycle": lambda L, o: L.OneCycleLR(o, 0.1, total_steps=12, last_epoch=epoch),
        "swa": lambda L, o: L.swa(o, 0.1, last_epoch=epoch),
    }

    def run(T):
        out = []
        for name, make in makers.items():
            opt = optimizer(T)
            for g in opt.param_groups:
                g.update(initial_lr=1.0, max_lr=1.0, min_lr=0.01, max_momentum=0.95, base_momentum=0.85)
            scheduler = make(Names(T), opt)
            out.append([name, row(opt), tidy(scheduler.state_dict())])
            opt.step()
            scheduler.step()
            out.append([row(opt), scheduler.last_epoch])
        return out
    same(run, rtol=1e-12)


def test_fractional_epochs_of_warm_restarts():
    def run(T):
        opt = optimizer(T)
        s = T.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, 3, 2, eta_min=0.01)
        out = []
        for epoch in (0, 0.5, 2.9, 3, 3.1, 8.9, 9, 20, 21, 22.5, 5, None, None, None, None):
            s.step(epoch)
            out.append([row(opt), s.T_cur, s.T_i, s.last_epoch])
        return out
    same(run, rtol=1e-12)


@settings(max_examples=25, deadline=None)
@given(metrics=st.lists(st.sampled_from([1.0, 0.9, 0.85, 1.2, -1.0, 0.0, float("nan"), float("inf")]), max_size=14),
       options=st.fixed_dictionaries(dict(
           mode=st.sampled_from(["min", "max"]), threshold_mode=st.sampled_from(["rel", "abs"]),
           factor=st.sampled_from([0.1, 0.5]), patience=st.integers(0, 3), cooldown=st.integers(0, 2),
           threshold=st.sampled_from([1e-4, 0.1]), min_lr=st.sampled_from([0, 0.02, [0.01, 0.03]]),
           eps=st.sampled_from([1e-8, 0.03]))))
def test_plateau(metrics, options):
    def run(T):
        opt = optimizer(T)
        s = T.optim.lr_scheduler.ReduceLROnPlateau(opt, **options)
        out = []
        for m in metrics:
            s.step(T.tensor(m) if m == 0.9 else m)
            out.append([row(opt), s.best, s.num_bad_epochs, s.cooldown_counter, s.in_cooldown])
        return out, s.state_dict()
    same(run, rtol=1e-6)


@settings(max_examples=25, deadline=None)
@given(total=st.integers(2, 15), pct=st.sampled_from([0.1, 0.3, 0.5, 0.9]), strategy=st.sampled_from(["cos", "linear"]),
       three=st.booleans())
def test_one_cycle(total, pct, strategy, three):
    def run(T):
        opt = optimizer(T, "Adam")
        s = T.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=total, pct_start=pct, anneal_strategy=strategy,
                                            three_phase=three)
        out = [row(opt)]
        for _ in range(total + 1):
            opt.step()
            s.step()
            out.append(row(opt))
        return out  # the last step is one too many: an error on both sides
    same(run, rtol=1e-12)


# ------------------------------------------------------------------ errors and warnings
BAD = [
    lambda L, T: L.StepLR(3, 3),
    lambda L, T: L.ReduceLROnPlateau(3),
    lambda L, T: L.LRScheduler(optimizer(T)),
    lambda L, T: L.LambdaLR(optimizer(T), [lambda e: 1]),
    lambda L, T: L.MultiplicativeLR(optimizer(T), [lambda e: 1]),
    lambda L, T: L.LambdaLR(optimizer(T), 3),
    lambda L, T: L.StepLR(optimizer(T), 3, last_epoch=5),
    lambda L, T: L.StepLR(optimizer(T), 3, verbose=True),
    lambda L, T: L.ConstantLR(optimizer(T), 1.5),
    lambda L, T: L.LinearLR(optimizer(T), 0),
    lambda L, T: L.LinearLR(optimizer(T), 0.5, 1.5),
    lambda L, T: L.CosineAnnealingWarmRestarts(optimizer(T), 0),
    lambda L, T: L.CosineAnnealingWarmRestarts(optimizer(T), 1.5),
    lambda L, T: L.CosineAnnealingWarmRestarts(optimizer(T), 2, 0),
    lambda L, T: L.CosineAnnealingWarmRestarts(optimizer(T), 2, eta_min="a"),
    lambda L, T: L.CosineAnnealingWarmRestarts(optimizer(T), 2).step(-1),
    lambda L, T: L.OneCycleLR(optimizer(T), 0.1),
    lambda L, T: L.OneCycleLR(optimizer(T), 0.1, total_steps=0),
    lambda L, T: L.OneCycleLR(optimizer(T), 0.1, total_steps=1.5),
    lambda L, T: L.OneCycleLR(optimizer(T), 0.1, epochs=0, steps_per_epoch=1),
    lambda L, T: L.OneCycleLR(optimizer(T), 0.1, epochs=1, steps_per_epoch=0),
    lambda L, T: L.OneCycleLR(optimizer(T), 0.1, epochs=2),
    lambda L, T: L.OneCycleLR(optimizer(T), 0.1, total_steps=5, pct_start=2),
    lambda L, T: L.OneCycleLR(optimizer(T), 0.1, total_steps=5, pct_start=1),
    lambda L, T: L.OneCycleLR(optimizer(T), 0.1, total_steps=5, anneal_strategy="x"),
    lambda L, T: L.OneCycleLR(optimizer(T), [0.1], total_steps=5),
    lambda L, T: L.OneCycleLR(optimizer(T), 0.1, total_steps=5, base_momentum=[0.1]),
    lambda L, T: L.OneCycleLR(optimizer(T, "Adagrad"), 0.1, total_steps=5),
    lambda L, T: L.OneCycleLR(optimizer(T), 0.1, total_steps=5, last_epoch=2),
    lambda L, T: L.CyclicLR(optimizer(T, "Adagrad"), 0.1, 0.2),
    lambda L, T: L.CyclicLR(optimizer(T), 0.1, 0.2, mode="x"),
    lambda L, T: L.CyclicLR(optimizer(T), [0.1], 0.2),
    lambda L, T: L.CyclicLR(optimizer(T), 0.1, [0.2]),
    lambda L, T: L.CyclicLR(optimizer(T), 0.1, 0.2, base_momentum=[0.1]),
    lambda L, T: L.SequentialLR(optimizer(T), [], []),
    lambda L, T: (lambda o: L.SequentialLR(o, [L.StepLR(o, 3)], [1]))(optimizer(T)),
    lambda L, T: (lambda o: L.SequentialLR(o, [L.StepLR(o, 3), L.ReduceLROnPlateau(o)], [1]))(optimizer(T)),
    lambda L, T: (lambda o: L.SequentialLR(o, [3, L.StepLR(o, 3)], [1]))(optimizer(T)),
    lambda L, T: (lambda o: L.SequentialLR(o, [L.StepLR(o, 3)], []).step(3))(optimizer(T)),
    lambda L, T: (lambda o: L.SequentialLR(o, [L.StepLR(o, 3)], []).get_lr())(optimizer(T)),
    lambda L, T: L.ChainedScheduler([]),
    lambda L, T: (lambda o: L.ChainedScheduler([L.StepLR(o, 3), L.ReduceLROnPlateau(o)]))(optimizer(T)),
    lambda L, T: L.ChainedScheduler([3]),
    lambda L, T: L.ReduceLROnPlateau(optimizer(T), "x"),
    lambda L, T: L.ReduceLROnPlateau(optimizer(T), factor=1.0),
    lambda L, T: L.ReduceLROnPlateau(optimizer(T), threshold_mode="x"),
    lambda L, T: L.ReduceLROnPlateau(optimizer(T), min_lr=[0.1]),
    lambda L, T: L.ReduceLROnPlateau(optimizer(T)).step(),
    lambda L, T: L.swa(optimizer(T), 0.1, anneal_strategy="x"),
    lambda L, T: L.swa(optimizer(T), 0.1, anneal_epochs=-1),
    lambda L, T: L.swa(optimizer(T), 0.1, anneal_epochs=1.5),
    lambda L, T: L.swa(optimizer(T), [0.1]),
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_invalid_arguments_raise(case):
    refused(lambda T: BAD[case](Names(T), T))


@pytest.mark.parametrize("name", ["SequentialLR", "ChainedScheduler"])
def test_schedulers_of_different_optimizers_raise(name):
    for T in (real, mine):
        L = T.optim.lr_scheduler
        members = [L.StepLR(optimizer(T), 3), L.StepLR(optimizer(T), 3)]
        with pytest.raises(ValueError, match=f"{name} expects all schedulers to belong to the same optimizer, but got "
                           "scheduler "
                           "StepLR at index 1 has SGD"):
            if name == "SequentialLR":
                L.SequentialLR(members[0].optimizer, members, [1])
            else:
                L.ChainedScheduler(members)


def test_warnings():
    def before(T):
        s = T.optim.lr_scheduler.StepLR(optimizer(T), 3)
        s.step()
        s.step()

    def overridden(T):
        opt = optimizer(T)
        s = T.optim.lr_scheduler.StepLR(opt, 3)
        opt.step = lambda: None
        s.step()

    def get_lr(T):
        return [MAKE[n](Names(T), optimizer(T)).get_lr() for n in CLOSED]

    def plateau(T):
        T.optim.lr_scheduler.ReduceLROnPlateau(optimizer(T)).step(1.0, epoch=5)
    for fn in (before, overridden, get_lr, plateau):
        same(fn, rtol=1e-12)


# ------------------------------------------------------------------ the rest
class Scale:
    def __init__(self):
        self.a = 2

    def __call__(self, e):
        return 0.5 ** e


def test_callable_objects_are_part_of_the_state():
    def run(T):
        L = T.optim.lr_scheduler
        opt = optimizer(T)
        out = []
        for s in (L.LambdaLR(opt, [Scale(), lambda e: 1]), L.MultiplicativeLR(opt, [Scale(), lambda e: 1])):
            sd = s.state_dict()
            s.lr_lambdas[0].a = 5
            s.load_state_dict(sd)
            out += [sd, s.lr_lambdas[0].a]
        s = L.CyclicLR(opt, 0.1, 0.2, scale_fn=Scale())
        sd = s.state_dict()
        s._scale_fn_custom.a = 5
        s.load_state_dict(dict(sd))
        return out, sd, s._scale_fn_custom.a
    same(run)


def test_groups_added_later():
    def run(T):
        L = T.optim.lr_scheduler
        out = []
        for make in (lambda o: L.StepLR(o, 2), lambda o: L.ExponentialLR(o, 0.5),
                     lambda o: L.ReduceLROnPlateau(o, patience=0)):
            opt = optimizer(T)
            s = make(opt)
            opt.add_param_group({"params": [T.nn.Parameter(T.ones(1))]})
            for _ in range(4):
                opt.step()
                s.step(*([1.0] if isinstance(s, L.ReduceLROnPlateau) else []))
            out += [row(opt), s.get_last_lr()]
        return out
    same(run, rtol=1e-12)

    def plateau(T):
        opt = optimizer(T)
        s = T.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=0, min_lr=[0.1, 0.2])
        opt.add_param_group({"params": [T.nn.Parameter(T.ones(1))]})
        for _ in range(4):
            s.step(1.0)
    refused(plateau)


@pytest.mark.parametrize("name", [name for name in MAKE if not name.startswith("SWALR")])
def test_later_groups_are_supported_or_raise(name):
    """Schedulers that store a value per group reject a new group like PyTorch, with the same error
    after the same step."""
    def run(T):
        opt, out = optimizer(T), []
        s = MAKE[name](T.optim.lr_scheduler, opt)
        for i in range(5):
            if i == 1:
                opt.add_param_group({"params": [T.nn.Parameter(T.ones(1))]})
            opt.step()
            s.step(*([1.0] if isinstance(s, T.optim.lr_scheduler.ReduceLROnPlateau) else []))
            out += [row(opt), s.get_last_lr()]
        return out
    same(run, rtol=1e-12)


def test_user_defined_schedulers():
    def run(T):
        class Halving(T.optim.lr_scheduler._LRScheduler):
            def __init__(self, opt):
                super().__init__(opt, -1)

            def get_lr(self):
                assert self._get_lr_called_within_step
                return [base * 0.5 ** self.last_epoch for base in self.base_lrs]

            def _get_closed_form_lr(self):
                return [7.0 for _ in self.base_lrs]
        opt = optimizer(T)
        s = Halving(opt)
        opt.step()
        s.step()
        out = [row(opt), s.state_dict()]
        s.step(9)
        return out, row(opt), s.get_last_lr(), isinstance(s, T.optim.lr_scheduler.LRScheduler)
    same(run, rtol=1e-12)


def test_pickling():
    opt = optimizer(mine)
    s = mine.optim.lr_scheduler.CosineAnnealingLR(opt, 10)
    opt.step()
    s.step()
    for twin in (pickle.loads(pickle.dumps(s)), copy.deepcopy(s)):
        assert twin.optimizer is not opt and tidy(twin.state_dict()) == tidy(s.state_dict())
        twin.optimizer.step()
        twin.step()
        assert row(twin.optimizer) != row(opt)
    assert pickle.loads(pickle.dumps(opt)).param_groups[0]["initial_lr"] == 0.1


def test_the_optimizer_can_be_freed():
    import gc
    import weakref
    opt = optimizer(mine)
    s = mine.optim.lr_scheduler.StepLR(opt, 3)
    opt.step()
    gone = weakref.ref(opt)
    del opt, s
    gc.collect()
    assert gone() is None


def test_optimizer_calls_with_gradients_count_as_steps():
    import warnings
    p = mine.nn.Parameter(mine.ones(2))
    opt = mine.optim.SGD([p], lr=1.0)
    s = mine.optim.lr_scheduler.ExponentialLR(opt, 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            opt((mine.ones(2),))
            s.step()
    assert p.tolist() == [-0.5, -0.5]
