#!/usr/bin/env python3
"""Attention of PyTorch's vendor backends beside Halftone's on one GPU, in one run.

Usage: attention_torch.py --halftone build/release/apps/halftone/halftone [--quick] [--out FILE]

Runs `halftone bench attention --device cuda:0 --suite prefill --json`, then the same bf16 shapes through PyTorch's
scaled_dot_product_attention with its cuDNN and its FlashAttention-2 backend, timed the same way (bursts of about 4 ms
after rest, the median of five; a sustained figure after half a second of load; two sets of buffers in turn), and a
bf16 product of 8192^3 as the roof. Writes Halftone's report with the better backend as the peer of each row, which
`halftone bench --from FILE` shows, and prints the ratios and their geometric means."""
import argparse
import json
import math
import re
import subprocess
import sys
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "FlashAttention-2": SDPBackend.FLASH_ATTENTION}


class Timer:
    """Seconds a call, by events, as `halftone bench` takes them."""

    def __init__(self, call, quick):
        self.call, self.next = call, 0
        self.rest = 0.1 if quick else 1.0
        self.warm_up = 0.05 if quick else 0.5

    def several(self, calls):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(calls):
            self.call(self.next)
            self.next += 1
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3 / calls

    def measure(self):
        self.several(1)
        one = self.several(1)
        bursts = []
        for i in range(5):
            time.sleep(self.rest if i == 0 else self.rest / 4)
            bursts.append(self.several(max(1, int(0.004 / one))))
        burst = sorted(bursts)[2]
        self.several(max(1, int(self.warm_up / burst)))
        return burst, self.several(max(1, int(0.25 / burst)))


def attention(batch, length, heads, kv_heads, head_dim, causal, backend, quick):
    """(burst, sustained) seconds, or None where the backend refuses."""
    make = lambda h: torch.randn(batch, length, h, head_dim, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
    sets = [(make(heads), make(kv_heads), make(kv_heads)) for _ in range(2)]
    grouped = heads != kv_heads

    def call(i):
        q, k, v = sets[i % 2]
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)

    try:
        with torch.no_grad(), sdpa_kernel(backend):
            return Timer(call, quick).measure()
    except RuntimeError as error:
        print(f"refused: {str(error).splitlines()[0]}", file=sys.stderr)
        return None


def product_roof(quick):
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    burst, sustained = Timer(lambda i: a @ b, quick).measure()
    return 2 * 8192**3 / burst * 1e-12, 2 * 8192**3 / sustained * 1e-12


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--halftone", required=True, help="the halftone command")
    parser.add_argument("--quick", action="store_true", help="fewer shapes, shorter rests")
    parser.add_argument("--out", help="where the joined report goes")
    arguments = parser.parse_args()

    command = [arguments.halftone, "bench", "attention", "--device", "cuda:0", "--suite", "prefill", "--json"]
    report = json.loads(subprocess.run(command + ["--quick"] * arguments.quick, check=True, capture_output=True,
                                       text=True).stdout)
    roof, sustained_roof = product_roof(arguments.quick)
    report["conditions"]["peers"] = {"pytorch": torch.__version__, "cudnn": torch.backends.cudnn.version(),
                                     "bf16_product_8192": {"burst": roof, "sustained": sustained_roof}}
    name = re.compile(r"prefill (\d+) x (\d+), (\d+)(?:/(\d+))? heads of (\d+), (causal|full) bf16\+bf16$")
    ratios = {}
    for row in report["families"][0]["rows"]:
        match = name.match(row["name"])
        if not match:
            continue
        batch, length, heads, kv_heads, head_dim = (int(x) if x else None for x in match.groups()[:5])
        causal = match.group(6) == "causal"
        row["peers"] = {}
        for peer, backend in BACKENDS.items():
            seconds = attention(batch, length, heads, kv_heads or heads, head_dim, causal, backend, arguments.quick)
            if seconds:
                row["peers"][peer] = {"burst": row["flops"] / seconds[0] * 1e-12,
                                      "sustained": row["flops"] / seconds[1] * 1e-12}
        if not row["peers"]:
            continue
        best = max(row["peers"], key=lambda peer: row["peers"][peer]["burst"])
        row["peer"], row["peer_name"] = row["peers"][best]["burst"], best
        row["ratio_to_peer"] = row["value"] / row["peer"]
        ratios.setdefault((head_dim, match.group(6)), []).append(row["ratio_to_peer"])
        print(f"{row['name']:58} {row['value']:6.0f} TFLOP/s, {best} {row['peer']:6.0f}: {row['ratio_to_peer']:.2f}")
    print(f"bf16 product of 8192^3: {roof:.0f} burst, {sustained_roof:.0f} sustained")
    for (head_dim, kind), values in sorted(ratios.items()):
        print(f"heads of {head_dim}, {kind}: geometric mean {math.exp(sum(map(math.log, values)) / len(values)):.3f}")
    if arguments.out:
        with open(arguments.out, "w") as file:
            json.dump(report, file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    main()
