"""Checks of libraries for text: language models, their adapters and fine-tuning, embeddings,
tagging of sequences."""
import tempfile

from library_checks.registry import check, place, train


@check("transformers")
def transformers():
    """BERT and Llama: training step, save_pretrained and from_pretrained, generate"""
    import torch
    import transformers as tf
    ids = torch.randint(0, 50, (2, 7))
    bert = tf.BertForSequenceClassification(tf.BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32))
    train(bert, (ids,), loss=lambda o: o.logits.pow(2).mean())
    llama = tf.LlamaForCausalLM(tf.LlamaConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
                                               intermediate_size=32, max_position_embeddings=32))
    llama(ids, labels=ids).loss.backward()
    written = llama.generate(ids, max_new_tokens=3, do_sample=False, pad_token_id=0)
    assert written.shape == (2, 10)
    with tempfile.TemporaryDirectory() as d:
        llama.save_pretrained(d)
        again = tf.AutoModelForCausalLM.from_pretrained(d)
    assert torch.allclose(again(ids).logits, llama(ids).logits, atol=1e-5)


@check("peft", "transformers", "accelerate")
def peft():
    """LoRA on a tiny BERT: training step, merge, save and load"""
    import torch
    import transformers as tf
    from peft import LoraConfig, PeftModel, get_peft_model
    base = tf.BertModel(tf.BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32))
    model = get_peft_model(base, LoraConfig(r=2, target_modules=["query", "value"]))
    ids = torch.randint(0, 50, (2, 5))
    train(model, (ids,), loss=lambda o: o.last_hidden_state.pow(2).mean())
    assert all(p.grad is None for n, p in model.named_parameters() if "lora" not in n)
    with tempfile.TemporaryDirectory() as d:
        model.save_pretrained(d)
        again = PeftModel.from_pretrained(tf.BertModel(base.config), d)
    assert again is not None
    model.merge_and_unload()


@check("trl", "transformers", "accelerate", "datasets")
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
                use_cpu=place() == "cpu", bf16=False)
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


@check("sentence-transformers", "transformers")
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
        model = SentenceTransformer(modules=[word, models.Pooling(16)], device=place())
    e = model.encode(["a b", "c"], convert_to_tensor=True)
    assert e.shape == (2, 16) and torch.isfinite(e).all()


@check("flair", "transformers")
def flair():
    """a sentence, word dropout"""
    import torch
    from flair.data import Sentence
    from flair.nn import LockedDropout
    assert len(Sentence("one two three")) == 3 and LockedDropout(0.5)(torch.ones(1, 2, 3)).shape == (1, 2, 3)


@check("pytorch-crf")
def pytorch_crf():
    """a conditional random field: likelihood with gradients, the best path"""
    import torch
    from torchcrf import CRF
    crf, mask = CRF(3, batch_first=True), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]], dtype=torch.uint8)
    scores = torch.randn(2, 4, 3, requires_grad=True)
    (-crf(scores, torch.randint(0, 3, (2, 4)), mask=mask)).backward()
    assert scores.grad[1, 2:].abs().sum() == 0 and crf.transitions.grad.abs().sum() > 0
    best = crf.decode(scores, mask=mask)
    assert [len(p) for p in best] == [4, 2]
