"""Products of matrices and vectors, distances, and what solves or takes apart a matrix."""
from mindtorch.tools.standin.kernels._engine import torch
from mindtorch.tools.standin.kernels._table import kernel

# ---- products. `cube` says how much precision the chip may give up; nothing is given up here.
kernel("Matmul Mm BatchMatMul", "self, other, out!, cube:int8")(lambda self, other, out, cube: torch.matmul(self, other))
kernel("Mv", "self, vector, out!, cube:int8")(lambda self, vector, out, cube: torch.mv(self, vector))
kernel("Dot", "self, other, out!")(lambda self, other, out: torch.dot(self, other))
kernel("Addmm", "self, a, b, beta:scalar, alpha:scalar, out!, cube:int8")(lambda self, a, b, beta, alpha, out, cube: torch.addmm(self, a, b, beta=beta, alpha=alpha))
kernel("InplaceAddmm", "self!, a, b, beta:scalar, alpha:scalar, cube:int8")(lambda self, a, b, beta, alpha, cube: torch.addmm(self, a, b, beta=beta, alpha=alpha))
kernel("Addbmm", "self, a, b, beta:scalar, alpha:scalar, out!, cube:int8")(lambda self, a, b, beta, alpha, out, cube: torch.addbmm(self, a, b, beta=beta, alpha=alpha))
kernel("Baddbmm", "self, a, b, beta:scalar, alpha:scalar, out!, cube:int8")(
    lambda self, a, b, beta, alpha, out, cube: torch.baddbmm(self, a, b, beta=beta, alpha=alpha))
kernel("Addmv", "self, a, vector, alpha:scalar, beta:scalar, out!, cube:int8")(     # (the only one with alpha before beta)
    lambda self, a, vector, alpha, beta, out, cube: torch.addmv(self, a, vector, beta=beta, alpha=alpha))
kernel("InplaceAddr", "self!, a, b, beta:scalar, alpha:scalar")(lambda self, a, b, beta, alpha: torch.addr(self, a, b, beta=beta, alpha=alpha))
kernel("LinalgCross", "self, other, dim:int, out!")(lambda self, other, dim, out: torch.linalg.cross(self, other, dim=dim))
kernel("Trace", "self, out!")(lambda self, out: torch.trace(self))
kernel("Cdist", "self, other, p:float, mode:int, out!")(lambda self, other, p, mode, out: torch.cdist(self, other, p, compute_mode="donot_use_mm_for_euclid_dist"))

# ---- solving, taking apart
kernel("Inverse", "self, out!")(lambda self, out: torch.linalg.inv(self))


def _triangular_solve(self, a, upper, transpose, unitriangular, solution, copy):
    matrix = a.mT if transpose else a
    return torch.linalg.solve_triangular(matrix, self, upper=upper != transpose, unitriangular=unitriangular), a


kernel("TriangularSolve", "self, a, upper:bool, transpose:bool, unitriangular:bool, solution!, copy!")(_triangular_solve)
MODES = ("reduced", "complete", "r")
kernel("LinalgQr", "self, mode:int, q!, r!")(lambda self, mode, q, r: tuple(torch.linalg.qr(self, MODES[mode])) if mode != 2 else (None, torch.linalg.qr(self, "r")[1]))
