"""Small programs for libraries that are written for torch: each builds something tiny, runs it
forward and backward, and checks the result. `python -m mindtorch doctor --libraries` runs those
whose library is installed, each in a separate process with the import hook enabled.

A check is a function whose docstring says what it runs; `CHECKS` maps the library's PyPI name to
it.
"""
import tempfile

from mindtorch.tools import _library_checks_more, _library_figures as _figures, _library_parts  # (the first registers its checks)
from mindtorch.tools._library_parts import CHECKS, check as _check, place as _place, settle as _settle, train as _train


@_check("torchvision")
def torchvision():
    """ResNet and Mask R-CNN training steps, nms, roi_align, deformable convolution, v2 transforms, feature extraction"""
    import torch
    import torchvision as tv
    # (One step only: normalization over few values amplifies rounding. In a second step a relative
    # difference of 1e-7 in the weights would become 2e-3 in the gradients.)
    _train(tv.models.resnet18(num_classes=3), (torch.randn(4, 3, 64, 64),), steps=1)
    boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 10, 10], [20, 20, 30, 30]])
    assert tv.ops.nms(boxes, torch.tensor([0.9, 0.8, 0.7]), 0.5).tolist() == [0, 2]
    image = torch.ones(1, 2, 8, 8, requires_grad=True)
    pooled = tv.ops.roi_align(image, [torch.tensor([[0.0, 0, 7, 7]])], (2, 2))
    assert torch.allclose(pooled, torch.ones(1, 2, 2, 2))
    conv = tv.ops.DeformConv2d(2, 3, 3, padding=1)
    _train(conv, (torch.randn(1, 2, 8, 8), torch.randn(1, 18, 8, 8), torch.rand(1, 9, 8, 8)))
    backbone = tv.models.detection.backbone_utils.resnet_fpn_backbone(backbone_name="resnet18", weights=None)
    net = tv.models.detection.MaskRCNN(backbone, 3, min_size=64, max_size=64, rpn_pre_nms_top_n_train=50, rpn_post_nms_top_n_train=20,
                                       box_batch_size_per_image=16)
    masks = torch.zeros(2, 64, 64, dtype=torch.uint8)
    masks[0, 5:40, 8:30] = masks[1, 20:60, 30:62] = 1
    target = {"boxes": torch.tensor([[8.0, 5, 30, 40], [30, 20, 62, 60]]), "labels": torch.tensor([1, 2]), "masks": masks}
    losses = _train(net, ([torch.rand(3, 64, 64)] * 2, [target] * 2), steps=3, loss=lambda parts: sum(parts.values()), lr=1e-4)
    assert losses[-1] < losses[0], losses
    from torchvision.transforms import v2
    out = v2.Compose([v2.Resize(8), v2.RandomHorizontalFlip(1.0), v2.ToDtype(torch.float32, scale=True)])(torch.zeros(3, 16, 16, dtype=torch.uint8))
    assert out.shape == (3, 8, 8)
    from torchvision.models.feature_extraction import create_feature_extractor
    net = create_feature_extractor(tv.models.resnet18(num_classes=3).eval(), ["layer1"])
    features = net(torch.randn(1, 3, 32, 32))
    assert features["layer1"].shape == (1, 64, 8, 8)


@_check("timm")
def timm():
    """convnext, ViT and EfficientNet training steps, a scheduler, one of its optimizers"""
    import timm.optim
    import timm.scheduler
    import torch
    for name, options in (("convnext_atto", {}), ("vit_tiny_patch16_224", {"img_size": 64}), ("efficientnet_b0", {})):
        _train(timm.create_model(name, num_classes=3, **options), (torch.randn(4, 3, 64, 64),))
    model = timm.create_model("resnet10t", num_classes=2)
    opt = timm.optim.create_optimizer_v2(model, opt="lamb", lr=1e-3)
    model(torch.randn(4, 3, 64, 64)).sum().backward()
    opt.step()
    sched, _ = timm.scheduler.create_scheduler_v2(opt, sched="cosine", num_epochs=3)
    sched.step(1)


