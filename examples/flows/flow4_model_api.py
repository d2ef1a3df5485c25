"""Flow 4: MindSpore's Model API with a PyTorch-style network: train, evaluate, checkpoint, convert.

    python examples/flows/flow4_model_api.py
"""
import os
import subprocess
import sys
import tempfile

from mindtorch.tools import mstorch_enable  # noqa: F401
import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import torch
from mindspore.train import Callback, CheckpointConfig, LossMonitor, ModelCheckpoint, TimeMonitor

from common import Log, batch, make_net

log = Log()
images, labels = (np.concatenate(a) for a in zip(*(batch(i) for i in range(5))))
data = ds.NumpySlicesDataset({"image": images, "label": labels.astype(np.int32)}, shuffle=False).batch(16)


class Numbers(Callback):
    """Callback that writes every step to the log."""

    def on_train_step_end(self, run_context):
        p = run_context.original_args()
        log.step(p.cur_step_num - 1, p.net_outputs.asnumpy(), net, grads=[None] * 10)


with tempfile.TemporaryDirectory() as folder:
    net = make_net()
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = ms.nn.Momentum(net.trainable_params(), 0.05, 0.9, weight_decay=5e-4)
    model = ms.Model(net, criterion, optimizer, metrics={"accuracy", "top_5_accuracy"})
    saver = ModelCheckpoint(prefix="net", directory=folder, config=CheckpointConfig(save_checkpoint_steps=5))
    model.train(1, data, callbacks=[LossMonitor(), TimeMonitor(), saver, Numbers()], dataset_sink_mode=False)
    result = model.eval(data, dataset_sink_mode=False)
    print("result:", result)
    log.keep(accuracy=result["accuracy"])

    # Load the checkpoint into a new network, and convert it for torch and safetensors.
    path = os.path.join(folder, "net-1_5.ckpt")
    again = make_net(7)
    ms.load_param_into_net(again, ms.load_checkpoint(path))
    assert all(torch.equal(a, b) for a, b in zip(again.state_dict().values(), net.state_dict().values()))
    pth, st = os.path.join(folder, "net.pth"), os.path.join(folder, "net.safetensors")
    for source, target in ((path, pth), (pth, st)):
        subprocess.run([sys.executable, "-m", "mindtorch", "convert", source, target], check=True)
    state = torch.load(pth, map_location=torch.get_default_device())
    assert all(torch.equal(state[k], v) for k, v in net.state_dict().items())
    print("converted:", sorted(state))
log.close()
