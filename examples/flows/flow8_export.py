"""Flow 8: export of a trained network as MindIR and ONNX; torch.jit.trace, save and load.

The exported networks are loaded again and compared.

    python examples/flows/flow8_export.py
"""
import os
import tempfile

from mindtorch.tools import mstorch_enable  # noqa: F401
import mindspore as ms
import numpy as np
import torch

from common import Log, make_net, tensors

log = Log()
net = make_net()
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for i in range(5):
    x, y = tensors(i)
    loss = criterion(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    log.step(i, loss, net)

net.eval()
x, _ = tensors(9, size=3)
with torch.no_grad():
    wanted = net(x)
log.keep(eager=wanted.cpu().numpy())

with tempfile.TemporaryDirectory() as folder:
    ms.export(net, x, file_name=os.path.join(folder, "net"), file_format="MINDIR")
    graph = ms.nn.GraphCell(ms.load(os.path.join(folder, "net.mindir")))
    found = {"mindir": graph(ms.Tensor(x.cpu().numpy())).asnumpy()}

    traced = torch.jit.trace(net, x)
    traced.save(os.path.join(folder, "net.pt"))
    with torch.no_grad():
        found["jit"] = torch.jit.load(os.path.join(folder, "net.pt"))(x).cpu().numpy()

    try:
        import onnxruntime
    except ImportError:
        print("onnxruntime is not installed: ONNX is skipped")
    else:
        path = os.path.join(folder, "net.onnx")
        torch.onnx.export(net, (x[:1],), path, input_names=["image"], output_names=["logits"],
                          dynamic_axes={"image": {0: "n"}, "logits": {0: "n"}})
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        found["onnx"] = session.run(None, {"image": x.cpu().numpy()})[0]

for name, y in found.items():
    print(f"{name}: largest difference {np.abs(y - wanted.cpu().numpy()).max():.1e}")
log.keep(**found)
log.close()