@_check("transformers")
def transformers():
    """BERT and Llama: training step, save_pretrained and from_pretrained, generate"""
    import torch
    import transformers as tf
    ids = torch.randint(0, 50, (2, 7))
    bert = tf.BertForSequenceClassification(tf.BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32))
    _train(bert, (ids,), loss=lambda o: o.logits.pow(2).mean())
    llama = tf.LlamaForCausalLM(tf.LlamaConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
                                               intermediate_size=32, max_position_embeddings=32))
    llama(ids, labels=ids).loss.backward()
    written = llama.generate(ids, max_new_tokens=3, do_sample=False, pad_token_id=0)
    assert written.shape == (2, 10)
    with tempfile.TemporaryDirectory() as d:
        llama.save_pretrained(d)
        again = tf.AutoModelForCausalLM.from_pretrained(d)
    assert torch.allclose(again(ids).logits, llama(ids).logits, atol=1e-5)


@_check("lightning")
def lightning():
    """Trainer.fit, checkpoint, test"""
    import lightning as L
    _trainer(L)


@_check("pytorch-lightning")
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
                            accelerator="cpu" if _place() == "cpu" else "cuda")
        net = Net()
        trainer.fit(net, data)
        trainer.save_checkpoint(d + "/last.ckpt")
        again = Net.load_from_checkpoint(d + "/last.ckpt", weights_only=False)
        trainer.test(net, data, verbose=False)
    assert torch.equal(again.lin.weight, net.lin.weight) and "loss" in trainer.callback_metrics


@_check("torchmetrics")
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


@_check("einops")
def einops():
    """rearrange, reduce, einsum, layers"""
    import torch
    from einops import einsum, pack, rearrange, reduce, repeat
    from einops.layers.torch import EinMix, Rearrange
    x = torch.randn(2, 3, 4, requires_grad=True)
    reduce(repeat(rearrange(x, "a b c -> (a b) c"), "n c -> n c k", k=2), "n c k -> c", "mean").sum().backward()
    assert x.grad.shape == x.shape and pack([x, x], "* b c")[0].shape == (4, 3, 4)
    products = einsum(x, x, "a b c, a d c -> a b d")
    assert products.shape == (2, 3, 3)
    _train(torch.nn.Sequential(EinMix("a b c -> a b d", weight_shape="c d", c=4, d=5), Rearrange("a b d -> a (b d)")), (x.detach(),))


@_check("vit-pytorch", "einops")
def vit_pytorch():
    """ViT, SimpleViT, MAE training steps"""
    import torch
    from vit_pytorch import MAE, SimpleViT, ViT
    vit = ViT(image_size=16, patch_size=4, num_classes=3, dim=16, depth=1, heads=2, mlp_dim=16)
    _train(vit, (torch.randn(2, 3, 16, 16),))
    _train(SimpleViT(image_size=16, patch_size=4, num_classes=3, dim=16, depth=1, heads=2, mlp_dim=16), (torch.randn(2, 3, 16, 16),))
    encoder = ViT(image_size=16, patch_size=4, num_classes=3, dim=16, depth=1, heads=2, mlp_dim=16, pool="mean")
    _train(MAE(encoder=encoder, masking_ratio=0.75, decoder_dim=16, decoder_depth=1), (torch.randn(2, 3, 16, 16),))


@_check("x-transformers", "einops", "einx", "loguru")
def x_transformers():
    """decoder training step, generate"""
    import torch
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper
    net = AutoregressiveWrapper(TransformerWrapper(num_tokens=20, max_seq_len=16, attn_layers=Decoder(dim=16, depth=1, heads=2, rotary_pos_emb=True)))
    _train(net, (torch.randint(0, 20, (2, 10)),))
    written = net.generate(torch.zeros(1, 1, dtype=torch.long), 4)
    assert written.shape == (1, 4)


