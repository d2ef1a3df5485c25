"""torch.distributed.device_mesh: the ranks of a job as an array, with a process group along each
dimension."""
import threading

import numpy as np

from mindtorch.core.tensor.tensor import wrap_array, is_tensor
from mindtorch.core.tensor.sync import to_host
from mindtorch.torch.distributed import _process_group as groups

__all__ = ["init_device_mesh", "DeviceMesh"]

_active = threading.local()


def init_device_mesh(device_type, mesh_shape, *, mesh_dim_names=None, backend_override=None):
    """Creates a DeviceMesh of all ranks with the given shape, in row-major order."""
    mesh_shape = (mesh_shape,) if isinstance(mesh_shape, int) else tuple(mesh_shape)
    if mesh_dim_names is not None:
        if len(set(mesh_dim_names)) != len(mesh_dim_names):
            raise RuntimeError("Each mesh_dim_name must be unique.", f"Found repeated mesh_dim_name in mesh_dim_names {mesh_dim_names}")
        if len(mesh_dim_names) != len(mesh_shape):
            raise RuntimeError("mesh_shape and mesh_dim_names should have same length!",
                               f"Found len(mesh_dim_names): {len(mesh_dim_names)} and len(mesh_shape):{len(mesh_shape)}.")
    if device_type and not device_type.isalpha():
        raise RuntimeError(f"Device type with index is not supported but got {device_type}. "
                           "If you maintained a 'torch.device' object, it's recommended to pass in 'device.type'.")
    mesh = np.arange(int(np.prod(mesh_shape, dtype=np.int64))).reshape(mesh_shape)
    return DeviceMesh(device_type, mesh, mesh_dim_names=mesh_dim_names)


