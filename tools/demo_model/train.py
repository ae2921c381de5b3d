"""Train the demo model on the CPU within a time budget.

AdamW with linear warm-up and a cosine decay that ends with the budget: the
learning rate follows the larger of elapsed time / --minutes and step / --steps.
Each epoch cuts the training tokens at a new random offset and shuffles the
windows. The state with the lowest validation loss goes to RUN/best.pt, the
latest one to RUN/last.pt, the log to RUN/log.txt.

Run:
    python train.py --corpus WORK/corpus --tokenizer WORK/tokenizer.json \
        --run WORK/run --minutes 73

The defaults are the values that the demo model was trained with.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import time

import torch
from tokenizers import Tokenizer
from torch.nn import functional as F

from model import Config, LanguageModel

NO_DECAY = ("A_log", "D", "dt_bias", "bias", "norm.weight", "norm_f.weight", "embeddings.weight")


def load_tokens(corpus, tokenizer, part):
    """Return one id tensor; each piece is preceded by token 0."""
    ids = []
    for text in json.loads((pathlib.Path(corpus) / f"{part}.json").read_text()):
        ids += [0] + tokenizer.encode(text).ids
    return torch.tensor(ids)


def batches(tokens, length, size, generator):
    """Yield (inputs, targets) without end."""
    while True:
        start = int(torch.randint(length, (1,), generator=generator))
        count = (len(tokens) - 1 - start) // length
        order = torch.randperm(count, generator=generator)
        for rows in order[: count - count % size].view(-1, size):
            index = start + rows[:, None] * length + torch.arange(length + 1)
            window = tokens[index]
            yield window[:, :-1], window[:, 1:]


def loss_of(model, inputs, targets, autocast):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        logits = model(inputs)
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


@torch.no_grad()
def validate(model, tokens, autocast, length=512, size=8):
    """Mean loss in nats per token over consecutive windows."""
    model.eval()
    count = (len(tokens) - 1) // length
    inputs = tokens[: count * length].view(count, length)
    targets = tokens[1 : count * length + 1].view(count, length)
    total = 0.0
    for i in range(0, count, size):
        part = inputs[i : i + size]
        total += loss_of(model, part, targets[i : i + size], autocast).item() * len(part)
    model.train()
    return total / count


def make_optimizer(model, args):
    decay, keep = [], []
    for name, parameter in model.named_parameters():
        (keep if name.endswith(NO_DECAY) else decay).append(parameter)
    groups = [{"params": decay, "weight_decay": args.weight_decay}]
    groups.append({"params": keep, "weight_decay": 0.0})
    return torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95), fused=True)


def rate(step, done, args):
    """Learning rate for this step when a share `done` of the run is over."""
    warm = min(1.0, (step + 1) / args.warmup)
    low = 0.02
    return args.lr * warm * (low + (1 - low) * 0.5 * (1 + math.cos(math.pi * min(done, 1.0))))


def save(path, model, **info):
    """Write a checkpoint aside, then put it in place."""
    data = {"model": model.state_dict(), "config": dataclasses.asdict(model.cfg), **info}
    aside = path.with_suffix(".tmp")
    torch.save(data, aside)
    aside.rename(path)


class Workers:
    """Processes of one thread each that share the work of a step.

    The parts of a batch wait in shared memory. Each process takes the next
    part until none is left, so a process that gets less of its core does
    fewer parts. Weights and gradient sums are shared memory too. (Threads
    inside one product wait for each other at every operation, which is slow
    when other programs use the cores.)
    """

    def __init__(self, model, args):
        context = torch.multiprocessing.get_context("fork")
        self.model, self.args = model.share_memory(), args
        self.parts = args.batch // args.part
        shape = (self.parts, args.part, args.length)
        self.inputs = torch.zeros(shape, dtype=torch.long).share_memory_()
        self.targets = torch.zeros(shape, dtype=torch.long).share_memory_()
        self.losses = torch.zeros(self.parts).share_memory_()
        self.grads = [
            [torch.zeros_like(p).share_memory_() for p in model.parameters()]
            for _ in range(args.workers)
        ]
        self.next_part = context.Value("i", 0)
        self.begin, self.end = (context.Barrier(args.workers) for _ in range(2))
        for rank in range(1, args.workers):
            context.Process(target=self.serve, args=(rank,), daemon=True).start()

    def take(self):
        with self.next_part.get_lock():
            part = self.next_part.value
            self.next_part.value += 1
        return part

    def work(self, rank):
        """Add up gradients of parts into the buffers of this process."""
        parameters = list(self.model.parameters())
        for parameter, grad in zip(parameters, self.grads[rank]):
            parameter.grad = grad.zero_()
        while (part := self.take()) < self.parts:
            loss = loss_of(self.model, self.inputs[part], self.targets[part], self.args.autocast)
            (loss / self.parts).backward()
            self.losses[part] = loss.item()

    def serve(self, rank):
        torch.set_num_threads(1)
        torch.manual_seed(self.args.seed * 1000 + rank)
        while True:
            self.begin.wait()
            self.work(rank)
            self.end.wait()

    def step(self, inputs, targets):
        """Leave the gradient of the batch in the model; return the loss."""
        self.inputs.copy_(inputs.view_as(self.inputs))
        self.targets.copy_(targets.view_as(self.targets))
        self.next_part.value = 0
        self.begin.wait()
        self.work(0)
        self.end.wait()
        for rows in zip(*self.grads):
            for other in rows[1:]:
                rows[0].add_(other)
        return self.losses.mean().item()


class Checks:
    """Validates and saves the model at intervals."""

    def __init__(self, model, args, log, tokenizer):
        self.model, self.args, self.log = model, args, log
        self.tokens = load_tokens(args.corpus, tokenizer, "valid")
        self.run, self.best, self.due = pathlib.Path(args.run), math.inf, args.check_minutes

    def __call__(self, **info):
        loss = validate(self.model, self.tokens, self.args.autocast)
        info["valid_loss"] = loss
        save(self.run / "last.pt", self.model, **info)
        if loss < self.best:
            self.best = loss
            save(self.run / "best.pt", self.model, **info)
        self.log("check " + " ".join(f"{k} {v:.6g}" for k, v in info.items()))
        self.due = info["minutes"] + self.args.check_minutes


def train(model, args, log):
    tokenizer = Tokenizer.from_file(args.tokenizer)
    data = load_tokens(args.corpus, tokenizer, "train")
    generator = torch.Generator().manual_seed(args.seed)
    stream = batches(data, args.length, args.batch, generator)
    workers = Workers(model, args)
    optimizer = make_optimizer(model, args)
    check = Checks(model, args, log, tokenizer)
    start, step, seen, smooth = time.monotonic(), 0, 0, None
    while True:
        minutes = (time.monotonic() - start) / 60
        done = max(minutes / args.minutes, step / args.steps)
        if minutes >= check.due or done >= 1:
            check(step=step, tokens=seen, epochs=seen / len(data), minutes=minutes)
            if done >= 1:
                return
        for group in optimizer.param_groups:
            group["lr"] = rate(step, done, args)
        inputs, targets = next(stream)
        loss = workers.step(inputs, targets)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step, seen = step + 1, seen + inputs.numel()
        smooth = loss if smooth is None else 0.98 * smooth + 0.02 * loss
        if step % args.log_every == 0:
            log(
                f"step {step} minutes {minutes:.2f} train {smooth:.4f} "
                f"lr {group['lr']:.2e} tokens/s {seen / (time.monotonic() - start):.0f}"
            )


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--run", required=True, help="folder for log and checkpoints")
    parser.add_argument("--minutes", type=float, required=True, help="time budget")
    parser.add_argument("--steps", type=int, default=10**9, help="step budget")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--chunk", type=int, default=64)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--warmup", type=int, default=200, help="steps")
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--dropout", type=float, default=0.15)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--part", type=int, default=1, help="windows in a part of a batch")
    parser.add_argument("--check-minutes", type=float, default=4)
    parser.add_argument("--log-every", type=int, default=50)
    parser.add_argument("--autocast", action=argparse.BooleanOptionalAction, default=True)
    return parser.parse_args()


def main():
    args = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    run = pathlib.Path(args.run)
    run.mkdir(parents=True, exist_ok=True)
    cfg = Config(
        hidden_size=args.hidden,
        num_hidden_layers=args.layers,
        chunk_size=args.chunk,
        dropout=args.dropout,
    )
    model = LanguageModel(cfg)
    with (run / "log.txt").open("a") as file:

        def log(text):
            print(text, file=file, flush=True)

        log(f"arguments {vars(args)}")
        log(f"parameters {sum(p.numel() for p in model.parameters())}")
        train(model, args, log)


if __name__ == "__main__":
    main()