@_check("torchdiffeq")
def torchdiffeq():
    """odeint with dopri5 and rk4, the adjoint method's gradients"""
    import torch
    from torchdiffeq import odeint, odeint_adjoint
    t = torch.linspace(0, 1, 5, dtype=torch.float64)  # (in float32 rounding decides the step size)
    for method in ("dopri5", "rk4"):
        y = odeint(lambda t, y: -y, torch.ones(1, dtype=torch.float64), t, method=method)
        assert torch.allclose(y[-1], torch.exp(-torch.ones(1, dtype=torch.float64)), atol=1e-3)

    class F(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = torch.nn.Linear(2, 2)

        def forward(self, t, y):
            return self.lin(y)
    f = F()
    odeint_adjoint(f.double(), torch.ones(3, 2, dtype=torch.float64), t)[-1].sum().backward()
    assert f.lin.weight.grad is not None


@_check("torchsde", "trampoline")
def torchsde():
    """sdeint, gradients"""
    import torch
    import torchsde

    class S(torch.nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def __init__(self):
            super().__init__()
            self.a = torch.nn.Parameter(torch.ones(1))

        def f(self, t, y):
            return -self.a * y

        def g(self, t, y):
            return 0.1 * torch.ones_like(y)
    s = S()
    ys = torchsde.sdeint(s, torch.ones(3, 2), torch.linspace(0, 1, 4), method="euler", dt=0.1)
    ys.sum().backward()
    assert ys.shape == (4, 3, 2) and s.a.grad is not None


@_check("torch-geometric")
def torch_geometric():
    """GCN, GAT, SAGE and GIN training steps, batches of graphs, pooling"""
    import torch
    from torch_geometric.data import Batch, Data
    from torch_geometric.loader import DataLoader
    from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, global_mean_pool
    edges = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]])
    x = torch.randn(4, 5)
    for conv in (GCNConv(5, 3), GATConv(5, 3, heads=2), SAGEConv(5, 3), GINConv(torch.nn.Linear(5, 3))):
        _train(conv, (x, edges))
    batch = Batch.from_data_list([Data(x=x, edge_index=edges), Data(x=x[:3], edge_index=edges[:, :2])])
    pooled = global_mean_pool(batch.x, batch.batch)
    assert pooled.shape == (2, 5)
    assert sum(b.num_graphs for b in DataLoader([Data(x=x, edge_index=edges)] * 5, batch_size=2)) == 5


@_check("accelerate")
def accelerate():
    """training loop, gradient accumulation, empty weights"""
    import torch
    from accelerate import Accelerator, init_empty_weights
    acc = Accelerator(cpu=_place() == "cpu", gradient_accumulation_steps=2)
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


@_check("peft", "transformers", "accelerate")
def peft():
    """LoRA on a tiny BERT: training step, merge, save and load"""
    import torch
    import transformers as tf
    from peft import LoraConfig, PeftModel, get_peft_model
    base = tf.BertModel(tf.BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32))
    model = get_peft_model(base, LoraConfig(r=2, target_modules=["query", "value"]))
    ids = torch.randint(0, 50, (2, 5))
    _train(model, (ids,), loss=lambda o: o.last_hidden_state.pow(2).mean())
    assert all(p.grad is None for n, p in model.named_parameters() if "lora" not in n)
    with tempfile.TemporaryDirectory() as d:
        model.save_pretrained(d)
        again = PeftModel.from_pretrained(tf.BertModel(base.config), d)
    assert again is not None
    model.merge_and_unload()


