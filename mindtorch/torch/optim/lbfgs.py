"""L-BFGS (https://pytorch.org/docs/stable/generated/torch.optim.LBFGS.html)."""
import mindtorch.torch as torch
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.torch.optim.optimizer import Optimizer, _check_lr, _evaluate, _get_value

__all__ = ["LBFGS"]


class LBFGS(Optimizer):
    """L-BFGS for one parameter group; `step` requires a closure and calls it several times.

    Args:
        max_iter, max_eval: limits for one step; max_eval defaults to max_iter * 5 / 4.
        tolerance_grad, tolerance_change: thresholds that end a step early.
        line_search_fn: None or "strong_wolfe".
    """

    def __init__(self, params, lr=1, max_iter=20, max_eval=None, tolerance_grad=1e-7, tolerance_change=1e-9,
                 history_size=100, line_search_fn=None):
        _check_lr(lr)
        if max_eval is None:
            max_eval = max_iter * 5 // 4
        super().__init__(params, dict(
            lr=lr, max_iter=max_iter, max_eval=max_eval, tolerance_grad=tolerance_grad,
            tolerance_change=tolerance_change, history_size=history_size, line_search_fn=line_search_fn))
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params = self.param_groups[0]["params"]
        self._numel_cache = None

    def _numel(self):
        if self._numel_cache is None:
            self._numel_cache = sum(2 * p.numel() if torch.is_complex(p) else p.numel() for p in self._params)
        return self._numel_cache

    # ---- the parameters as one vector
    def _gather_flat_grad(self):
        pieces = []
        for p in self._params:
            if p.grad is None:
                g = p.new_zeros(p.numel())
            else:
                g = (p.grad.to_dense() if p.grad.is_sparse else p.grad).reshape(-1)
            pieces.append(torch.view_as_real(g).reshape(-1) if torch.is_complex(g) else g)
        return torch.cat(pieces, 0)

    def _add_grad(self, step_size, direction):
        step_size, offset = _get_value(step_size), 0
        for p in self._params:
            if torch.is_complex(p):
                p = torch.view_as_real(p)
            n = p.numel()
            p.add_(direction[offset:offset + n].view(p.shape), alpha=step_size)
            offset += n

    def _clone_param(self):
        return [p.clone() for p in self._params]

    def _set_param(self, values):
        for p, value in zip(self._params, values):
            p.copy_(value)

    def _directional_evaluate(self, closure, x, t, d):
        self._add_grad(t, d)
        loss = float(_evaluate(closure))
        gradient = self._gather_flat_grad()
        self._set_param(x)
        return loss, gradient

    # ---- the step
    def step(self, closure):
        """Performs up to max_iter iterations; returns the loss before the first."""
        if len(self.param_groups) != 1:
            raise AssertionError("Expected exactly one param_group")
        old = mode.on
        mode.on = False
        try:
            return self._step(closure)
        finally:
            mode.on = old

    def _step(self, closure):
        group = self.param_groups[0]
        lr, max_iter, max_eval = group["lr"], group["max_iter"], group["max_eval"]
        flat_enough, search = group["tolerance_grad"], group["line_search_fn"]
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)

        first_loss = _evaluate(closure)
        loss = float(first_loss)
        evaluations = 1
        state["func_evals"] += 1
        gradient = self._gather_flat_grad()
        done = bool(gradient.abs().max() <= flat_enough)
        if done:
            return first_loss

        iterations = 0
        direction, t = state.get("d"), state.get("t")
        history = {key: state.get(key) for key in ("old_dirs", "old_stps", "ro", "H_diag")}
        previous, previous_loss = state.get("prev_flat_grad"), state.get("prev_loss")
        while iterations < max_iter:
            iterations += 1
            state["n_iter"] += 1
            if state["n_iter"] == 1:
                direction = gradient.neg()
                history = dict(old_dirs=[], old_stps=[], ro=[], H_diag=1)
            else:
                self._remember(history, group["history_size"], gradient.sub(previous), direction.mul(t))
                al = state.setdefault("al", [None] * group["history_size"])
                direction = self._direction(history, al, gradient)
            if previous is None:
                previous = gradient.clone()
            else:
                previous.copy_(gradient)
            previous_loss = loss

            t = min(1.0, 1.0 / gradient.abs().sum()) * lr if state["n_iter"] == 1 else lr
            slope = gradient.dot(direction)
            if slope > -group["tolerance_change"]:
                break

            calls = 0
            if search is not None:
                if search != "strong_wolfe":
                    raise RuntimeError("only 'strong_wolfe' is supported")
                start = self._clone_param()

                def evaluate(at, start=start, direction=direction):
                    return self._directional_evaluate(closure, start, at, direction)

                loss, gradient, t, calls = _strong_wolfe(evaluate, t, direction, loss, gradient, slope, max_ls=max_eval - evaluations)
                self._add_grad(t, direction)
                done = bool(gradient.abs().max() <= flat_enough)
            else:
                self._add_grad(t, direction)
                if iterations != max_iter:
                    # Skipped after the last iteration: the next step evaluates at this point
                    # anyway.
                    loss = float(_evaluate(closure))
                    gradient = self._gather_flat_grad()
                    done = bool(gradient.abs().max() <= flat_enough)
                    calls = 1
            evaluations += calls
            state["func_evals"] += calls

            if iterations == max_iter or evaluations >= max_eval or done:
                break
            if direction.mul(t).abs().max() <= group["tolerance_change"]:
                break
            if abs(loss - previous_loss) < group["tolerance_change"]:
                break

        state.update(d=direction, t=t, **history, prev_flat_grad=previous, prev_loss=previous_loss)
        return first_loss

    @staticmethod
    def _remember(history, history_size, y, s):
        """Adds a pair of gradient and parameter differences to the history if the curvature is
        positive."""
        ys = y.dot(s)
        if ys > 1e-10:
            dirs, steps, ro = history["old_dirs"], history["old_stps"], history["ro"]
            if len(dirs) == history_size:
                del dirs[0], steps[0], ro[0]
            dirs.append(y)
            steps.append(s)
            ro.append(1.0 / ys)
            history["H_diag"] = ys / y.dot(y)

    @staticmethod
    def _direction(history, al, gradient):
        """Computes -H * gradient with the two-loop recursion; `al` stores the coefficients of the
        first loop."""
        dirs, steps, ro = history["old_dirs"], history["old_stps"], history["ro"]
        q = gradient.neg()
        for i in range(len(dirs) - 1, -1, -1):
            al[i] = steps[i].dot(q) * ro[i]
            q.add_(dirs[i], alpha=-al[i].item())
        r = q.mul(history["H_diag"])
        for i in range(len(dirs)):
            r.add_(steps[i], alpha=(al[i] - dirs[i].dot(r) * ro[i]).item())
        return r


