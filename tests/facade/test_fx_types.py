"""torch.fx: checked and inferred tensor types of traced programs, compared with PyTorch."""
import importlib
import operator

import pytest
import torch
from hypothesis import given, settings, strategies as st

import mindtorch.torch as mt

BOTH = [(torch, "torch"), (mt, "mindtorch.torch")]


def load(base, name):
    return importlib.import_module(f"{base}.fx.{name}")


def outcome(run):
    """Returns the outcome of `run` on both sides: its result, or the class of its exception."""
    found = []
    for T, base in BOTH:
        try:
            found.append(run(T, base))
        except (TypeError, RuntimeError) as e:
            found.append(type(e).__name__)
    return found


def typed(base, sizes):
    types = load(base, "tensor_type")
    if sizes is None:
        return types.Dyn
    return types.TensorType(tuple(types.Dyn if n is None else n for n in sizes))


SIZES = st.none() | st.lists(st.none() | st.integers(1, 3), max_size=4)


@settings(max_examples=60, deadline=None)
@given(SIZES, SIZES)
def test_relations_of_two_tensor_types(a, b):
    def run(T, base):
        checker, types = load(base, "experimental.graph_gradual_typechecker"), load(base, "tensor_type")
        x, y, out = typed(base, a), typed(base, b), []
        for f in (checker.broadcast_types, checker.get_greatest_upper_bound, types.is_consistent, types.is_more_precise):
            try:
                out.append(str(f(x, y)))
            except TypeError as e:
                out.append(str(e))
        return out
    theirs, mine = outcome(run)
    assert mine == theirs


# (program of x and y, the declared types of x and y)
FULL, PART, NOTHING = [2, 3, 8, 9], [2, None, 8, None], None
FUNCTIONS = ["T.add(x, y)", "x + y", "T.transpose(x, 0, 1)", "T.transpose(x, 0, 7)", "T.reshape(x, [6, -1])", "T.reshape(x, [5, 7])", "T.flatten(x, 1)",
             "T.flatten(x, 1, 2)", "T.flatten(x, 2)", "T.flatten(x, 3, 1)", "T.sin(x)", "T.add(T.flatten(x, 1), y)"]
MODULES = ["Conv2d(3, 4, 3, padding=1)", "Conv2d(3, 4, (3, 2), stride=2, dilation=(2, 1))", "Conv2d(5, 4, 3)", "BatchNorm2d(3)", "BatchNorm2d(4)", "ReLU()",
           "MaxPool2d(2)", "MaxPool2d(3, 2, 1)", "AdaptiveAvgPool2d(4)", "AdaptiveAvgPool2d((2, 5))", "Linear(9, 4)", "Linear(7, 4)", "GELU()"]


@pytest.mark.parametrize("x", [FULL, PART, NOTHING, [3, 8, 9], [4]], ids=str)
@pytest.mark.parametrize("y", [FULL, [3, 1, 1], NOTHING], ids=str)
def test_functions(x, y):
    for program in FUNCTIONS:
        def run(T, base, program=program):
            g = load(base, "_symbolic_trace").symbolic_trace(eval(f"lambda x, y: {program}", {"T": T}))
            return checked(base, g, [x, y])
        theirs, mine = outcome(run)
        assert mine == theirs, program


@pytest.mark.parametrize("x", [FULL, PART, NOTHING, [3, 8, 9], [4]], ids=str)
@pytest.mark.parametrize("declared", [NOTHING, [None, None, 4, None], [2, 4, 8, 9]], ids=str)
def test_modules(x, declared):
    for module in MODULES:
        def run(T, base, module=module):
            g = load(base, "_symbolic_trace").symbolic_trace(T.nn.Sequential(eval(f"T.nn.{module}", {"T": T})))
            return checked(base, g, [x], declared)
        theirs, mine = outcome(run)
        # PyTorch refines only pooling with four sizes
        assert mine == theirs or theirs == "NotImplementedError", module


def checked(base, g, inputs, declared=None):
    """Returns the types after the check, the types after unknown sizes got names, and the
    constraints of a last refinement."""
    inputs = iter(inputs)
    for n in g.graph.nodes:
        if n.op == "placeholder":
            n.type = typed(base, next(inputs))
        elif n.op == "call_module":
            n.type = typed(base, declared)
    assert load(base, "experimental.graph_gradual_typechecker").GraphTypeChecker({}, g).type_check()
    found = [str(n.type) for n in g.graph.nodes]
    load(base, "experimental.unify_refinements").infer_symbolic_types(g)
    refine = load(base, "experimental.graph_gradual_typechecker").Refine(g)
    refine.refine()
    return found, [str(n.type) for n in g.graph.nodes], [str(c) for c in refine.constraints]


def test_sizes_after_a_convolution_are_those_of_the_convolution():
    m = mt.nn.Sequential(mt.nn.Conv2d(3, 4, (3, 2), stride=(2, 1), padding=(0, 3), dilation=(1, 2)), mt.nn.MaxPool2d((2, 3), (1, 2)))
    g = load("mindtorch.torch", "_symbolic_trace").symbolic_trace(m)
    assert checked("mindtorch.torch", g, [FULL])[0][-1] == str(typed("mindtorch.torch", m(mt.ones(*FULL)).shape))
    g = load("mindtorch.torch", "_symbolic_trace").symbolic_trace(lambda x: x + 1)
    assert checked("mindtorch.torch", g, [PART])[0][-1] == "TensorType[(2, Dyn, 8, Dyn)]"


def test_user_defined_inference_rules():
    checker = load("mindtorch.torch", "experimental.graph_gradual_typechecker")

    def rule(n):
        n.type = n.args[0].type
        return n.type
    register = checker.register_inference_rule(operator.neg)
    assert register(rule) is rule
    try:
        with pytest.raises(RuntimeError, match="already registered"):
            register(rule)
        g = load("mindtorch.torch", "_symbolic_trace").symbolic_trace(lambda x: -x)
        assert checked("mindtorch.torch", g, [[2, None]])[0][-1] == "TensorType[(2, Dyn)]"
    finally:
        del checker._INFERENCE_RULES[operator.neg]
