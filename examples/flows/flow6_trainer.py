"""Flow 6: a functional Trainer with two losses, loss scaling and an overflow check.

It saves the best checkpoint.

    python examples/flows/flow6_trainer.py
"""
import os
import tempfile

from mindtorch.tools import mstorch_enable  # noqa: F401
import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import torch
from mindspore.amp import StaticLossScaler, all_finite

from common import Log, batch, make_net


class Trainer:
    def __init__(self, net, loss1, loss2, optimizer, train_dataset, loss_scale=1.0, eval_dataset=None, metric=None, best=None):
        self.net, self.loss1, self.loss2, self.opt = net, loss1, loss2, optimizer
        self.train_dataset, self.eval_dataset, self.metric, self.best, self.best_acc = train_dataset, eval_dataset, metric, best, 0
        self.value_and_grad = ms.value_and_grad(self.forward_fn, None, weights=self.opt.parameters, has_aux=True)
        self.loss_scale = StaticLossScaler(loss_scale)

    def forward_fn(self, inputs, labels):
        logits = self.net(inputs)
        loss1, loss2 = self.loss1(logits, labels), self.loss2(logits, labels)
        return self.loss_scale.scale(loss1 + loss2), loss1, loss2

    @ms.jit
    def train_single(self, inputs, labels):
        (loss, loss1, loss2), grads = self.value_and_grad(inputs, labels)
        loss = self.loss_scale.unscale(loss)
        grads = self.loss_scale.unscale(grads)
        if all_finite(grads):
            self.opt(grads)
        return loss, loss1, loss2, grads

    def train(self, epochs, log):
        for epoch in range(epochs):
            self.net.set_train(True)
            for i, data in enumerate(self.train_dataset.create_dict_iterator(num_epochs=1)):
                loss, loss1, loss2, grads = self.train_single(data["image"], data["label"])
                log.step(epoch * 5 + i, loss, self.net, grads)
            self.net.set_train(False)
            self.metric.clear()
            for data in self.eval_dataset.create_dict_iterator(num_epochs=1):
                self.metric.update(self.net(data["image"]), data["label"])
            accuracy = self.metric.eval()
            print(f"epoch {epoch}, accuracy: {accuracy}", flush=True)
            log.keep(**{f"accuracy{epoch}": accuracy})
            if accuracy >= self.best_acc:
                self.best_acc = accuracy
                ms.save_checkpoint(self.net, self.best)


def penalty(logits, labels):
    return 0.01 * (logits * logits).mean()


log = Log()
images, labels = (np.concatenate(a) for a in zip(*(batch(i) for i in range(5))))
data = ds.NumpySlicesDataset({"image": images, "label": labels.astype(np.int32)}, shuffle=False).batch(16)
with tempfile.TemporaryDirectory() as folder:
    net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    best = os.path.join(folder, "best.ckpt")
    Trainer(net, torch.nn.CrossEntropyLoss(), penalty, optimizer, data, 1024.0, data, ms.train.Accuracy(), best).train(2, log)
    again = make_net(3)
    ms.load_checkpoint(best, again)
    print("best checkpoint loaded:", len(again.state_dict()), "tensors")
log.close()
