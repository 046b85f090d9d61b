#!/usr/bin/env python3
"""Trains the two language models bundled with Halftone, from scratch, on one text file.

    python3 train.py tiny_shakespeare.txt                 # both models, into ./bard and ./bard-moe
    python3 train.py tiny_shakespeare.txt --model bard --out /tmp/models

Needs PyTorch, Transformers 5, tokenizers, safetensors and NumPy. A CUDA device takes about two
minutes a model; `--device cpu` works too and takes hours.

The text is small (about 0.4 million tokens), so both models would memorise it within minutes.
What holds that back: dropout on the residual branches, weight decay, sampled subword
segmentations (BPE dropout), random crops, an exponential average of the weights, and keeping the
checkpoint that is best on the held-out tail of the text.
"""

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

import corpus
import models

CONTEXT = 512  # max_position_embeddings of both models


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path, help="training text, UTF-8")
    parser.add_argument("--model", choices=["bard", "bard-moe", "all"], default="all")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--heldout", type=Path, default=Path(__file__).parent / "heldout.txt")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--validation-share", type=float, default=0.08)
    parser.add_argument("--eval-every", type=int, default=100)
    parser.add_argument("--no-compile", action="store_true", help="skip torch.compile")
    # The recipe; None takes the model's own default from models.RECIPES.
    parser.add_argument("--steps", type=int)
    parser.add_argument("--patience", type=int, help="evaluations without a gain before stopping")
    parser.add_argument("--batch", type=int, help="sequences of 512 tokens a step")
    parser.add_argument("--lr", type=float)
    parser.add_argument("--dropout", type=float)
    parser.add_argument("--bpe-dropout", type=float)
    parser.add_argument("--weight-decay", type=float)
    return parser.parse_args()


def learning_rate(step, recipe):
    """Linear warm-up over 200 steps, then a cosine down to 2 % of the peak."""
    warmup = min(200, recipe.steps // 10 + 1)
    if step < warmup:
        return recipe.lr * (step + 1) / warmup
    progress = (step - warmup) / max(1, recipe.steps - warmup)
    return recipe.lr * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))


def make_optimizer(model, recipe, fused):
    parameters = list(model.parameters())
    # Norm weights are scales around one: decaying them toward zero would only hurt.
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": recipe.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=recipe.lr, betas=(0.9, 0.98), fused=fused)


@torch.no_grad()
def mean_loss(model, ids, device, autocast):
    """Nats per token over consecutive windows of CONTEXT tokens; the last, shorter one counts."""
    was_training = model.training
    model.eval()
    total, count = 0.0, 0
    full = len(ids) // CONTEXT
    windows = ids[: full * CONTEXT].view(full, CONTEXT)
    batches = list(windows.split(32)) if full else []
    tail = ids[full * CONTEXT :]
    if len(tail) > 1:
        batches.append(tail[None])
    for batch in batches:
        batch = batch.to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=autocast):
            logits = model(input_ids=batch, use_cache=False).logits
        targets = batch[:, 1:]
        losses = F.cross_entropy(logits[:, :-1].float().flatten(0, 1), targets.flatten(),
                                 reduction="sum")
        total += losses.item()
        count += targets.numel()
    model.train(was_training)
    return total / count


class AveragedWeights:
    """Exponential moving average of the parameters; `swap` exchanges it with the live ones."""

    def __init__(self, model, decay=0.995):
        self.live = list(model.parameters())
        self.average = [p.detach().clone() for p in self.live]
        self.decay, self.updates = decay, 0

    @torch.no_grad()
    def update(self):
        self.updates += 1
        # A young average must forget its random start faster than the final decay allows.
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        torch._foreach_lerp_(self.average, [p.detach() for p in self.live], 1 - decay)

    @torch.no_grad()
    def swap(self):
        held = [p.detach().clone() for p in self.live]
        torch._foreach_copy_([p.detach() for p in self.live], self.average)
        torch._foreach_copy_(self.average, held)


