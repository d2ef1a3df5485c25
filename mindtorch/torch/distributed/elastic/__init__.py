"""torch.distributed.elastic: names that training scripts take from it."""
