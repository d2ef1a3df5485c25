"""Adaptive softmax (https://pytorch.org/docs/stable/generated/torch.nn.AdaptiveLogSoftmaxWithLoss.html)."""
from collections import namedtuple

import mindtorch.torch as torch
from mindtorch.torch.nn import functional as F
from mindtorch.torch.nn.modules.container import ModuleList, Sequential
from mindtorch.torch.nn.modules.linear import Linear
from mindtorch.torch.nn.modules.module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]

_ASMoutput = namedtuple("_ASMoutput", ["output", "loss"])


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log softmax over many classes in clusters (Grave et al., 2017).

    Frequent classes are in the head, rarer ones in clusters with smaller projections. Returns (log
    probability of each target, mean loss).
    """

    def __init__(self, in_features, n_classes, cutoffs, div_value=4.0, head_bias=False, device=None, dtype=None):
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if (cutoffs != sorted(set(cutoffs)) or cutoffs[0] <= 0 or cutoffs[-1] > n_classes - 1
                or any(int(c) != c for c in cutoffs)):
            raise ValueError("cutoffs should be a sequence of unique, positive integers sorted in an increasing "
                             "order, where each value is between 1 and n_classes-1")
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = cutoffs + [n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        kw = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **kw)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            hidden = int(in_features // (div_value ** (i + 1)))
            size = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(Sequential(Linear(in_features, hidden, bias=False, **kw),
                                        Linear(hidden, size, bias=False, **kw)))

    def reset_parameters(self):
        """Reinitializes all projections."""
        self.head.reset_parameters()
        for first, second in self.tail:
            first.reset_parameters()
            second.reset_parameters()

    def forward(self, input_, target_):
        if target_.dim() == 1:
            if input_.dim() != 2 or input_.shape[0] != target_.shape[0]:
                raise RuntimeError("Input and target should have the same size in the batch dimension.")
        elif target_.dim() == 0:
            if input_.dim() != 1:
                raise RuntimeError("0D target tensor expects 1D input" if input_.dim() != 2 else
                                   "Input and target should have the same size in the batch dimension.")
        else:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        batched = target_.dim() > 0
        input = input_ if batched else input_.unsqueeze(0)
        target = target_ if batched else target_.unsqueeze(0)

        output = input.new_zeros(target.size(0))
        column = torch.empty_like(target)  # index into the head: the class itself or its cluster
        used = 0
        for i, high in enumerate(self.cutoffs):
            low = self.cutoffs[i - 1] if i else 0
            rows = ((target >= low) & (target < high)).nonzero().squeeze(-1)
            n = rows.numel()
            if n == 0:
                continue
            used += n
            inside = target.index_select(0, rows) - low
            if i == 0:
                column = column.index_copy(0, rows, inside)
            else:
                logp = F.log_softmax(self.tail[i - 1](input.index_select(0, rows)), dim=1)
                output = output.index_copy(0, rows, logp.gather(1, inside.unsqueeze(1)).squeeze(1))
                column = column.index_fill(0, rows, self.shortlist_size + i - 1)
        if used != target.numel():
            raise RuntimeError(f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                               f"[{target.min().item()}, {target.max().item()}] were found. ")
        head = F.log_softmax(self.head(input), dim=1)
        output = output + head.gather(1, column.unsqueeze(1)).squeeze(1)
        loss = (-output).mean()
        return _ASMoutput(output if batched else output.squeeze(0), loss)

    def _get_full_log_prob(self, input, head_output):
        """Returns the log probabilities of all classes for the output of the head."""
        head = F.log_softmax(head_output, dim=1)
        parts = [head[:, :self.shortlist_size]]
        for i, project in enumerate(self.tail):
            place = self.shortlist_size + i
            parts.append(F.log_softmax(project(input), dim=1) + head[:, place].unsqueeze(1))
        return torch.cat(parts, dim=1)

    def log_prob(self, input):
        """Returns the log probabilities (N, n_classes) of all classes for input (N, in_features).
        """
        return self._get_full_log_prob(input, self.head(input))

    def predict(self, input):
        """Returns the most probable class of each row of input (N, in_features)."""
        head = self.head(input)
        best = torch.argmax(head, dim=1)
        rare = best >= self.shortlist_size
        if rare.any():
            full = self._get_full_log_prob(input[rare], head[rare])
            best[rare] = torch.argmax(full, dim=1)
        return best
