"""Parametrized tests: creates one test per value from a single function."""
import functools

import mindtorch.torch as torch


def dtype_name(dtype):
    """Returns the name of a dtype without the prefix "torch."."""
    return str(dtype).split(".")[1]


class _TestParametrizer:
    """Base class of decorators that expand a function into several tests.

    `_parametrize_test` yields (test, name suffix, its arguments, a function from its arguments to
    its decorators).
    """

    def _parametrize_test(self, test, generic_cls, device_cls):
        raise NotImplementedError

    def __call__(self, fn):
        inner, outer = getattr(fn, "parametrize_fn", None), self._parametrize_test
        fn.parametrize_fn = outer if inner is None else compose_parametrize_fns(inner, outer)
        return fn


def compose_parametrize_fns(old_parametrize_fn, new_parametrize_fn):
    """Combines two decorators: each test of the inner one for each value of the outer one.

    The outer part of the name comes first.
    """
    def composed(test, generic_cls, device_cls):
        for inner, inner_name, inner_args, inner_decorators in list(old_parametrize_fn(test, generic_cls, device_cls)):
            for outer, outer_name, outer_args, outer_decorators in new_parametrize_fn(inner, generic_cls, device_cls):
                twice = inner_args.keys() & outer_args.keys()
                if twice:
                    raise RuntimeError("Parametrization over the same parameter by multiple parametrization decorators is not supported. For test "
                                       f'"{test.__name__}", the following parameters are handled multiple times: {twice}')
                yield (outer, "_".join(filter(None, (outer_name, inner_name))), {**inner_args, **outer_args},
                       lambda args, a=inner_decorators, b=outer_decorators: [*a(args), *b(args)])
    return composed


class subtest:
    """Values of one `parametrize` test, with a custom name and decorators."""

    __slots__ = ["arg_values", "name", "decorators"]

    def __init__(self, arg_values, name=None, decorators=None):
        self.arg_values, self.name, self.decorators = arg_values, name, decorators or []


def _called(test):
    """Returns a wrapper that calls the test, so that decorating the wrapper leaves the test
    unchanged."""
    @functools.wraps(test)
    def call(*args, **kwargs):
        return test(*args, **kwargs)
    return call


class parametrize(_TestParametrizer):
    """Decorator that creates a test for each value of the parameters "x,y"; values are tuples or
    `subtest` objects.

    name_fn(*values) returns the suffix of the test's name.
    """

    def __init__(self, arg_str, arg_values, name_fn=None):
        self.arg_names = [s.strip() for s in arg_str.split(",") if s]
        self.arg_values, self.name_fn = arg_values, name_fn

    def _part(self, i, name, value):
        if isinstance(value, torch.dtype):
            return dtype_name(value)
        if isinstance(value, torch.device):
            return str(value)
        return f"{name}_{str(value).replace('.', '_')}" if isinstance(value, (int, float, str)) else f"{name}{i}"

    def _parametrize_test(self, test, generic_cls, device_cls):
        if not self.arg_names:
            yield test, "", {}, lambda args: []
            return
        given = list(self.arg_values)
        if not given:
            raise ValueError(f"{test}: An empty arg_values was passed to @parametrize. Note that this may result from reuse of a generator.")
        for i, values in enumerate(given):
            special = values if isinstance(values, subtest) else None
            values = values if special is None else special.arg_values
            values = list(values) if len(self.arg_names) > 1 else [values]
            if len(values) != len(self.arg_names):
                raise RuntimeError(f"Expected # values == # arg names, but got: {len(values)} values and {len(self.arg_names)} names for test "
                                   f'"{test.__name__}"')
            name = special.name if special is not None and special.name else self.name_fn(*values) if self.name_fn else "_".join(
                [self._part(i, n, v) for n, v in zip(self.arg_names, values)])
            decorators = [] if special is None else special.decorators
            yield test if special is None else _called(test), name, dict(zip(self.arg_names, values)), lambda args, d=decorators: d


class decorateIf(_TestParametrizer):
    """Decorator that applies a decorator to the tests for whose arguments predicate_fn(arguments)
    is true."""

    def __init__(self, decorator, predicate_fn):
        self.decorator, self.predicate_fn = decorator, predicate_fn

    def _parametrize_test(self, test, generic_cls, device_cls):
        yield _called(test), "", {}, lambda args: [self.decorator] if self.predicate_fn(args) else []


def instantiate_parametrized_tests(generic_cls):
    """Class decorator that replaces parametrized tests by their instances."""
    for name in dir(generic_cls):
        test = getattr(generic_cls, name)
        if not hasattr(test, "parametrize_fn"):
            continue
        delattr(generic_cls, name)
        for made, end, arguments, decorators in test.parametrize_fn(test, generic_cls=generic_cls, device_cls=None):
            full = f"{made.__name__}_{end}"
            for decorator in decorators(arguments):
                made = decorator(made)
            if hasattr(generic_cls, full):
                raise AssertionError(f"Redefinition of test {full}")
            setattr(generic_cls, full, _with(made, arguments))
    return generic_cls


def _with(test, arguments):
    @functools.wraps(test)
    def instantiated(self):
        return test(self, **arguments)
    return instantiated
