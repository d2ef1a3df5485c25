"""Small random programs on language model libraries (transformers, peft, trl, accelerate); each
returns a few values.

`python tests/_language_programs.py tests/libraries/language_models.json` records the values with real
PyTorch. tests/libraries/test_language_models.py runs the programs on mindtorch and compares. Every
model is built from a config and a seed, so the values depend on the library versions, which are
recorded too.
"""
import importlib.metadata
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
import transformers as tf

warnings.filterwarnings("ignore")
tf.logging.set_verbosity_error()
tf.logging.disable_progress_bar()

LIBRARIES = ("transformers", "peft", "trl", "accelerate")
WORDS = 64
IDS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
TINY = dict(vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=64, max_position_embeddings=128, **IDS)
PLAIN = {k: v for k, v in TINY.items() if k != "num_key_value_heads"}
ENCODER = {k: v for k, v in PLAIN.items() if not k.endswith("_id")}
CAUSAL = {
    "llama": lambda: tf.LlamaConfig(**TINY), "mistral": lambda: tf.MistralConfig(**TINY, sliding_window=5), "qwen2": lambda: tf.Qwen2Config(**TINY),
    "qwen3": lambda: tf.Qwen3Config(**TINY, head_dim=8), "gemma2": lambda: tf.Gemma2Config(**TINY, head_dim=8, sliding_window=5, query_pre_attn_scalar=8),
    "gemma3": lambda: tf.Gemma3TextConfig(**TINY, head_dim=8, sliding_window=5, query_pre_attn_scalar=8), "phi": lambda: tf.PhiConfig(**TINY),
    "gpt2": lambda: tf.GPT2Config(vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4, n_positions=128, **IDS), "gpt_neox": lambda: tf.GPTNeoXConfig(**PLAIN),
    "mixtral": lambda: tf.MixtralConfig(**TINY, num_local_experts=4, num_experts_per_tok=2), "falcon": lambda: tf.FalconConfig(**PLAIN),
    "mamba": lambda: tf.MambaConfig(vocab_size=WORDS, hidden_size=32, state_size=4, num_hidden_layers=2, **IDS), "bloom": lambda: tf.BloomConfig(**PLAIN),
}
DEVICE = "cpu"


def tokens(rows=2, length=9, seed=7):
    return torch.tensor(np.random.RandomState(seed).randint(3, WORDS, (rows, length)), device=DEVICE)


def causal(name="llama", seed=0, **options):
    torch.manual_seed(seed)
    return tf.AutoModelForCausalLM.from_config(CAUSAL[name](), **options).to(DEVICE)


def size(x):
    """Returns the mean of the absolute values, as a summary of a tensor."""
    return float(x.detach().double().abs().mean())


def slopes(module):
    """Returns the mean absolute gradient of the first parameter, of the last one, and the sum over
    all."""
    found = [size(p.grad) for p in module.parameters() if p.grad is not None]
    return [found[0], found[-1], sum(found)]


def step_and_generate(name):
    model, x = causal(name), tokens()
    torch.manual_seed(1)
    loss = model(x, labels=x).loss
    loss.backward()
    result = [loss.item(), *slopes(model)]
    model.eval()
    mask = torch.ones_like(x)
    mask[0, :3] = 0
    result.append(model.generate(x, max_new_tokens=6, do_sample=False).tolist())
    result.append(model.generate(x * mask, attention_mask=mask, max_new_tokens=6, do_sample=False).tolist())
    torch.manual_seed(3)
    result.append(model.generate(x, max_new_tokens=6, do_sample=True, top_k=20, top_p=0.9, temperature=0.8).tolist())
    return result


def generated(name="llama", rows=2, **options):
    model = causal(name).eval()
    torch.manual_seed(5)
    return model.generate(tokens(rows), max_new_tokens=8, **options).tolist()


def assisted():
    model, draft = causal().eval(), causal().eval()
    with torch.no_grad():
        draft.model.layers[0].mlp.down_proj.weight.mul_(0.5)
    result = []
    for sample in (False, True):
        torch.manual_seed(2)
        result.append(model.generate(tokens(1), assistant_model=draft, max_new_tokens=12, do_sample=sample).tolist())
    return result


def stopped_and_streamed():
    from transformers.generation.streamers import BaseStreamer
    seen = []

    class Streamer(BaseStreamer):
        def put(self, value):
            seen.append(value.cpu().tolist())

        def end(self):
            seen.append(-1)

    def stop(ids, scores, **kwargs):
        return torch.full((ids.shape[0],), ids.shape[1] >= 14, device=ids.device, dtype=torch.bool)

    out = causal().eval().generate(tokens(1), max_new_tokens=20, do_sample=False, stopping_criteria=tf.StoppingCriteriaList([stop]), streamer=Streamer())
    return [out.tolist(), seen]


