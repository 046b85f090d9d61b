#!/usr/bin/env python3
"""Attention of PyTorch's vendor backends beside Halftone's on one GPU, in one run.

Usage: attention_torch.py --halftone build/release/apps/halftone/halftone [--quick] [--rows TEXT ...] [--out FILE]

Runs `halftone bench attention --device cuda:0 --suite prefill --json` for its rows of bf16 (other modes have no peer,
and take many minutes more), then the same shapes through PyTorch's scaled_dot_product_attention with its cuDNN and its
FlashAttention-2 backend, timed the same way (bursts of about 4 ms after rest, the median of five; a sustained figure
after half a second of load; two sets of buffers in turn), and a bf16 product of 8192^3 as the roof. Writes Halftone's
report with the better backend as the peer of each row, which `halftone bench --from FILE` shows, and prints the ratios
and their geometric means."""
import math
import re
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import beside

BACKENDS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "FlashAttention-2": SDPBackend.FLASH_ATTENTION}
NAME = re.compile(r"prefill (\d+) x (\d+), (\d+)(?:/(\d+))? heads of (\d+), (causal|full) bf16\+bf16$")


def attention(batch, length, heads, kv_heads, head_dim, causal, backend, quick):
    """(burst, sustained) seconds, or None where the backend refuses."""
    make = lambda h: torch.randn(batch, length, h, head_dim, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
    sets = [(make(heads), make(kv_heads), make(kv_heads)) for _ in range(2)]
    grouped = heads != kv_heads

    def call(i):
        q, k, v = sets[i]
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)

    try:
        with torch.no_grad(), sdpa_kernel(backend):
            return beside.Timer(call, 2, quick).measure()
    except RuntimeError as error:
        print(f"refused: {str(error).splitlines()[0]}", file=sys.stderr)
        return None


def main():
    arguments = beside.parse(__doc__, rows=["bf16+bf16"])
    ratios = {}
    with beside.report_of(arguments, ["attention"], "--suite", "prefill") as report:
        beside.product_roof(report, arguments.quick)
        for row in report["families"][0]["rows"]:
            match = NAME.match(row["name"])
            if not match:
                continue
            batch, length, heads, kv_heads, head_dim = (int(x) if x else None for x in match.groups()[:5])
            shape = batch, length, heads, kv_heads or heads, head_dim, match.group(6) == "causal"
            peers = {name: attention(*shape, backend, arguments.quick) for name, backend in BACKENDS.items()}
            peers = {name: seconds for name, seconds in peers.items() if seconds}
            if peers:
                beside.add_peers(row, peers)
                ratios.setdefault((head_dim, match.group(6)), []).append(row["ratio_to_peer"])
    for (head_dim, kind), values in sorted(ratios.items()):
        print(f"heads of {head_dim}, {kind}: geometric mean {math.exp(sum(map(math.log, values)) / len(values)):.3f}")


if __name__ == "__main__":
    main()
