"""Checks of libraries for images: classification, detection, segmentation, augmentation,
similarity."""
from library_checks.registry import check, place, train


@check("torchvision")
def torchvision():
    """ResNet and Mask R-CNN training steps, nms, roi_align, deformable convolution, v2 transforms, feature extraction"""
    import torch
    import torchvision as tv
    # (One step only: normalization over few values amplifies rounding. In a second step a relative
    # difference of 1e-7 in the weights would become 2e-3 in the gradients.)
    train(tv.models.resnet18(num_classes=3), (torch.randn(4, 3, 64, 64),), steps=1)
    boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 10, 10], [20, 20, 30, 30]])
    assert tv.ops.nms(boxes, torch.tensor([0.9, 0.8, 0.7]), 0.5).tolist() == [0, 2]
    image = torch.ones(1, 2, 8, 8, requires_grad=True)
    pooled = tv.ops.roi_align(image, [torch.tensor([[0.0, 0, 7, 7]])], (2, 2))
    assert torch.allclose(pooled, torch.ones(1, 2, 2, 2))
    conv = tv.ops.DeformConv2d(2, 3, 3, padding=1)
    train(conv, (torch.randn(1, 2, 8, 8), torch.randn(1, 18, 8, 8), torch.rand(1, 9, 8, 8)))
    backbone = tv.models.detection.backbone_utils.resnet_fpn_backbone(backbone_name="resnet18", weights=None)
    net = tv.models.detection.MaskRCNN(backbone, 3, min_size=64, max_size=64, rpn_pre_nms_top_n_train=50, rpn_post_nms_top_n_train=20,
                                       box_batch_size_per_image=16)
    masks = torch.zeros(2, 64, 64, dtype=torch.uint8)
    masks[0, 5:40, 8:30] = masks[1, 20:60, 30:62] = 1
    target = {"boxes": torch.tensor([[8.0, 5, 30, 40], [30, 20, 62, 60]]), "labels": torch.tensor([1, 2]), "masks": masks}
    losses = train(net, ([torch.rand(3, 64, 64)] * 2, [target] * 2), steps=3, loss=lambda parts: sum(parts.values()), lr=1e-4)
    assert losses[-1] < losses[0], losses
    from torchvision.transforms import v2
    out = v2.Compose([v2.Resize(8), v2.RandomHorizontalFlip(1.0), v2.ToDtype(torch.float32, scale=True)])(torch.zeros(3, 16, 16, dtype=torch.uint8))
    assert out.shape == (3, 8, 8)
    from torchvision.models.feature_extraction import create_feature_extractor
    net = create_feature_extractor(tv.models.resnet18(num_classes=3).eval(), ["layer1"])
    features = net(torch.randn(1, 3, 32, 32))
    assert features["layer1"].shape == (1, 64, 8, 8)


@check("timm")
def timm():
    """convnext, ViT and EfficientNet training steps, a scheduler, one of its optimizers"""
    import timm.optim
    import timm.scheduler
    import torch
    for name, options in (("convnext_atto", {}), ("vit_tiny_patch16_224", {"img_size": 64}), ("efficientnet_b0", {})):
        train(timm.create_model(name, num_classes=3, **options), (torch.randn(4, 3, 64, 64),))
    model = timm.create_model("resnet10t", num_classes=2)
    opt = timm.optim.create_optimizer_v2(model, opt="lamb", lr=1e-3)
    model(torch.randn(4, 3, 64, 64)).sum().backward()
    opt.step()
    sched, _ = timm.scheduler.create_scheduler_v2(opt, sched="cosine", num_epochs=3)
    sched.step(1)


@check("vit-pytorch", "einops")
def vit_pytorch():
    """ViT, SimpleViT, MAE training steps"""
    import torch
    from vit_pytorch import MAE, SimpleViT, ViT
    vit = ViT(image_size=16, patch_size=4, num_classes=3, dim=16, depth=1, heads=2, mlp_dim=16)
    train(vit, (torch.randn(2, 3, 16, 16),))
    train(SimpleViT(image_size=16, patch_size=4, num_classes=3, dim=16, depth=1, heads=2, mlp_dim=16), (torch.randn(2, 3, 16, 16),))
    encoder = ViT(image_size=16, patch_size=4, num_classes=3, dim=16, depth=1, heads=2, mlp_dim=16, pool="mean")
    train(MAE(encoder=encoder, masking_ratio=0.75, decoder_dim=16, decoder_depth=1), (torch.randn(2, 3, 16, 16),))


@check("efficientnet-pytorch")
def efficientnet_pytorch():
    """EfficientNet-B0's training step"""
    import torch
    from efficientnet_pytorch import EfficientNet
    train(EfficientNet.from_name("efficientnet-b0", num_classes=3, image_size=64), (torch.randn(4, 3, 64, 64),))