def attention(name, way):
    model, x = causal(name, attn_implementation=way), tokens()
    mask = torch.ones_like(x)
    mask[0, :3] = 0
    out = model(x, attention_mask=mask, labels=x)
    out.loss.backward()
    return [out.loss.item(), size(out.logits), *slopes(model)]


def pair(make):
    """Runs an encoder-decoder: one step, then greedy decoding, beam search, and a static cache."""
    torch.manual_seed(0)
    model, x = make().to(DEVICE), tokens()
    torch.manual_seed(1)
    loss = model(input_ids=x, labels=tokens(2, 6, 8)).loss
    loss.backward()
    model.eval()
    ways = (dict(do_sample=False), dict(num_beams=3, do_sample=False), dict(do_sample=False, cache_implementation="static"))
    return [loss.item(), *slopes(model), *[model.generate(x, max_new_tokens=6, **w).tolist() for w in ways]]


def step(make, **inputs):
    torch.manual_seed(0)
    model = make().to(DEVICE)
    torch.manual_seed(1)
    loss = model(**{k: v() if callable(v) else v for k, v in inputs.items()}).loss
    loss.backward()
    return [loss.item(), *slopes(model)]


def pixels():
    return torch.tensor(np.random.RandomState(0).randn(2, 3, 16, 16).astype("f"), device=DEVICE)


def clip():
    text = dict(vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_position_embeddings=16, **IDS)
    vision = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=16, patch_size=8)
    return tf.CLIPModel(tf.CLIPConfig(text_config=text, vision_config=vision, projection_dim=16))


def llava():
    vision = tf.CLIPVisionConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=16, patch_size=8)
    return tf.LlavaForConditionalGeneration(tf.LlavaConfig(text_config=CAUSAL["llama"](), vision_config=vision, image_token_index=60, image_token_id=60, vision_feature_layer=-1))


def with_image():
    x = tokens()
    x[x == 60] = 5
    x[:, 1:5] = 60
    return x


class Rows(torch.utils.data.Dataset):
    """Random sentences as token ids, of several lengths."""

    def __init__(self, n=24, several=True):
        g = np.random.RandomState(3)
        self.rows = [g.randint(3, WORDS, 12 - (i % 5 if several else 0)).tolist() for i in range(n)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"input_ids": self.rows[i], "labels": self.rows[i]}


def joined(batch):
    longest = max(len(r["input_ids"]) for r in batch)
    filled = {k: torch.tensor([r[k] + [v] * (longest - len(r[k])) for r in batch]) for k, v in (("input_ids", 0), ("labels", -100))}
    return {**filled, "attention_mask": (filled["labels"] != -100).long()}


def here(**options):
    """Returns the training arguments shared by all trainers, with `options` on top."""
    told = dict(per_device_train_batch_size=4, max_steps=4, logging_steps=1, report_to=[], save_strategy="no", disable_tqdm=True, seed=11, dataloader_pin_memory=False)
    return {**told, **({"use_cpu": True} if DEVICE == "cpu" else {}), **options}


def told(trainer, first=None):
    """Returns losses and gradient norms of the logged steps."""
    return [[round(h[k], 6) for k in ("loss", "grad_norm", "learning_rate", "eval_loss") if k in h] for h in trainer.state.log_history[:-1][:first]]


def trained(make=causal, first=None, weights=True, **options):
    with tempfile.TemporaryDirectory() as folder:
        model = make()
        checked = Rows(8) if "eval_strategy" in options else None
        trainer = tf.Trainer(model=model, args=tf.TrainingArguments(folder, **here(learning_rate=1e-2, **options)), train_dataset=Rows(), eval_dataset=checked, data_collator=joined)
        trainer.train()
        return [told(trainer, first), *([sum(size(p) for p in model.parameters())] if weights else [])]


def resumed():
    with tempfile.TemporaryDirectory() as folder:
        models = []
        for seed, options, at in ((0, dict(save_strategy="steps", save_steps=3), None), (9, {}, folder + "/checkpoint-3")):
            models.append(causal("gpt2", seed))
            arguments = tf.TrainingArguments(folder, **here(learning_rate=1e-2, max_steps=6, **options))
            trainer = tf.Trainer(model=models[-1], args=arguments, train_dataset=Rows(), data_collator=joined)
            trainer.train(resume_from_checkpoint=at)
        apart = max(float((a - b).abs().max()) for a, b in zip(*[list(m.parameters()) for m in models]))
        return [told(trainer), apart < 1e-6]


