"""Checks of libraries for training loops, metrics and losses on embeddings."""
import tempfile

from library_checks.registry import check, place


@check("lightning")
def lightning():
    """Trainer.fit, checkpoint, test"""
    import lightning as L
    _trainer(L)


@check("pytorch-lightning")
def pytorch_lightning():
    """Trainer.fit, checkpoint, test"""
    import pytorch_lightning as L
    _trainer(L)


def _trainer(L):
    import torch

    class Net(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.save_hyperparameters()
            self.lin = torch.nn.Linear(4, 1)

        def training_step(self, batch, i):
            loss = self.lin(batch[0]).pow(2).mean()
            self.log("loss", loss)
            return loss

        test_step = training_step

        def configure_optimizers(self):
            opt = torch.optim.Adam(self.parameters(), 1e-2)
            return [opt], [torch.optim.lr_scheduler.StepLR(opt, 1)]
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(16, 4)), batch_size=4)
    with tempfile.TemporaryDirectory() as d:
        trainer = L.Trainer(max_epochs=2, logger=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=d, devices=1,
                            # (npu's other name, which the library accepts)
                            accelerator="cpu" if place() == "cpu" else "cuda")
        net = Net()
        trainer.fit(net, data)
        trainer.save_checkpoint(d + "/last.ckpt")
        again = Net.load_from_checkpoint(d + "/last.ckpt", weights_only=False)
        trainer.test(net, data, verbose=False)
    assert torch.equal(again.lin.weight, net.lin.weight) and "loss" in trainer.callback_metrics


@check("pytorch-ignite")
def pytorch_ignite():
    """Trainer engine, evaluator with metrics, checkpoint"""
    import torch
    from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
    from ignite.handlers import ModelCheckpoint
    from ignite.metrics import Accuracy, Loss
    model = torch.nn.Linear(4, 3)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(8, 4), torch.randint(0, 3, (8,))), batch_size=4)
    trainer = create_supervised_trainer(model, torch.optim.SGD(model.parameters(), 0.1), torch.nn.CrossEntropyLoss())
    evaluator = create_supervised_evaluator(model, metrics={"acc": Accuracy(), "loss": Loss(torch.nn.CrossEntropyLoss())})
    with tempfile.TemporaryDirectory() as d:
        trainer.add_event_handler(Events.EPOCH_COMPLETED, ModelCheckpoint(d, "m"), {"model": model})
        trainer.run(data, 2)
    found = evaluator.run(data).metrics
    assert 0 <= found["acc"] <= 1


@check("skorch")
def skorch():
    """NeuralNetClassifier.fit, predict, pickled"""
    import pickle
    import numpy as np
    import torch
    from skorch import NeuralNetClassifier
    net = NeuralNetClassifier(torch.nn.Linear, module__in_features=4, module__out_features=2, criterion=torch.nn.CrossEntropyLoss, max_epochs=2, verbose=0,
                              device=place())
    x, y = np.random.randn(20, 4).astype(np.float32), np.random.randint(0, 2, 20)
    net.fit(x, y)
    chances = pickle.loads(pickle.dumps(net)).predict_proba(x)
    assert chances.shape == (20, 2)


@check("accelerate")
def accelerate():
    """training loop, gradient accumulation, empty weights"""
    import torch
    from accelerate import Accelerator, init_empty_weights
    acc = Accelerator(cpu=place() == "cpu", gradient_accumulation_steps=2)
    model = torch.nn.Linear(4, 1)
    model, opt, data = acc.prepare(model, torch.optim.AdamW(model.parameters()), torch.utils.data.DataLoader(torch.randn(8, 4), batch_size=2))
    for x in data:
        with acc.accumulate(model):
            loss = model(x).pow(2).mean()
            acc.backward(loss)
            acc.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
    assert torch.isfinite(acc.gather(loss.detach())).all()
    with init_empty_weights():
        empty = torch.nn.Linear(1000, 1000)
    assert empty.weight.is_meta


@check("fastai", "fastcore", "fastprogress")
def fastai():
    """Learner.fit_one_cycle"""
    import torch
    from fastai.data.core import DataLoaders
    from fastai.data.load import DataLoader
    from fastai.learner import Learner
    data = [(torch.randn(4), torch.randn(1)) for _ in range(8)]
    dls = DataLoaders(DataLoader(data, bs=4), DataLoader(data, bs=4))
    learn = Learner(dls, torch.nn.Linear(4, 1), loss_func=torch.nn.functional.mse_loss)
    with learn.no_bar(), learn.no_logging():
        learn.fit(1, 1e-2)


@check("torchmetrics")
def torchmetrics():
    """classification, regression and image metrics"""
    import torch
    import torchmetrics as tm
    acc = tm.Accuracy(task="multiclass", num_classes=3)
    acc.update(torch.tensor([0, 1, 2, 2]), torch.tensor([0, 1, 2, 1]))
    assert abs(acc.compute().item() - 0.75) < 1e-6
    both = tm.MetricCollection([tm.MeanSquaredError(), tm.R2Score()])
    found = both(torch.tensor([1.0, 2, 3]), torch.tensor([1.0, 2, 4]))
    assert set(found) == {"MeanSquaredError", "R2Score"}
    assert tm.functional.auroc(torch.tensor([0.1, 0.9]), torch.tensor([0, 1]), task="binary").item() == 1
    scores, classes = torch.randn(20, 3).softmax(1), torch.randint(0, 3, (20,))
    told = {"task": "multiclass", "num_classes": 3}
    curve = [tm.functional.auroc(scores, classes, **told), tm.functional.f1_score(scores, classes, average="macro", **told)]
    noise = tm.image.PeakSignalNoiseRatio(data_range=1.0)(torch.zeros(1, 3, 8, 8), torch.rand(1, 3, 8, 8))
    likeness = tm.image.StructuralSimilarityIndexMeasure(data_range=1.0)(torch.rand(1, 3, 16, 16), torch.rand(1, 3, 16, 16))
    assert all(torch.isfinite(v).all() for v in (*curve, noise, likeness))


@check("pytorch-metric-learning")
def pytorch_metric_learning():
    """triplet and NT-Xent losses with a miner"""
    import torch
    from pytorch_metric_learning import losses, miners
    e = torch.randn(8, 4, requires_grad=True)
    y = torch.arange(8) // 2
    loss = losses.TripletMarginLoss()(e, y, miners.MultiSimilarityMiner()(e, y)) + losses.NTXentLoss()(e, y)
    loss.backward()
    assert e.grad.abs().sum() > 0


@check("pytorch-tabnet")
def pytorch_tabnet():
    """TabNetClassifier.fit"""
    import numpy as np
    from pytorch_tabnet.tab_model import TabNetClassifier
    x, y = np.random.randn(64, 5).astype(np.float32), np.random.randint(0, 2, 64)
    net = TabNetClassifier(verbose=0, device_name=place(), n_d=4, n_a=4)
    net.fit(x, y, max_epochs=1, batch_size=32, virtual_batch_size=16)
    chances = net.predict_proba(x)
    assert chances.shape == (64, 2)
