"""The two sides of a comparison: PyTorch, mindtorch's cpu device or its npu device, each with an
optional dtype."""
import dataclasses

PLACES = ("torch", "cpu", "npu")
DTYPES = ("float64", "float32", "float16", "bfloat16")


@dataclasses.dataclass(frozen=True)
class Place:
    """One side: where the model runs, and the dtype to which it and its floating inputs are cast
    (None: unchanged)."""

    place: str
    dtype: str | None = None

    def __str__(self):
        return self.place + (f":{self.dtype}" if self.dtype else "")

    def called(self, other):
        """Returns its name in messages, which depends on the other side."""
        name = {"torch": "real torch", "cpu": "mindtorch" if other.place == "torch" else "the cpu device",
                "npu": "the npu device"}[self.place]
        return name + (f" in {self.dtype}" if self.dtype else "")


def parse_sides(text):
    """Parses 'torch,npu' or 'npu:float32,npu:bfloat16' into (first, second); the second is compared
    with the first. ValueError for anything else."""
    parts = text.replace(" ", "").split(",") if isinstance(text, str) else [str(x) for x in text]
    if len(parts) != 2:
        raise ValueError(f"sides must be two, as in torch,npu or npu:float32,npu:bfloat16, not {text!r}")
    out = []
    for part in parts:
        place, colon, dtype = part.partition(":")
        if place not in PLACES or colon and dtype not in DTYPES:
            raise ValueError(f"invalid side {part!r}: expected one of {', '.join(PLACES)}, optionally with a dtype ({', '.join(DTYPES)}) after a colon")
        out.append(Place(place, dtype or None))
    return tuple(out)


DEFAULT_SIDES = parse_sides("torch,cpu")
