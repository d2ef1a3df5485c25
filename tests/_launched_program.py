"""Program that accelerate's launcher starts in several processes (tests/_language_programs.py).

It trains a network on shards of batches, and the first process writes the losses of all. The only
argument is the file for [processes, losses by step and process, sizes of the parameters].
"""
import json
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed

worker = Accelerator(gradient_accumulation_steps=2)
set_seed(0)
x = torch.randn(32, 4)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4)
net, opt, data = worker.prepare(net, torch.optim.AdamW(net.parameters(), 0.05), data)
losses = []
for _ in range(2):
    for a, b in data:
        with worker.accumulate(net):
            loss = torch.nn.functional.mse_loss(net(a), b)
            worker.backward(loss)
            if worker.sync_gradients:
                worker.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
        losses.append(worker.gather(loss.detach().reshape(1)).tolist())
if worker.is_main_process:
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        json.dump([worker.num_processes, losses, [p.detach().abs().mean().item() for p in net.parameters()]], f)