def train(name, recipe, streams, validation_ids, args):
    """Returns the best weights (CPU, F32) and what is known of the run."""
    device = torch.device(args.device)
    torch.manual_seed(args.seed)
    config = AutoConfig.for_model(**models.config_dict(name))
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).to(device)
    models.prepare_for_training(model, recipe.dropout)
    optimizer = make_optimizer(model, recipe, fused=device.type == "cuda")
    average = AveragedWeights(model)
    step_model = model if args.no_compile else torch.compile(model)

    streams = [torch.from_numpy(s).to(device) for s in streams]
    rng = np.random.default_rng(args.seed)
    span = torch.arange(CONTEXT + 1, device=device)
    best = {"loss": math.inf, "step": -1, "weights": None, "train_loss": None}
    recent, started = [], time.time()

    model.train()
    for step in range(recipe.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, recipe)
        stream = streams[rng.integers(len(streams))]
        offsets = rng.integers(0, len(stream) - CONTEXT - 1, size=recipe.batch)
        crops = stream[torch.from_numpy(offsets).to(device)[:, None] + span]
        # Some crops open with the start token, so that text after it is no surprise mid-speech.
        crops[: recipe.batch // 4, 0] = 0

        with torch.autocast(device.type, torch.bfloat16):
            logits = step_model(input_ids=crops[:, :-1], use_cache=False).logits
            loss = F.cross_entropy(logits.flatten(0, 1).float(), crops[:, 1:].flatten())
            objective = loss + models.ROUTER_LOSS_WEIGHT * models.router_loss(model)
        objective.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        average.update()
        recent.append(loss.detach())

        if (step + 1) % args.eval_every == 0 or step + 1 == recipe.steps:
            average.swap()
            validation = mean_loss(model, validation_ids, device, autocast=True)
            train_loss = torch.stack(recent).mean().item()
            recent.clear()
            if validation < best["loss"]:
                best = {"loss": validation, "step": step + 1, "train_loss": train_loss,
                        "weights": {k: v.detach().cpu().clone()
                                    for k, v in model.state_dict().items()}}
            average.swap()
            print(f"{name} step {step + 1} train {train_loss:.4f} validation {validation:.4f} "
                  f"({time.time() - started:.0f} s)", flush=True)
            if step + 1 - best["step"] >= recipe.patience * args.eval_every:
                break
    best["seconds"] = time.time() - started
    return best


def save_model(name, weights, tokenizer, directory):
    """Writes the checkpoint as published ones look: BF16, Hugging Face names, explicit config."""
    directory.mkdir(parents=True, exist_ok=True)
    tensors = models.checkpoint_tensors(weights)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    files = {
        "config.json": models.config_dict(name),
        "generation_config.json": models.generation_config(),
        "tokenizer_config.json": corpus.tokenizer_config(tokenizer, CONTEXT),
    }
    for file, content in files.items():
        (directory / file).write_text(json.dumps(content, indent=2) + "\n")
    tokenizer.save(str(directory / "tokenizer.json"))
    return sum(t.numel() for t in tensors.values())


def verify_reload(name, weights, directory):
    """The files must give, through the stock Transformers classes, the very same logits."""
    config = AutoConfig.for_model(**models.config_dict(name))
    direct = AutoModelForCausalLM.from_config(config, dtype=torch.float32,
                                              experts_implementation="eager")
    direct.load_state_dict({k: v.to(torch.bfloat16).float() for k, v in weights.items()})
    reloaded = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32,
                                                    experts_implementation="eager")
    ids = torch.randint(0, config.vocab_size, (1, 64), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        same = torch.equal(direct.eval()(ids).logits, reloaded.eval()(ids).logits)
    if not same:
        raise SystemExit(f"{name}: the saved checkpoint does not reproduce the trained logits")
    return reloaded


def sample(model, directory, prompt, device):
    tokenizer = PreTrainedTokenizerFast.from_pretrained(directory)
    ids = tokenizer(prompt, return_tensors="pt").input_ids.to(device)
    torch.manual_seed(7)
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=200,
                         do_sample=True, temperature=0.8, top_k=40, pad_token_id=0)
    return tokenizer.decode(out[0], skip_special_tokens=False)


def build(name, args):
    recipe = models.recipe(name, args)
    text = args.text.read_text(encoding="utf-8")
    cut = text.index("\n\n", int(len(text) * (1 - args.validation_share))) + 2
    train_text, validation_text = text[:cut], text[cut:]

    tokenizer = corpus.train_tokenizer(name, train_text, models.VOCABULARY[name])
    streams = corpus.sample_streams(tokenizer, train_text, recipe.bpe_dropout, recipe.streams,
                                    args.seed)
    validation_ids = torch.tensor(tokenizer.encode(validation_text, add_special_tokens=False).ids)
    print(f"{name}: {recipe}, {len(streams[0])} training tokens, "
          f"{len(validation_ids)} validation tokens", flush=True)
    best = train(name, recipe, streams, validation_ids, args)

    directory = args.out / name
    parameters = save_model(name, best["weights"], tokenizer, directory)
    device = torch.device(args.device)
    reloaded = verify_reload(name, best["weights"], directory).to(device)
    final = mean_loss(reloaded, validation_ids, device, autocast=False)
    report = {
        "model": name, "recipe": vars(recipe), "seed": args.seed, "parameters": parameters,
        "bytes": (directory / "model.safetensors").stat().st_size,
        "best_step": best["step"], "seconds": round(best["seconds"], 1),
        "train_loss": best["train_loss"], "validation_loss": final,
        "validation_perplexity": math.exp(final),
        "validation_bits_per_byte":
            final / math.log(2) * len(validation_ids) / len(validation_text.encode()),
        "train_tokens": len(streams[0]), "validation_tokens": len(validation_ids),
    }
    if args.heldout.exists():
        heldout = args.heldout.read_text(encoding="utf-8")
        ids = torch.tensor(tokenizer.encode(heldout, add_special_tokens=False).ids)
        loss = mean_loss(reloaded, ids, device, autocast=False)
        report |= {"heldout_tokens": len(ids), "heldout_loss": loss,
                   "heldout_perplexity": math.exp(loss)}
    print("REPORT " + json.dumps(report), flush=True)
    print(sample(reloaded, directory, "FIRST CITIZEN:\n", device), flush=True)


def main():
    args = parse_arguments()
    torch.set_float32_matmul_precision("high")  # TF32 in what autocast leaves in F32
    for name in ["bard", "bard-moe"] if args.model == "all" else [args.model]:
        build(name, args)


if __name__ == "__main__":
    main()