@_check("trl", "transformers", "accelerate", "datasets")
def trl():
    """SFTTrainer and DPOTrainer on a tiny Llama, a tokenizer created in memory"""
    import datasets
    import torch
    import transformers as tf
    from tokenizers import Tokenizer, models, pre_tokenizers
    from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer
    words = Tokenizer(models.WordLevel({w: i for i, w in enumerate(["<pad>", "</s>", *"abcdefghij"])}, unk_token="a"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = tf.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="</s>")
    config = tf.LlamaConfig(vocab_size=12, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
                            intermediate_size=32, max_position_embeddings=32)
    told = dict(max_steps=2, logging_steps=1, report_to=[], per_device_train_batch_size=2, save_strategy="no", disable_tqdm=True,
                use_cpu=_place() == "cpu", bf16=False)
    with tempfile.TemporaryDirectory() as d:
        rows = datasets.Dataset.from_dict({"text": ["a b c d", "d e f", "g h i j a", "b b c"]})
        model, other = tf.LlamaForCausalLM(config), tf.LlamaForCausalLM(config)
        tuned = SFTTrainer(model=model, args=SFTConfig(d, max_length=8, **told), train_dataset=rows, processing_class=tokenizer)
        tuned.train()
        rows = datasets.Dataset.from_dict({"prompt": ["a b ", "c d "] * 2, "chosen": ["e f"] * 4, "rejected": ["g h i"] * 4})
        preferred = DPOTrainer(model=model, ref_model=other, args=DPOConfig(d, max_length=10, **told), train_dataset=rows, processing_class=tokenizer)
        preferred.train()
    for trainer in (tuned, preferred):
        losses = [h["loss"] for h in trainer.state.log_history if "loss" in h]
        assert len(losses) == 2 and all(v == v for v in losses)
    assert isinstance(tuned.model.lm_head.weight, torch.Tensor)


@_check("diffusers", "transformers")
def diffusers():
    """UNet2D training step with a DDPM scheduler, a DDIM step, AutoencoderKL"""
    import torch
    from diffusers import AutoencoderKL, DDIMScheduler, DDPMScheduler, UNet2DModel
    net = UNet2DModel(sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4,
                      down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"))
    x, noise, t = torch.randn(2, 1, 8, 8), torch.randn(2, 1, 8, 8), torch.tensor([3, 7])
    noisy = DDPMScheduler(num_train_timesteps=10).add_noise(x, noise, t)
    _train(net, (noisy, t), loss=lambda o: (o.sample - noise).pow(2).mean())
    s = DDIMScheduler(num_train_timesteps=10)
    s.set_timesteps(2)
    with torch.no_grad():
        before = s.step(net(x, 3).sample, 5, x).prev_sample
    assert before.shape == x.shape
    vae = AutoencoderKL(block_out_channels=(8,), norm_num_groups=4, latent_channels=2)
    _train(vae, (torch.randn(1, 3, 8, 8),), loss=lambda o: o.sample.pow(2).mean())


@_check("safetensors")
def safetensors():
    """save and load, shared tensors, lazy slices"""
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file, load_model, save_file, save_model
    with tempfile.TemporaryDirectory() as d:
        t = {"a": torch.randn(3, 4), "b": torch.arange(5), "c": torch.ones(2, dtype=torch.bfloat16), "d": torch.tensor(True)}
        save_file(t, d + "/t.safetensors")
        back = load_file(d + "/t.safetensors", device=_place())
        assert all(torch.equal(t[k], back[k]) and t[k].dtype == back[k].dtype for k in t)
        with safe_open(d + "/t.safetensors", "pt", device=_place()) as f:
            assert torch.equal(f.get_slice("a")[1:], t["a"][1:])
        m = torch.nn.Linear(2, 3)
        save_model(m, d + "/m.safetensors")
        n = torch.nn.Linear(2, 3)
        load_model(n, d + "/m.safetensors", device=_place())
        assert torch.equal(m.weight, n.weight)


@_check("kornia", "kornia_rs")
def kornia():
    """filters, augmentation, geometry"""
    import kornia as K
    import torch
    x = torch.rand(1, 3, 16, 16, requires_grad=True)
    K.filters.gaussian_blur2d(x, (3, 3), (1.0, 1.0)).sum().backward()
    grey, turned = K.color.rgb_to_grayscale(x), K.geometry.rotate(x, torch.tensor([30.0]))
    assert x.grad is not None and grey.shape == (1, 1, 16, 16) and turned.shape == x.shape
    flipped = K.augmentation.AugmentationSequential(K.augmentation.RandomHorizontalFlip(p=1.0), data_keys=["input"])(x)
    assert flipped.shape == x.shape


@_check("segmentation-models-pytorch", "timm", "torchvision")
def segmentation_models_pytorch():
    """Unet and FPN training steps with a Dice loss"""
    import segmentation_models_pytorch as smp
    import torch
    y = torch.randint(0, 2, (4, 1, 64, 64)).float()
    for make in (smp.Unet, smp.FPN):
        _train(make("resnet18", encoder_weights=None, classes=1), (torch.randn(4, 3, 64, 64),), loss=lambda o: smp.losses.DiceLoss("binary")(o, y))


@_check("pytorch-ignite")
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


@_check("gpytorch", "linear_operator", "jaxtyping")
def gpytorch():
    """exact GP: marginal likelihood, its gradient, prediction"""
    import gpytorch
    import torch
    x = torch.linspace(0, 1, 10)
    y = torch.sin(x * 6)

    class GP(gpytorch.models.ExactGP):
        def __init__(self, lik):
            super().__init__(x, y, lik)
            self.mean, self.cov = gpytorch.means.ConstantMean(), gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.cov(x))
    lik = gpytorch.likelihoods.GaussianLikelihood()
    gp = GP(lik)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(lik, gp)
    opt = torch.optim.Adam(gp.parameters(), 0.1)
    for _ in range(3):
        opt.zero_grad()
        loss = -mll(gp(x), y)
        loss.backward()
        opt.step()
    gp.eval()
    lik.eval()
    with torch.no_grad():
        foretold = lik(gp(torch.tensor([0.5])))
        mean, variance = foretold.mean, foretold.variance
    assert torch.isfinite(mean).all() and (variance > 0).all()


@_check("botorch", "gpytorch", "linear_operator", placed=True)
def botorch():
    """SingleTaskGP, expected improvement optimised"""
    import torch
    from botorch.acquisition import LogExpectedImprovement
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf
    x = torch.rand(6, 1, dtype=torch.float64, device=_place())
    gp = SingleTaskGP(x, (x * 6).sin())
    ei = LogExpectedImprovement(gp, best_f=0.5)
    point, _ = optimize_acqf(ei, torch.tensor([[0.0], [1.0]], dtype=torch.float64, device=_place()), q=1, num_restarts=2, raw_samples=4)
    assert point.shape == (1, 1)


@_check("pyro-ppl", "pyro-api")
def pyro_ppl():
    """SVI with an automatic guide, importance of samples"""
    import pyro
    import pyro.distributions as dist
    import torch
    from pyro.infer import SVI, Trace_ELBO
    from pyro.infer.autoguide import AutoNormal
    data = torch.randn(20) + 3

    def model():
        mu = pyro.sample("mu", dist.Normal(0.0, 10.0))
        with pyro.plate("d", 20):
            pyro.sample("x", dist.Normal(mu, 1.0), obs=data)
    svi = SVI(model, AutoNormal(model), pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())
    losses = [svi.step() for _ in range(30)]
    assert losses[-1] < losses[0]


@_check("sentence-transformers", "transformers")
def sentence_transformers():
    """encode with a tiny BERT and mean pooling"""
    import torch
    import transformers as tf
    from sentence_transformers import SentenceTransformer, models
    with tempfile.TemporaryDirectory() as d:
        with open(d + "/vocab.txt", "w") as f:
            f.write("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"]))
        tf.BertTokenizer(d + "/vocab.txt").save_pretrained(d)
        tf.BertModel(tf.BertConfig(vocab_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)).save_pretrained(d)
        word = models.Transformer(d)
        model = SentenceTransformer(modules=[word, models.Pooling(16)], device=_place())
    e = model.encode(["a b", "c"], convert_to_tensor=True)
    assert e.shape == (2, 16) and torch.isfinite(e).all()