class DeviceMesh:
    """Array of global ranks. Every process in it is a member of one process group per dimension.

    All processes of the job must create it, in the same order.
    """

    def __init__(self, device_type, mesh=None, *, mesh_dim_names=None, backend_override=None, _init_backend=True, _rank=None):
        self.device_type = device_type
        self._mesh = np.array(to_host(mesh) if is_tensor(mesh) else mesh, np.int64)
        self.mesh_dim_names = None if mesh_dim_names is None else tuple(mesh_dim_names)
        self._root, self._flat = None, {}
        if not groups.is_initialized() and _init_backend:
            groups.init_process_group()
        world = groups.get_world_size()
        if self._mesh.size > world:
            raise RuntimeError(f"Mesh should not be bigger than default world size {world}, but found {self._mesh.size} ranks!")
        if len(np.unique(self._mesh)) != self._mesh.size:
            raise RuntimeError(f"DeviceMesh cannot have repeated ranks: {self._mesh.tolist()}")
        self._rank = groups.get_rank() if _rank is None else _rank
        at = np.argwhere(self._mesh == self._rank)
        self._coordinate = tuple(int(i) for i in at[0]) if len(at) else None
        self._groups = [self._along(d) for d in range(self._mesh.ndim)] if _init_backend else []

    def _along(self, dim):
        """Creates the groups along a dimension and returns this process's group."""
        mine = None
        lines = np.moveaxis(self._mesh, dim, -1).reshape(-1, self._mesh.shape[dim])
        default = groups.default_group()
        for line in lines:
            ranks = [int(r) for r in line]
            if ranks == default.ranks:
                pg = default
            else:
                desc = f"mesh_{self.mesh_dim_names[dim]}" if self.mesh_dim_names else f"mesh_dim_{dim}"
                pg = groups.new_group(ranks, group_desc=desc, sort_ranks=False)
            if self._rank in ranks:
                mine = pg
        return mine

    @property
    def mesh(self):
        """The ranks as a tensor."""
        return wrap_array(self._mesh.copy())

    @property
    def ndim(self):
        return self._mesh.ndim

    @property
    def shape(self):
        return tuple(self._mesh.shape)

    def size(self, mesh_dim=None):
        """Returns the number of ranks, in total or along a dimension."""
        return int(self._mesh.size if mesh_dim is None else self._mesh.shape[mesh_dim])

    def __repr__(self):
        names = self.mesh_dim_names
        shape = ", ".join(f"{names[i]}={n}" if names else str(n) for i, n in enumerate(self.shape))
        return f"DeviceMesh(({shape}), '{self.device_type}', {self._mesh.tolist()})"

    def __eq__(self, other):
        return self is other or (isinstance(other, DeviceMesh) and self.device_type == other.device_type and
                                 self.mesh_dim_names == other.mesh_dim_names and np.array_equal(self._mesh, other._mesh))

    def __hash__(self):
        return hash((self.device_type, self.mesh_dim_names, self._mesh.shape, self._mesh.tobytes()))

    def _dim(self, mesh_dim):
        if isinstance(mesh_dim, str):
            if self.mesh_dim_names is None or mesh_dim not in self.mesh_dim_names:
                raise KeyError(f"Mesh dimension '{mesh_dim}' does not exist. Available mesh dimensions are: "
                               f"mesh_dim_names={self.mesh_dim_names}")
            return self.mesh_dim_names.index(mesh_dim)
        if not -self.ndim <= mesh_dim < self.ndim:
            raise IndexError(f"mesh dimension {mesh_dim} of a mesh of {self.ndim} dimensions")
        return mesh_dim % self.ndim

    def get_group(self, mesh_dim=None):
        """Returns this process's group along a dimension, given by index or name."""
        if mesh_dim is None:
            if self.ndim > 1:
                raise RuntimeError(f"Found the DeviceMesh have {self.ndim} dimensions. Optional kwarg `mesh_dim` needs to be "
                                   "specified when device_mesh.ndim > 1.")
            mesh_dim = 0
        if isinstance(mesh_dim, str) and mesh_dim in self._flat and mesh_dim not in (self.mesh_dim_names or ()):
            return self._flat[mesh_dim].get_group()
        return self._groups[self._dim(mesh_dim)]

    def get_all_groups(self):
        """Returns this process's groups along all dimensions."""
        return list(self._groups)

    def get_rank(self):
        """Returns this process's global rank."""
        return self._rank

    def get_local_rank(self, mesh_dim=None):
        """Returns this process's index along a dimension."""
        if mesh_dim is None:
            if self.ndim > 1:
                raise RuntimeError(f"Found the DeviceMesh have {self.ndim} dimensions. Optional kwarg `mesh_dim` needs to be "
                                   "specified when device_mesh.ndim > 1.")
            mesh_dim = 0
        return self.get_group(mesh_dim).rank()

    def get_coordinate(self):
        """Returns this process's index along every dimension, or None if it is not in the mesh."""
        return self._coordinate

    def __getitem__(self, mesh_dim_names):
        """Returns the submesh along the named dimensions that contains this process."""
        if self.mesh_dim_names is None:
            raise RuntimeError("Cannot slice a DeviceMesh without mesh_dim_names!")
        names = (mesh_dim_names,) if isinstance(mesh_dim_names, str) else tuple(mesh_dim_names)
        if names == self.mesh_dim_names:
            return self
        if len(names) == 1 and names[0] in self._flat:
            return self._flat[names[0]]
        for n in names:
            if n not in self.mesh_dim_names:
                raise KeyError(f"Invalid mesh_dim_names {names} specified. Valid mesh_dim_names are {self.mesh_dim_names}.")
        dims = [self.mesh_dim_names.index(n) for n in names]
        if dims != sorted(dims):
            raise KeyError(f"Invalid mesh_dim_names {names} specified. The mesh dim names must be in the order of {self.mesh_dim_names}")
        if self._coordinate is None:
            raise RuntimeError(f"rank {self._rank} is not in the mesh {self!r}")
        at = tuple(slice(None) if d in dims else self._coordinate[d] for d in range(self.ndim))
        sub = DeviceMesh(self.device_type, self._mesh[at], mesh_dim_names=names, _init_backend=False, _rank=self._rank)
        sub._groups = [self._groups[d] for d in dims]
        sub._root = self._root or self
        return sub

    def _get_root_mesh(self):
        return self._root or self

    def _get_mesh_dim_by_name(self, name):
        return self._dim(name)

    def _flatten(self, mesh_dim_name=None, backend_override=None):
        """Returns a 1-D mesh of this mesh's ranks, named after its dimensions. All processes must
        call it."""
        root = self._root or self
        name = mesh_dim_name or "_".join(self.mesh_dim_names)
        if name not in root._flat:
            dims = [root.mesh_dim_names.index(n) for n in self.mesh_dim_names]
            rest = [d for d in range(root.ndim) if d not in dims]
            rows = np.transpose(root._mesh, rest + dims).reshape(-1, self._mesh.size)
            for row in rows:
                flat = DeviceMesh(self.device_type, row, mesh_dim_names=(name,), _init_backend=False, _rank=self._rank)
                pg = groups.new_group([int(r) for r in row], group_desc=f"mesh_{name}", sort_ranks=False)
                if self._rank in row:
                    flat._groups, flat._root = [pg], root
                    root._flat[name] = flat
        return root._flat[name]

    @staticmethod
    def from_group(group, device_type, mesh=None, *, mesh_dim_names=None):
        """Creates a mesh from existing groups."""
        if isinstance(group, groups.ProcessGroup):
            ranks = np.array(group.ranks)
            if mesh is not None and not np.array_equal(np.array(to_host(mesh) if is_tensor(mesh) else mesh).ravel(), ranks):
                raise ValueError(f"Invalid mesh {mesh} for ProcessGroup with ranks {ranks.tolist()}")
            made = DeviceMesh(device_type, ranks, mesh_dim_names=mesh_dim_names, _init_backend=False)
            made._groups = [group]
            return made
        if mesh is None:
            raise ValueError("Must pass mesh if passing multiple ProcessGroups")
        made = DeviceMesh(device_type, mesh, mesh_dim_names=mesh_dim_names, _init_backend=False)
        if made.ndim != len(group):
            raise ValueError(f"Expects mesh with ndim equal to number of ProcessGroups but got mesh {made._mesh.tolist()} and "
                             f"{len(group)} ProcessGroups")
        made._groups = list(group)
        return made

    def __enter__(self):
        if not hasattr(_active, "meshes"):
            _active.meshes = []
        _active.meshes.append(self)
        return self

    def __exit__(self, *exc):
        _active.meshes.pop()

    def __deepcopy__(self, memo):
        return self


def current_mesh():
    """Returns the mesh of the innermost `with` block. Raises RuntimeError if there is none."""
    meshes = getattr(_active, "meshes", [])
    if not meshes:
        raise RuntimeError("No device mesh is currently active!")
    return meshes[-1]
