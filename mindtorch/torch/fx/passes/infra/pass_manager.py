"""torch.fx.passes.infra.pass_manager: runs passes in an order that satisfies constraints."""
import functools
import inspect
import logging

from mindtorch.torch.fx.passes.infra.pass_base import PassResult

__all__ = ["pass_result_wrapper", "this_before_that_pass_constraint", "PassManager"]

logger = logging.getLogger("torch.fx.passes.infra.pass_manager")


def pass_result_wrapper(fn):
    """Wraps a pass that does not return a PassResult; `modified` is then assumed to be True."""
    if fn is None:
        return None

    @functools.wraps(fn)
    def wrapped(gm):
        result = fn(gm)
        return PassResult(gm, True) if result is None else result if isinstance(result, PassResult) else PassResult(result, True)
    if not inspect.isfunction(fn):
        wrapped.__name__ = type(fn).__name__
    return wrapped


def this_before_that_pass_constraint(this, that):
    """Returns the constraint that `that` must not run before `this`."""
    def depends_on(a, b):
        return a is not that or b is not this
    return depends_on


def _validate_pass_schedule_constraint(constraint, passes):
    for i, a in enumerate(passes):
        for b in passes[i + 1:]:
            if not constraint(a, b):
                raise RuntimeError(f"pass schedule constraint violated. Expected {a} before {b} but found {a} at index {i} and {b} after it in pass list.")


def _topological_sort_passes(passes, constraints):
    """Sorts the passes to satisfy the constraints. RuntimeError if they are circular."""
    if not constraints:
        return passes
    before = {p: [q for q in passes if q is not p and not all(c(p, q) for c in constraints)] for p in passes}
    waiting = {p: len(b) for p, b in before.items()}
    ready, order = [p for p in passes if not waiting[p]], []
    while ready:
        p = ready.pop(0)
        order.append(p)
        for q in passes:
            if p in before[q]:
                waiting[q] -= 1
                if not waiting[q]:
                    ready.append(q)
    rest = [p for p in passes if p not in order]
    if rest:
        raise RuntimeError(f"Circular dependency detected within the following passes: {rest}")
    return order


class PassManager:
    """Runs passes on a module up to `steps` times, and stops early when no pass modifies it."""

    def __init__(self, passes=None, constraints=None, steps=None, run_checks_after_each_pass=False, suppress_check_failures=False):
        self.passes, self.constraints, self.steps = passes or [], constraints or [], steps or 1
        self.run_checks_after_each_pass, self.suppress_check_failures = run_checks_after_each_pass, suppress_check_failures
        self._validated = False

    def add_pass(self, _pass):
        self.passes.append(_pass)
        self._validated = False

    def add_constraint(self, constraint):
        """Adds a constraint; `constraint(a, b)` returns True if pass `a` may run before pass `b`.
        """
        self.constraints.append(constraint)
        self._validated = False

    def validate_constraints(self):
        """Raises RuntimeError if the order of the passes violates a constraint."""
        if self._validated:
            return
        for c in self.constraints:
            _validate_pass_schedule_constraint(c, self.passes)
        self._validated = True

    def solve_constraints(self):
        """Sorts the passes to satisfy the constraints."""
        self.passes = _topological_sort_passes(self.passes, self.constraints)
        self._validated = True

    def add_checks(self, check):
        """Sets the check, which is called with the module and may raise."""
        if len(inspect.signature(check).parameters) != 1:
            raise TypeError("PassManager check function should only take in one variable, a module")
        self.check = check

    def check(self, module):
        """Default check; accepts every module."""

    def __call__(self, module):
        """Runs all passes and returns a PassResult. An exception names the pass that raised it."""
        if not self._validated:
            self.solve_constraints()
        self._checked(module, None)
        changed = False
        for _ in range(self.steps):
            modified = False
            for i, fn in enumerate(self.passes):
                name = fn.__name__ if inspect.isfunction(fn) else type(fn).__name__
                logger.debug("Running pass '%s'", name)
                try:
                    result = fn(module)
                    if not isinstance(result, PassResult) and not hasattr(result, "graph_module"):
                        raise TypeError(f"The result of the pass {name} should be type PassResult. Please wrap it with pass_result_wrapper()")
                    module, modified = result.graph_module, modified or result.modified
                    if self.run_checks_after_each_pass:
                        self._checked(module, name)
                except Exception as e:
                    before = [p.__name__ if inspect.isfunction(p) else type(p).__name__ for p in self.passes[:i]]
                    raise Exception(f"An error occurred when running the '{name}' pass after the following passes: {before}") from e
            changed = changed or modified
            if not modified:
                break
        self._checked(module, None)
        return PassResult(module, changed)

    def _checked(self, module, name):
        try:
            self.check(module)
        except Exception:
            if not self.suppress_check_failures:
                raise
            logger.warning("a check failed%s", f" after pass {name}" if name else "", exc_info=True)