@_check("open_clip_torch", "timm", "ftfy")
def open_clip_torch():
    """a tiny CLIP: contrastive training step"""
    import open_clip
    import torch
    from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg
    net = CLIP(8, CLIPVisionCfg(layers=1, width=16, head_width=8, patch_size=8, image_size=16),
               CLIPTextCfg(context_length=8, vocab_size=20, width=16, heads=2, layers=1))
    loss = open_clip.ClipLoss()
    _train(net, (torch.randn(2, 3, 16, 16), torch.randint(0, 20, (2, 8))), loss=lambda o: loss(*o[:3]))


@_check("monai", placed=True)
def monai():
    """UNet and Dice loss training step, transforms, sliding window inference"""
    import torch
    from monai.inferers import sliding_window_inference
    from monai.losses import DiceLoss
    from monai.networks.nets import UNet
    from monai.transforms import Compose, RandFlip, Resize, Rotate90, ScaleIntensity
    net = UNet(spatial_dims=2, in_channels=1, out_channels=2, channels=(4, 8), strides=(2,)).to(_place())
    y = torch.randint(0, 2, (1, 1, 16, 16), device=_place())
    _train(net, (torch.randn(1, 1, 16, 16, device=_place()),), loss=lambda o: DiceLoss(to_onehot_y=True, softmax=True)(o, y))
    inferred = sliding_window_inference(torch.randn(1, 1, 24, 24, device=_place()), (16, 16), 1, net)
    changed = Compose([ScaleIntensity(), RandFlip(prob=1.0), Rotate90(), Resize((6, 5))])(torch.randn(1, 8, 8, device=_place()))
    assert inferred.shape == (1, 2, 24, 24) and changed.shape == (1, 6, 5)