@check("segmentation-models-pytorch", "timm", "torchvision")
def segmentation_models_pytorch():
    """Unet and FPN training steps with a Dice loss"""
    import segmentation_models_pytorch as smp
    import torch
    y = torch.randint(0, 2, (4, 1, 64, 64)).float()
    # A change of the input by 1e-7 changes the Unet's gradients by up to 1%: in float32, PyTorch's
    # own differ that much between processors.
    for make, dtype in ((smp.Unet, torch.float64), (smp.FPN, torch.float32)):
        train(make("resnet18", encoder_weights=None, classes=1).to(dtype), (torch.randn(4, 3, 64, 64, dtype=dtype),),
              loss=lambda o: smp.losses.DiceLoss("binary")(o, y.to(o.dtype)))


@check("segment-anything", "torchvision", placed=True)
def segment_anything():
    """a small image encoder and mask decoder: boxes to masks, training step"""
    import torch
    from segment_anything.modeling import ImageEncoderViT, MaskDecoder, PromptEncoder, Sam, TwoWayTransformer
    sam = Sam(ImageEncoderViT(img_size=32, patch_size=8, embed_dim=16, depth=1, num_heads=2, out_chans=16, use_rel_pos=True, window_size=2),
              PromptEncoder(embed_dim=16, image_embedding_size=(4, 4), input_image_size=(32, 32), mask_in_chans=4),
              MaskDecoder(transformer_dim=16, transformer=TwoWayTransformer(depth=1, embedding_dim=16, num_heads=2, mlp_dim=16), num_multimask_outputs=3))
    sam.to(place())
    boxes = torch.tensor([[2.0, 2, 20, 20]], device=place())
    with torch.no_grad():
        found = sam([{"image": torch.rand(3, 32, 32, device=place()) * 255, "original_size": (32, 32), "boxes": boxes}], multimask_output=True)[0]
    assert found["masks"].shape == (1, 3, 32, 32) and found["masks"].dtype == torch.bool
    sparse, dense = sam.prompt_encoder(points=None, boxes=boxes[None], masks=None)
    masks, _ = sam.mask_decoder(image_embeddings=sam.image_encoder(torch.randn(1, 3, 32, 32, device=place())), image_pe=sam.prompt_encoder.get_dense_pe(),
                                sparse_prompt_embeddings=sparse, dense_prompt_embeddings=dense, multimask_output=False)
    masks.pow(2).mean().backward()
    assert sam.image_encoder.patch_embed.proj.weight.grad.abs().sum() > 0


@check("open_clip_torch", "timm", "ftfy")
def open_clip_torch():
    """a tiny CLIP: contrastive training step"""
    import open_clip
    import torch
    from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg
    net = CLIP(8, CLIPVisionCfg(layers=1, width=16, head_width=8, patch_size=8, image_size=16),
               CLIPTextCfg(context_length=8, vocab_size=20, width=16, heads=2, layers=1))
    loss = open_clip.ClipLoss()
    train(net, (torch.randn(2, 3, 16, 16), torch.randint(0, 20, (2, 8))), loss=lambda o: loss(*o[:3]))


@check("monai", placed=True)
def monai():
    """UNet and Dice loss training step, transforms, sliding window inference"""
    import torch
    from monai.inferers import sliding_window_inference
    from monai.losses import DiceLoss
    from monai.networks.nets import UNet
    from monai.transforms import Compose, RandFlip, Resize, Rotate90, ScaleIntensity
    net = UNet(spatial_dims=2, in_channels=1, out_channels=2, channels=(4, 8), strides=(2,)).to(place())
    y = torch.randint(0, 2, (1, 1, 16, 16), device=place())
    train(net, (torch.randn(1, 1, 16, 16, device=place()),), loss=lambda o: DiceLoss(to_onehot_y=True, softmax=True)(o, y))
    inferred = sliding_window_inference(torch.randn(1, 1, 24, 24, device=place()), (16, 16), 1, net)
    changed = Compose([ScaleIntensity(), RandFlip(prob=1.0), Rotate90(), Resize((6, 5))])(torch.randn(1, 8, 8, device=place()))
    assert inferred.shape == (1, 2, 24, 24) and changed.shape == (1, 6, 5)


@check("kornia", "kornia_rs")
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


@check("pytorch-msssim")
def pytorch_msssim():
    """SSIM with gradients"""
    import torch
    from pytorch_msssim import ssim
    x = torch.rand(1, 3, 16, 16, requires_grad=True)
    likeness = ssim(x, torch.rand(1, 3, 16, 16), data_range=1.0)
    likeness.backward()
    assert x.grad is not None


@check("lpips", "torchvision", placed=True)
def lpips():
    """perceptual distance of images with a randomly initialized network, with gradients"""
    import torch
    import lpips as library
    distance = library.LPIPS(net="alex", pretrained=False, pnet_rand=True, verbose=False).to(place())
    x = torch.rand(1, 3, 64, 64, device=place(), requires_grad=True)
    d = distance(x, torch.rand(1, 3, 64, 64, device=place()))
    d.sum().backward()
    assert d.shape == (1, 1, 1, 1) and torch.isfinite(x.grad).all()
