#!/usr/bin/env python3
"""A DistributedDataParallel job of four processes under torchrun. recovery.py
starts it and kills its processes, to compare.

    torchrun_job.py --launch mlp|cnn FOLDER   torchrun, which starts four ranks
    torchrun_job.py mlp|cnn FOLDER            one rank

A rank writes the time at which its first step was done to FOLDER/<pid>.step
and continues training.
"""
import os
import sys
import time


def launch(model, folder):
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing import api

    # This version's launcher looks up Std(0) among the members of an IntFlag;
    # Python 3.11 no longer lists it.
    api.Std.from_str = classmethod(lambda cls, value: cls(int(value)))
    run.main(["--standalone", "--nproc_per_node=4", "--max_restarts=1000",
              __file__, model, folder])


def train(name, folder):
    import torch
    import torch.distributed
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from single_worker import make_net

    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.distributed.init_process_group("gloo")
    net, shape, optimizer = make_net(name.upper())
    model = DistributedDataParallel(net)
    images = torch.rand(6400, *shape)
    labels = torch.randint(0, 10, (6400,))
    step = 0
    while True:
        at = step * 64 % 6400
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[at:at + 64]),
                                           labels[at:at + 64])
        loss.backward()
        optimizer.step()
        loss.item()
        step += 1
        if step == 1:
            path = os.path.join(folder, f"{os.getpid()}.step")
            with open(path + ".new", "w") as file:
                file.write(str(time.time()))
            os.rename(path + ".new", path)


if __name__ == "__main__":
    if sys.argv[1] == "--launch":
        launch(*sys.argv[2:])
    else:
        train(*sys.argv[1:])