def adapted(config, merge=True):
    from peft import PeftModel, get_peft_model
    torch.manual_seed(4)
    model, x = get_peft_model(causal(), config()), tokens()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    losses = []
    for _ in range(3):
        loss = model(input_ids=x, attention_mask=torch.ones_like(x), labels=x).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    model.eval()
    result = [losses, sum(p.numel() for p in model.parameters() if p.requires_grad), size(model(input_ids=x).logits)]
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        result.append(size(PeftModel.from_pretrained(causal(), folder).eval()(input_ids=x).logits))
    if merge:
        result.append(size(model.merge_and_unload()(input_ids=x).logits))
    return result


def lora(**options):
    from peft import LoraConfig
    return lambda: LoraConfig(**{**dict(task_type="CAUSAL_LM", r=4, target_modules=["q_proj", "v_proj"]), **options})


def by_peft(name, **options):
    import peft
    return lambda: getattr(peft, name)(task_type="CAUSAL_LM", **options)


def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    words = ["<pad>", "<s>", "</s>", "<unk>"] + [f"w{i}" for i in range(60)]
    made = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tf.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def text(seed, n):
    return " ".join(f"w{i}" for i in np.random.RandomState(seed).randint(0, 60, n))


def tuned(kind, adapter=None, **options):
    import datasets
    import trl
    arguments = here(learning_rate=1e-3, per_device_train_batch_size=2, max_steps=3, bf16=False, **options)
    with tempfile.TemporaryDirectory() as folder:
        if kind == "sft":
            data = datasets.Dataset.from_dict({"text": [text(i, 8 + i % 4) for i in range(12)]})
            made = trl.SFTTrainer(model=causal(), args=trl.SFTConfig(folder, max_length=16, **arguments), train_dataset=data, processing_class=tokenizer(),
                                  peft_config=adapter and adapter())
        else:
            data = datasets.Dataset.from_dict({"prompt": [text(i, 5) + " " for i in range(12)], "chosen": [text(50 + i, 4) for i in range(12)],
                                               "rejected": [text(90 + i, 5) for i in range(12)]})
            made = trl.DPOTrainer(model=causal(), ref_model=None if adapter else causal(), args=trl.DPOConfig(folder, max_length=20, **arguments), train_dataset=data,
                                  processing_class=tokenizer(), peft_config=adapter and adapter())
        made.train()
        return [told(made), sum(size(p) for p in made.model.parameters())]


