"""The two sides of a comparison: real torch, mindtorch's cpu device or its npu device, each in a dtype where one is named."""
import dataclasses

PLACES = ("torch", "cpu", "npu")
DTYPES = ("float64", "float32", "float16", "bfloat16")


@dataclasses.dataclass(frozen=True)
class Place:
    """One side: where the model runs, and the dtype that it and its floating inputs are cast to (None: as built)."""

    place: str
    dtype: str | None = None

    def __str__(self):
        return self.place + (f":{self.dtype}" if self.dtype else "")

    def called(self, other):
        """How a sentence names it, beside the other side."""
        name = {"torch": "real torch", "cpu": "mindtorch" if other.place == "torch" else "the cpu device",
                "npu": "the npu device"}[self.place]
        return name + (f" in {self.dtype}" if self.dtype else "")


def parse(text):
    """(first, second) of 'torch,npu' or 'npu:float32,npu:bfloat16'; the first is what the second is judged by. ValueError for what is no such pair."""
    parts = text.replace(" ", "").split(",") if isinstance(text, str) else [str(x) for x in text]
    if len(parts) != 2:
        raise ValueError(f"sides must be two, as in torch,npu or npu:float32,npu:bfloat16, not {text!r}")
    out = []
    for part in parts:
        place, colon, dtype = part.partition(":")
        if place not in PLACES or colon and dtype not in DTYPES:
            raise ValueError(f"{part!r} is no side: {', '.join(PLACES)}, or one of them with a dtype ({', '.join(DTYPES)}) after a colon")
        out.append(Place(place, dtype or None))
    return tuple(out)


DEFAULT = parse("torch,cpu")
