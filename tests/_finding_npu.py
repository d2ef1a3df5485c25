"""Checks how libraries detect the npu device, and trains a few steps with each of them; prints one
line of JSON.

    accelerate     Accelerator(), PartialState
    transformers   is_torch_npu_available, Trainer
    lightning      Trainer(accelerator="auto")

The command line names the libraries to run. The checks that these libraries are built on always run
first.
"""
import importlib.util
import json
import sys
import tempfile

import torch


class Squares(torch.utils.data.Dataset):
    """Twelve samples for regression."""

    def __init__(self):
        g = torch.Generator().manual_seed(0)
        self.x, self.y = torch.randn(12, 4, generator=g), torch.randn(12, 1, generator=g)

    def __len__(self):
        return 12

    def __getitem__(self, i):
        return {"x": self.x[i], "y": self.y[i]}


class Net(torch.nn.Module):
    """Two layers and a loss."""

    def __init__(self):
        torch.manual_seed(0)
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 1))

    def forward(self, x, y):
        return {"loss": torch.nn.functional.mse_loss(self.layers(x), y)}


def batches():
    return torch.utils.data.DataLoader(Squares(), batch_size=4)


def probes():
    """Returns the results of the device checks that need no library."""
    accelerator = torch.accelerator.current_accelerator()
    import torch_npu
    torch.cuda.manual_seed_all(3)
    torch.npu.set_rng_state_all(torch.npu.get_rng_state_all())
    return {"found": importlib.util.find_spec("torch_npu") is not None, "same": torch_npu.npu is torch.npu, "npu": torch.npu.is_available(),
            "count": torch.npu.device_count(),
            "cuda": torch.cuda.is_available(), "cuda count": torch.cuda.device_count(), "accelerator": accelerator and accelerator.type,
            "available": torch.accelerator.is_available(), "accelerators": torch.accelerator.device_count(), "generators": len(torch.cuda.get_rng_state_all())}


def accelerate():
    import accelerate as library
    from accelerate.utils import is_npu_available
    worker, losses = library.Accelerator(), []
    net = Net()
    net, opt, data = worker.prepare(net, torch.optim.AdamW(net.parameters(), 0.05), batches())
    for _ in range(2):
        for batch in data:
            opt.zero_grad()
            loss = net(**batch)["loss"]
            worker.backward(loss)
            opt.step()
            losses.append(loss.item())
    return {"probe": [is_npu_available(), is_npu_available(check_device=True)], "device": [library.PartialState().device.type, worker.device.type, loss.device.type],
            "losses": losses}


def transformers():
    import transformers as library
    from transformers.utils import is_torch_npu_available
    losses, places = [], set()

    class Trainer(library.Trainer):
        def training_step(self, model, inputs, *args, **kwargs):
            places.add(inputs["x"].device.type)
            loss = super().training_step(model, inputs, *args, **kwargs)
            losses.append(loss.item())
            return loss

        def _get_train_sampler(self, *args):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    with tempfile.TemporaryDirectory() as folder:
        how = library.TrainingArguments(folder, num_train_epochs=2, per_device_train_batch_size=4, learning_rate=0.05, lr_scheduler_type="constant", report_to=[],
                                        save_strategy="no", disable_tqdm=True, remove_unused_columns=False, max_grad_norm=0.0)
        Trainer(Net(), how, train_dataset=Squares()).train()
    return {"probe": [is_torch_npu_available(), is_torch_npu_available(check_device=True)], "device": [how.device.type, *places], "losses": losses}


def lightning():
    import lightning as library
    losses = []

    class Module(library.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def training_step(self, batch, i):
            loss = self.net(**batch)["loss"]
            losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), 0.05)

        def on_train_start(self):
            places.append(next(self.parameters()).device.type)
    places = []
    with tempfile.TemporaryDirectory() as folder:
        trainer = library.Trainer(accelerator="auto", devices=1, max_epochs=2, logger=False, enable_progress_bar=False, enable_model_summary=False,
                                  enable_checkpointing=False, default_root_dir=folder)
        trainer.fit(Module(), batches())
    return {"probe": [type(trainer.accelerator).__name__], "device": [trainer.strategy.root_device.type, *places], "losses": losses}


if __name__ == "__main__":
    print("FOUND", json.dumps({"probes": probes(), **{name: globals()[name]() for name in sys.argv[1:]}}))