def launched():
    """Runs two processes with accelerate's launcher.

    On the cpu device that launcher requires MPI for several processes, so torch's launcher starts
    them there.
    """
    mindtorch = [] if "mindtorch.tools.mstorch_enable" not in sys.modules else ["mindtorch", "run", "-m"]
    # A free port: the programs of the other device may run at the same time.
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    launcher = (["torch.distributed.run", "--nproc_per_node", "2", "--master_port", port] if DEVICE == "cpu" else
                ["accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--main_process_port", port])
    here = pathlib.Path(__file__).resolve().parent
    path = os.pathsep.join(p for p in (str(here.parent), os.environ.get("PYTHONPATH")) if p)
    with tempfile.TemporaryDirectory() as folder:
        result = os.path.join(folder, "result.json")
        done = subprocess.run([sys.executable, "-W", "ignore", "-m", *mindtorch, *launcher, str(here / "_launched_program.py"), result], cwd=folder, capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": path, **({"ACCELERATE_USE_CPU": "true"} if DEVICE == "cpu" else {})})
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        with open(result, encoding="utf-8") as f:
            return json.load(f)


def not_installed():
    """Returns the error messages for a quantized model whose quantization library is not installed.
    """
    said = []
    with tempfile.TemporaryDirectory() as folder:
        causal().save_pretrained(folder)
        for options in (dict(load_in_4bit=True), dict(load_in_8bit=True)):
            try:
                tf.AutoModelForCausalLM.from_pretrained(folder, quantization_config=tf.BitsAndBytesConfig(**options))
            except ImportError as e:
                said.append(str(e))
    try:
        tf.TorchAoConfig("int4_weight_only")
    except ValueError as e:
        said.append(str(e))
    return said


PROGRAMS = {
    **{f"model {n}": (lambda n=n: step_and_generate(n)) for n in CAUSAL},
    "beams": lambda: generated(num_beams=4, do_sample=False), "beams sampled": lambda: generated(num_beams=3, do_sample=True),
    "several": lambda: generated(do_sample=True, num_return_sequences=2, min_p=0.02), "penalties": lambda: generated(repetition_penalty=1.3, no_repeat_ngram_size=2, do_sample=False),
    "static cache": lambda: generated(cache_implementation="static", do_sample=False), "static cache, window": lambda: generated("mistral", cache_implementation="static", do_sample=False),
    "no cache": lambda: generated(use_cache=False, do_sample=False), "lookup": lambda: generated(rows=1, prompt_lookup_num_tokens=3, do_sample=False),
    "assisted": assisted, "stopped and streamed": stopped_and_streamed,
    "eager": lambda: attention("gemma2", "eager"), "sdpa": lambda: attention("llama", "sdpa"), "sdpa, window": lambda: attention("mistral", "sdpa"),
    "t5": lambda: pair(lambda: tf.T5ForConditionalGeneration(tf.T5Config(vocab_size=WORDS, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0, **IDS))),
    "bart": lambda: pair(lambda: tf.BartForConditionalGeneration(tf.BartConfig(
        vocab_size=WORDS, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64,
        max_position_embeddings=64, decoder_start_token_id=1, **IDS))),
    "bert": lambda: step(lambda: tf.BertForMaskedLM(tf.BertConfig(**ENCODER)), input_ids=tokens, labels=tokens),
    "roberta": lambda: step(lambda: tf.RobertaForMaskedLM(tf.RobertaConfig(**ENCODER)), input_ids=tokens, labels=tokens),
    "deberta": lambda: step(lambda: tf.DebertaForMaskedLM(tf.DebertaConfig(**ENCODER, relative_attention=True, pos_att_type=["p2c", "c2p"])), input_ids=tokens, labels=tokens),
    "deberta-v2": lambda: step(lambda: tf.DebertaV2ForMaskedLM(tf.DebertaV2Config(**ENCODER, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8)),
                               input_ids=tokens, labels=tokens),
    "clip": lambda: step(clip, input_ids=tokens, pixel_values=pixels, return_loss=True), "llava": lambda: step(llava, input_ids=with_image, pixel_values=pixels, labels=tokens),
    "vit": lambda: step(lambda: tf.ViTForImageClassification(tf.ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=16, patch_size=8)),
                        pixel_values=pixels, labels=lambda: torch.tensor([0, 1], device=DEVICE)),
    "trainer": lambda: trained(eval_strategy="steps", eval_steps=2), "trainer, bf16": lambda: trained(first=3, weights=False, bf16=True),
    "trainer, accumulated": lambda: trained(gradient_accumulation_steps=2), "trainer, smoothed": lambda: trained(label_smoothing_factor=0.1),
    "trainer, checkpointing": lambda: trained(gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": False}),
    "trainer, reentrant checkpointing": lambda: trained(lambda: causal("mixtral"), gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": True}),
    "trainer, by length": lambda: trained(train_sampling_strategy="group_by_length"), "trainer, workers": lambda: trained(dataloader_num_workers=2),
    "trainer, adafactor": lambda: trained(optim="adafactor"), "trainer, cosine": lambda: trained(optim="sgd", lr_scheduler_type="cosine", warmup_steps=2),
    "trainer, compiled": lambda: trained(torch_compile=True, torch_compile_backend="eager"), "trainer, resumed": resumed,
    "launched": launched, "not installed": not_installed, "lora": lambda: adapted(lora()), "dora": lambda: adapted(lora(use_dora=True)), "pissa": lambda: adapted(lora(init_lora_weights="pissa")),
    "ia3": lambda: adapted(by_peft("IA3Config", target_modules=["k_proj", "v_proj", "down_proj"], feedforward_modules=["down_proj"])),
    "prefix": lambda: adapted(by_peft("PrefixTuningConfig", num_virtual_tokens=3), merge=False), "prompt": lambda: adapted(by_peft("PromptTuningConfig", num_virtual_tokens=3), merge=False),
    "sft": lambda: tuned("sft"), "sft, lora": lambda: tuned("sft", lora()), "sft, packed": lambda: tuned("sft", packing=True), "dpo": lambda: tuned("dpo"), "dpo, lora": lambda: tuned("dpo", lora()),
}


def versions():
    return {n: importlib.metadata.version(n) for n in LIBRARIES}


def results(names):
    return {"versions": versions(), "programs": {n: PROGRAMS[n]() for n in names}}


if __name__ == "__main__":
    found = results(sys.argv[2:] or PROGRAMS)
    # only some programs ran: keep the other results
    if sys.argv[2:] and os.path.exists(sys.argv[1]):
        with open(sys.argv[1], encoding="utf-8") as f:
            before = json.load(f)
        assert before["versions"] == found["versions"], "the other results are from other library versions"
        found["programs"] = {n: {**before["programs"], **found["programs"]}[n] for n in PROGRAMS if n in before["programs"] or n in found["programs"]}
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        f.write("{\n" + f'"versions": {json.dumps(found["versions"])},\n"programs": {{\n'
                + ",\n".join(f"{json.dumps(n)}: {json.dumps(r)}" for n, r in found["programs"].items()) + "\n}\n}\n")
