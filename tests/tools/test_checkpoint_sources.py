"""Checkpoints from other sources: torch.hub's cached and local files, and the torch API of
safetensors."""
import hashlib
import pathlib
import pickle
import zipfile

import pytest
import torch as real

import mindtorch.torch as mine


def test_load_state_dict_from_url(tmp_path, capsys):
    source = tmp_path / "server" / "net.pth"
    source.parent.mkdir()
    real.save({"w": real.arange(4.0), "s": real.ones(2, dtype=real.bfloat16)}, source)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:8]
    named = source.rename(source.with_name(f"net-{digest}.pth"))
    url, cache = named.as_uri(), tmp_path / "cache"

    def load(**options):
        return mine.hub.load_state_dict_from_url(url, model_dir=str(cache), progress=False, **options)

    got = load(check_hash=True, weights_only=True, map_location="cpu")
    assert got["w"].tolist() == [0, 1, 2, 3] and got["s"].dtype == mine.bfloat16 and "Downloading" in capsys.readouterr().err
    assert [f.name for f in cache.iterdir()] == [named.name]
    named.unlink()  # from now on only the cached file exists
    assert load()["w"].tolist() == [0, 1, 2, 3] and "Downloading" not in capsys.readouterr().err
    assert mine.hub.load_state_dict_from_url("https://example.invalid/x/y.pth?a=1", model_dir=str(cache), file_name=named.name,
                                             progress=False)["w"].shape == (4,)


def test_hub_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
    real.save({"w": real.ones(1)}, tmp_path / "hub" / "checkpoints" / "old.pth", _use_new_zipfile_serialization=False)
    assert mine.hub.get_dir() == str(tmp_path / "hub")
    assert mine.hub.load_state_dict_from_url("https://example.invalid/old.pth")["w"].tolist() == [1]
    real.save({"w": real.ones(2)}, tmp_path / "inner.pth")
    with zipfile.ZipFile(tmp_path / "hub" / "checkpoints" / "wrapped.zip", "w") as z:
        z.write(tmp_path / "inner.pth", "inner.pth")
    assert mine.hub.load_state_dict_from_url("https://example.invalid/wrapped.zip")["w"].tolist() == [1, 1]


def test_wrong_hash_leaves_no_file(tmp_path):
    source = tmp_path / "net-00000000.pth"
    real.save({}, source)
    cache = tmp_path / "cache"
    with pytest.raises(RuntimeError, match="invalid hash"):
        mine.hub.load_state_dict_from_url(source.as_uri(), model_dir=str(cache), check_hash=True, progress=False)
    assert list(cache.iterdir()) == []


class Touch:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return pathlib.Path.touch, (self.path,)


def test_cached_file_can_be_loaded_with_weights_only(tmp_path):
    mark = tmp_path / "ran"
    real.save({"w": Touch(mark)}, tmp_path / "evil.pth")
    with pytest.raises(pickle.UnpicklingError):
        mine.hub.load_state_dict_from_url("https://example.invalid/evil.pth", model_dir=str(tmp_path), weights_only=True)
    assert not mark.exists()


def test_safetensors_both_ways(process):
    """The unmodified torch API of the package: each side loads what the other saves, byte for byte.
    """
    pytest.importorskip("safetensors")
    make = """
        import numpy as np, torch, safetensors.torch as st
        def state():
            d = {n: torch.from_numpy(np.arange(6) % 3).to(getattr(torch, n)).reshape(2, 3) for n in
                 ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")}
            return {**d, "empty": torch.zeros(0, 3), "scalar": torch.tensor(2.5)}
        def same(a, b):
            assert sorted(a) == sorted(b)
            for k in a:
                assert a[k].dtype == b[k].dtype and a[k].shape == b[k].shape and torch.equal(a[k], b[k]), k
    """
    process.ok(make + """
        st.save_file(state(), "real.safetensors", metadata={"k": "v"})
    """)
    process.ok("""
        from mindtorch.tools import mstorch_enable
    """ + make + """
        same(st.load_file("real.safetensors"), state())
        same(st.load(st.save(state())), state())
        with st.safe_open("real.safetensors", "pt") as f:
            assert f.metadata() == {"k": "v"} and f.get_slice("float32")[:, 1:].tolist() == [[1, 2], [1, 2]]
        st.save_file(state(), "ours.safetensors")
        one, other = (torch.nn.Linear(3, 2) for _ in range(2))
        one.tied, other.tied = one.weight, other.weight
        st.save_model(one, "model.safetensors")
        assert st.load_model(other, "model.safetensors") == (set(), [])
        assert torch.equal(one.weight, other.weight) and other.tied is other.weight
        try:
            st.save_file({"a": one.weight, "b": one.weight}, "no.safetensors")
        except RuntimeError as e:
            assert "share memory" in str(e)
        else:
            raise AssertionError("shared memory was not seen")
    """)
    process.ok(make + """
        same(st.load_file("ours.safetensors"), state())
        assert torch.__version__ and np.__version__
    """)


def test_safetensors_header_of_any_length(process):
    """The data starts wherever the header ends, at any offset, not only at multiples of an
    element's size."""
    pytest.importorskip("safetensors")
    process.ok("""
        from mindtorch.tools import mstorch_enable
        import json, struct, numpy as np, torch, safetensors.torch as st
        kinds = {"U8": "uint8", "I16": "int16", "F32": "float32", "I64": "int64", "F64": "float64", "C64": "complex64", "F16": "float16"}
        for pad in range(9):
            header, data, want = {}, b"", {}
            for name, numpy_name in kinds.items():
                a = np.arange(6).astype(numpy_name).reshape(2, 3)
                header[name] = {"dtype": name, "shape": [2, 3], "data_offsets": [len(data), len(data) + a.nbytes]}
                data, want[name] = data + a.tobytes(), a
            header["BF16"] = {"dtype": "BF16", "shape": [2], "data_offsets": [len(data), len(data) + 4]}
            data += struct.pack("<HH", 0x3F80, 0x4040)
            text = json.dumps(header).encode()
            text += b" " * ((pad - len(text)) % 8)
            with open("f.safetensors", "wb") as f:
                f.write(struct.pack("<Q", len(text)) + text + data)
            found = st.load_file("f.safetensors")
            assert found.pop("BF16").tolist() == [1, 3] and sorted(found) == sorted(want)
            for name, a in want.items():
                t = found[name]
                assert t.storage_offset() == 0 and t.untyped_storage().nbytes() == a.nbytes and t.numpy().dtype == a.dtype, name
                assert (t.numpy() == a).all() and ((t + 1).numpy() == a + a.dtype.type(1)).all() and t.sum().item() == a.sum(), name
            with st.safe_open("f.safetensors", "pt") as f:
                assert f.get_slice("F32")[:, 1:].tolist() == [[1, 2], [4, 5]] and f.get_tensor("I64").tolist() == [[0, 1, 2], [3, 4, 5]]
    """)
