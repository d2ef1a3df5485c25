"""Matrix and vector products, distances, solvers and factorizations."""
from mindtorch.tools.standin.kernels._engine import torch
from mindtorch.tools.standin.kernels._table import kernel

# ---- products. `cube` allows the chip to reduce precision; here it has no effect.
kernel("Matmul Mm BatchMatMul", "self, other, out!, cube:int8")(lambda self, other, out, cube: torch.matmul(self, other))
kernel("Mv", "self, vector, out!, cube:int8")(lambda self, vector, out, cube: torch.mv(self, vector))
kernel("Dot", "self, other, out!")(lambda self, other, out: torch.dot(self, other))


def _added(name, product, order="beta alpha"):
    """Registers a product that is added to a tensor, with two factors in the kernel's order."""
    scalars = ", ".join(f"{word}:scalar" for word in order.split())

    def function(self, a, b, first, second, out, cube):
        return product(self, a, b, **dict(zip(order.split(), (first, second))))

    kernel(name, f"self, a, b, {scalars}, out!, cube:int8")(function)


_added("Addmm", torch.addmm)
_added("Addbmm", torch.addbmm)
_added("Baddbmm", torch.baddbmm)
_added("Addmv", torch.addmv, "alpha beta")
kernel("InplaceAddmm", "self!, a, b, beta:scalar, alpha:scalar, cube:int8")(
    lambda self, a, b, beta, alpha, cube: torch.addmm(self, a, b, beta=beta, alpha=alpha))
kernel("InplaceAddr", "self!, a, b, beta:scalar, alpha:scalar")(lambda self, a, b, beta, alpha: torch.addr(self, a, b, beta=beta, alpha=alpha))
kernel("LinalgCross", "self, other, dim:int, out!")(lambda self, other, dim, out: torch.linalg.cross(self, other, dim=dim))
kernel("Trace", "self, out!")(lambda self, out: torch.trace(self))
kernel("Cdist", "self, other, p:float, mode:int, out!")(
    lambda self, other, p, mode, out: torch.cdist(self, other, p, compute_mode="donot_use_mm_for_euclid_dist"))

# ---- solvers, factorizations
kernel("Inverse", "self, out!")(lambda self, out: torch.linalg.inv(self))


def _triangular_solve(self, a, upper, transpose, unitriangular, solution, copy):
    matrix = a.mT if transpose else a
    return torch.linalg.solve_triangular(matrix, self, upper=upper != transpose, unitriangular=unitriangular), a


kernel("TriangularSolve", "self, a, upper:bool, transpose:bool, unitriangular:bool, solution!, copy!")(_triangular_solve)


def _qr(self, mode, q, r):
    """Computes a QR factorization. mode: 0 reduced, 1 complete, 2 only r."""
    found = torch.linalg.qr(self, ("reduced", "complete", "r")[mode])
    return None if mode == 2 else found[0], found[1]


kernel("LinalgQr", "self, mode:int, q!, r!")(_qr)
