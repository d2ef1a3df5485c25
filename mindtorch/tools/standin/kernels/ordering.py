"""Scans, sorting, searching, counting."""
from mindtorch.tools.standin.kernels._engine import torch
from mindtorch.tools.standin.kernels._table import kernel

kernel("Cumsum", "self, dim:int, dtype:int32, out!")(lambda self, dim, dtype, out: torch.cumsum(self, dim, dtype=out.dtype))
kernel("Cumprod", "self, dim:scalar, dtype:int32, out!")(lambda self, dim, dtype, out: torch.cumprod(self, dim, dtype=out.dtype))
kernel("Cummax", "self, dim:int, values!, indices!")(lambda self, dim, values, indices: tuple(torch.cummax(self, dim)))
kernel("Cummin", "self, dim:int, values!, indices!")(lambda self, dim, values, indices: tuple(torch.cummin(self, dim)))
kernel("Sort", "self, stable:bool, dim:int, descending:bool, values!, indices!")(
    lambda self, stable, dim, descending, values, indices: tuple(torch.sort(self, stable=stable, dim=dim, descending=descending)))
kernel("Topk", "self, k:int, dim:int, largest:bool, sorted:bool, values!, indices!")(
    lambda self, k, dim, largest, sorted, values, indices: tuple(torch.topk(self, k, dim, largest, sorted)))
# (torch_npu passes 1 after `sorted`; no document says what it is.)
kernel("TopkV2", "self, k:int, dim:int, largest:bool, sorted:bool, more:int, values!, indices!")(
    lambda self, k, dim, largest, sorted, more, values, indices: tuple(torch.topk(self, k, dim, largest, sorted)))
kernel("SearchSorted", "sorted_sequence, self, int32:bool, right:bool, sorter, out!")(
    lambda sequence, self, int32, right, sorter, out: torch.searchsorted(sequence, self, out_int32=int32, right=right, sorter=sorter))
kernel("Bincount", "self, weights, minlength:int, out!")(lambda self, weights, minlength, out: torch.bincount(self, weights, minlength))
kernel("Histc", "self, bins:int, min:scalar, max:scalar, out!")(
    lambda self, bins, min, max, out: torch.histc(self if self.is_floating_point() else self.float(), bins, min, max))