@_check("skorch")
def skorch():
    """NeuralNetClassifier.fit, predict, pickled"""
    import pickle
    import numpy as np
    import torch
    from skorch import NeuralNetClassifier
    net = NeuralNetClassifier(torch.nn.Linear, module__in_features=4, module__out_features=2, criterion=torch.nn.CrossEntropyLoss, max_epochs=2, verbose=0,
                              device=_place())
    x, y = np.random.randn(20, 4).astype(np.float32), np.random.randint(0, 2, 20)
    net.fit(x, y)
    chances = pickle.loads(pickle.dumps(net)).predict_proba(x)
    assert chances.shape == (20, 2)


@_check("e3nn", "opt_einsum_fx", "sympy")
def e3nn():
    """irreps, spherical harmonics, a tensor product's training step"""
    import torch
    from e3nn import o3
    sh = o3.spherical_harmonics([0, 1, 2], torch.randn(5, 3), normalize=True)
    assert sh.shape == (5, 9)
    tp = o3.FullyConnectedTensorProduct("4x0e+2x1o", "1x0e+1x1o", "3x0e+1x1o")
    _train(tp, (torch.randn(5, 10), torch.randn(5, 4)))


@_check("lion-pytorch")
def lion_pytorch():
    """Lion steps"""
    import torch
    from lion_pytorch import Lion
    m = torch.nn.Linear(3, 1)
    opt = Lion(m.parameters(), lr=1e-2)
    before = m.weight.detach().clone()
    m(torch.ones(2, 3)).sum().backward()
    opt.step()
    assert torch.allclose((m.weight - before).abs(), torch.full_like(before, 1e-2), atol=1e-6)


@_check("schedulefree")
def schedulefree():
    """AdamWScheduleFree, train and eval weights"""
    import schedulefree
    import torch
    m = torch.nn.Linear(3, 1)
    opt = schedulefree.AdamWScheduleFree(m.parameters(), lr=0.1)
    opt.train()
    for _ in range(3):
        opt.zero_grad()
        m(torch.ones(2, 3)).pow(2).sum().backward()
        opt.step()
    opt.eval()
    assert torch.isfinite(m.weight).all()


@_check("pytorch-metric-learning")
def pytorch_metric_learning():
    """triplet and NT-Xent losses with a miner"""
    import torch
    from pytorch_metric_learning import losses, miners
    e = torch.randn(8, 4, requires_grad=True)
    y = torch.arange(8) // 2
    loss = losses.TripletMarginLoss()(e, y, miners.MultiSimilarityMiner()(e, y)) + losses.NTXentLoss()(e, y)
    loss.backward()
    assert e.grad.abs().sum() > 0


@_check("torchinfo")
def torchinfo():
    """summary of a network"""
    import torch
    from torchinfo import summary
    s = summary(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()), (1, 3, 8, 8), verbose=0)
    params, products = s.total_params, s.total_mult_adds
    assert params == 112 and products == 4 * 28 * 36


@_check("fvcore", "iopath", "yacs")
def fvcore():
    """focal loss, parameter counts"""
    import torch
    from fvcore.nn import parameter_count, sigmoid_focal_loss_jit
    assert parameter_count(torch.nn.Linear(3, 4))[""] == 16
    loss = sigmoid_focal_loss_jit(torch.zeros(2), torch.ones(2), 0.25, 2, "mean")
    assert loss.item() > 0


@_check("fastai", "fastcore", "fastprogress")
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


@_check("entmax")
def entmax():
    """sparsemax and entmax with gradients"""
    import torch
    from entmax import entmax15, sparsemax
    x = torch.tensor([[1.0, 2.0, 0.1]], requires_grad=True)
    p = sparsemax(x, dim=-1) + entmax15(x, dim=-1)
    assert abs(p.sum().item() - 2) < 1e-5
    p[0, 0].backward()