def _cubic_interpolate(x1, f1, g1, x2, f2, g2, bounds=None):
    """Returns the minimizer of the cubic through two points with given derivatives.

    The result is clamped to `bounds` (default: the interval between the points).
    """
    low, high = bounds if bounds is not None else (min(x1, x2), max(x1, x2))
    if x1 > x2:
        x1, f1, g1, x2, f2, g2 = x2, f2, g2, x1, f1, g1
    if x1 == x2:
        return (low + high) / 2.0
    # Derivatives are tensors in the parameters' precision, as in PyTorch: near the minimum the
    # number of steps depends on the rounding.
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1 ** 2 - g1 * g2
    if not square >= 0:
        return (low + high) / 2.0
    d2 = square.sqrt()
    bend = g2 - g1 + 2 * d2
    if bend == 0:
        return (low + high) / 2.0
    return min(max(x2 - (x2 - x1) * ((g2 + d2 - d1) / bend), low), high)


def _strong_wolfe(evaluate, t, d, f, g, gtd, c1=1e-4, c2=0.9, tolerance_change=1e-9, max_ls=25):
    """Searches along `d` for a step with sufficient decrease (c1) and a small enough directional
    derivative (c2).

    evaluate(t) returns the loss and the gradient at step size t; f, g and gtd are the values at
    step size 0. Returns (loss, gradient, t, number of evaluations).
    """
    size = d.abs().max()

    def at(where):
        loss, gradient = evaluate(where)
        return where, loss, gradient, gradient.dot(d)

    start = 0, f, g.clone(), gtd
    before, now = start, at(t)
    calls, iteration, found = 1, 0, False
    bracket = None
    while iteration < max_ls:
        if now[1] > f + c1 * now[0] * gtd or (iteration > 1 and now[1] >= before[1]):
            bracket = [before, now]
            break
        if abs(now[3]) <= -c2 * gtd:
            bracket, found = [now], True
            break
        if now[3] >= 0:
            bracket = [before, now]
            break
        # Still decreasing: extrapolate by interpolation, to at most ten times the step.
        low, high = now[0] + 0.01 * (now[0] - before[0]), now[0] * 10
        further = _cubic_interpolate(before[0], before[1], before[3], now[0], now[1], now[3], bounds=(low, high))
        before, now = now, at(further)
        calls += 1
        iteration += 1
    if bracket is None:
        bracket = [start, now]

    # Zoom phase.
    stuck = False
    low, high = (0, 1) if bracket[0][1] <= bracket[-1][1] else (1, 0)
    while not found and iteration < max_ls:
        (x1, f1, _, s1), (x2, f2, _, s2) = bracket
        if abs(x2 - x1) * size < tolerance_change:
            break
        t = _cubic_interpolate(x1, f1, s1, x2, f2, s2)
        # A point near the edge of the bracket makes little progress. The second time in a row, move
        # it inside.
        left, right = min(x1, x2), max(x1, x2)
        margin = 0.1 * (right - left)
        if min(right - t, t - left) < margin:
            if stuck or t >= right or t <= left:
                t = right - margin if abs(t - right) < abs(t - left) else left + margin
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        now = at(t)
        calls += 1
        iteration += 1
        if now[1] > f + c1 * t * gtd or now[1] >= bracket[low][1]:
            bracket[high] = now
            low, high = (0, 1) if bracket[0][1] <= bracket[1][1] else (1, 0)
        else:
            if abs(now[3]) <= -c2 * gtd:
                found = True
            elif now[3] * (bracket[high][0] - bracket[low][0]) >= 0:
                bracket[high] = bracket[low]
            bracket[low] = now
    t, loss, gradient, _ = bracket[low if len(bracket) > 1 else 0]
    return loss, gradient, t, calls
