"""torch.distributed.elastic: the part of the package that training scripts import."""