@_check("tensordict")
def tensordict():
    """TensorDict: stack, index, a training loop of TensorDictModules, to_module under vmap"""
    import torch
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule, TensorDictSequential
    td = TensorDict({"a": torch.zeros(3, 2), "b": {"c": torch.ones(3)}}, batch_size=[3])
    assert td[0]["b", "c"].item() == 1 and torch.stack([td, td]).shape == (2, 3)
    assert td.apply(lambda x: x + 1)["a"].sum().item() == 6
    x = torch.randn(64, 4)
    data = TensorDict({"x": x, "t": x.sum(1, keepdim=True)}, batch_size=[64])
    net = TensorDictSequential(TensorDictModule(torch.nn.Linear(4, 8), in_keys=["x"], out_keys=["h"]),
                               TensorDictModule(torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Linear(8, 1)), in_keys=["h"], out_keys=["y"]))
    optimizer, losses = torch.optim.Adam(net.parameters(), lr=1e-2), []
    for _ in range(10):
        for start in range(0, 64, 16):
            batch = net(data[start:start + 16].clone())
            loss = ((batch["y"] - batch["t"]) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert sum(losses[-4:]) < sum(losses[:4]) / 2
    several, module = [torch.nn.Linear(4, 2) for _ in range(3)], torch.nn.Linear(4, 2)

    def call(x, params):
        with params.to_module(module):
            return module(x)
    y = torch.vmap(call, (None, 0))(x, TensorDict.from_modules(*several))
    assert torch.allclose(y, torch.stack([m(x) for m in several]), atol=1e-6)
    assert torch.vmap(lambda t: t.apply(lambda v: v * 2))(data)["x"].shape == (64, 4)


@_check("pytorch-tabnet")
def pytorch_tabnet():
    """TabNetClassifier.fit"""
    import numpy as np
    from pytorch_tabnet.tab_model import TabNetClassifier
    x, y = np.random.randn(64, 5).astype(np.float32), np.random.randint(0, 2, 64)
    net = TabNetClassifier(verbose=0, device_name=_place(), n_d=4, n_a=4)
    net.fit(x, y, max_epochs=1, batch_size=32, virtual_batch_size=16)
    chances = net.predict_proba(x)
    assert chances.shape == (64, 2)


@_check("denoising-diffusion-pytorch", "einops", "ema_pytorch", "accelerate")
def denoising_diffusion_pytorch():
    """Unet and GaussianDiffusion: training step, sampling"""
    import torch
    from denoising_diffusion_pytorch import GaussianDiffusion, Unet
    d = GaussianDiffusion(Unet(dim=8, dim_mults=(1, 2), flash_attn=False), image_size=8, timesteps=4)
    _train(d, (torch.rand(2, 3, 8, 8),))
    sampled = d.sample(batch_size=1)
    assert sampled.shape == (1, 3, 8, 8)


@_check("vector-quantize-pytorch", "einops", "einx")
def vector_quantize_pytorch():
    """VQ, FSQ and LFQ training steps"""
    import torch
    from vector_quantize_pytorch import FSQ, ResidualVQ, VectorQuantize
    x = torch.randn(2, 6, 8, requires_grad=True)
    for q in (VectorQuantize(dim=8, codebook_size=4), ResidualVQ(dim=8, codebook_size=4, num_quantizers=2), FSQ([3, 3], dim=8)):
        out = q(x)
        out[0].sum().backward()
        assert out[0].shape == x.shape


@_check("captum")
def captum():
    """IntegratedGradients, Saliency, GradientShap"""
    import torch
    from captum.attr import GradientShap, IntegratedGradients, Saliency
    m = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    x = torch.randn(2, 3)
    a, b = IntegratedGradients(m).attribute(x, target=1, n_steps=8), Saliency(m).attribute(x, target=0)
    c = GradientShap(m).attribute(x, torch.zeros(2, 3), target=1)
    assert a.shape == b.shape == c.shape


@_check("geoopt")
def geoopt():
    """Poincare ball, RiemannianAdam"""
    import geoopt
    import torch
    p = geoopt.ManifoldParameter(torch.rand(3, 2) * 0.1, manifold=geoopt.PoincareBall())
    opt = geoopt.optim.RiemannianAdam([p], lr=1e-2)
    (p.manifold.dist0(p) - 1).pow(2).sum().backward()
    opt.step()
    assert torch.isfinite(p).all()


@_check("pytorch-msssim")
def pytorch_msssim():
    """SSIM with gradients"""
    import torch
    from pytorch_msssim import ssim
    x = torch.rand(1, 3, 16, 16, requires_grad=True)
    likeness = ssim(x, torch.rand(1, 3, 16, 16), data_range=1.0)
    likeness.backward()
    assert x.grad is not None


@_check("rotary-embedding-torch", "einops")
def rotary_embedding_torch():
    """rotated queries"""
    import torch
    from rotary_embedding_torch import RotaryEmbedding
    turned = RotaryEmbedding(dim=8).rotate_queries_or_keys(torch.randn(1, 2, 5, 8))
    assert turned.shape == (1, 2, 5, 8)


@_check("torch-optimizer", "pytorch_ranger")
def torch_optimizer():
    """several optimizers' steps"""
    import torch
    import torch_optimizer
    nets = []
    for name in ("RAdam", "DiffGrad", "Lamb", "AdaBound", "Yogi"):
        m = torch.nn.Linear(3, 1)
        nets.append(m)
        opt = torch_optimizer.get(name)(m.parameters(), lr=1e-2)
        m(torch.ones(2, 3)).sum().backward()
        opt.step()
        assert torch.isfinite(m.weight).all(), name


@_check("flair", "transformers")
def flair():
    """a sentence, word dropout"""
    import torch
    from flair.data import Sentence
    from flair.nn import LockedDropout
    assert len(Sentence("one two three")) == 3 and LockedDropout(0.5)(torch.ones(1, 2, 3)).shape == (1, 2, 3)


@_check("tensorboardX")
def tensorboardX():
    """SummaryWriter over tensors"""
    import os
    import torch
    from tensorboardX import SummaryWriter
    with tempfile.TemporaryDirectory() as d:
        with SummaryWriter(d) as w:
            w.add_scalar("a", torch.tensor(1.0), 0)
            w.add_histogram("h", torch.randn(10), 0)
            w.add_image("i", torch.rand(3, 4, 4), 0)
        assert os.listdir(d)


@_check("tensorboard")
def tensorboard():
    """SummaryWriter: scalars, histograms, images, a module's graph, hyperparameters, read back"""
    import torch
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter
    assert "tensorboardX" not in SummaryWriter.__module__
    with tempfile.TemporaryDirectory() as d:
        with SummaryWriter(d) as w:
            for step in range(3):
                w.add_scalar("loss", torch.tensor(1.0 / (step + 1)), step)
            w.add_histogram("h", torch.randn(10), 0)
            w.add_image("i", torch.rand(3, 4, 4), 0)
            w.add_graph(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU()), torch.ones(1, 3))
            w.add_hparams({"lr": 0.1}, {"acc": 1.0})
        read = EventAccumulator(d)
        read.Reload()
        assert [(e.step, round(e.value, 3)) for e in read.Scalars("loss")] == [(0, 1.0), (1, 0.5), (2, 0.333)]
        assert len(read.Images("i")) == len(read.Histograms("h")) == 1
        assert "aten::relu" in {n.op for n in read.Graph().node}


def run(name, device="cpu", hook=True):
    """Runs one check in this process, from a fixed seed, with the hook enabled (or, with
    hook=False, with the installed torch). Prints the recorded figures and the kernels that the
    device executed."""
    import importlib
    import json
    if hook:
        importlib.import_module("mindtorch.tools.mstorch_enable")
    _settle(name, device)
    _figures.seed()
    with _figures.Seen(__file__, _library_checks_more.__file__, _library_parts.__file__) as seen:
        CHECKS[name][0]()
    print("FIGURES", json.dumps(seen.calls), flush=True)
    if device != "cpu":
        from mindtorch.core import device_dispatch
        print("ASKED", json.dumps({"kernels": sorted(device_dispatch.called_primitives(device)), "host": sorted(n for kind,
                n in device_dispatch.FALLBACKS if kind == device)}), flush=True)
