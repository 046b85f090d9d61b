#!/usr/bin/env python3
"""cuBLASLt's products, through PyTorch, beside Halftone's on one GPU, in one run.

Usage: products_torch.py --halftone build/release/apps/halftone/halftone [--quick] [--families gemv matmul] [--rows TEXT ...] [--out FILE]

Runs `halftone bench FAMILY --device cuda:0 --json`, then the same shapes in PyTorch, timed the same way (a graph of
one call for each copy of the weights, bursts of about 4 ms after rest, the median of five; a sustained figure after
half a second of load). Peers of a row: the bf16 product of its shape, which is what someone without a kernel for the
format would run; for bf16 weights that is the peer proper. For fp8 x fp8_1x128 cuBLASLt's product with the same scales
where PyTorch offers it, and its tensor-wise one. Writes Halftone's report with the peers, for
`halftone bench --from FILE`, and prints the ratios."""
import re
import sys

import torch

import beside
from beside import Timer

L2_BYTES = 60 << 20


def copies_of(nbytes):
    return max(2, 4 * L2_BYTES // nbytes + 1)


def bf16(m, n, k, quick):
    weights = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) for _ in range(copies_of(2 * n * k))]
    x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    return Timer(lambda i: torch.mm(x, weights[i].t(), out=out), len(weights), quick).measure()


def fp8(m, n, k, blocks, quick):
    """With 1x128 by 128x128 scales, or one scale a tensor; None where PyTorch refuses."""
    x = torch.randn(m, k, device="cuda").to(torch.float8_e4m3fn)
    count = copies_of(n * k)
    weights = [torch.randn(n, k, device="cuda").to(torch.float8_e4m3fn) for _ in range(count)]
    one = torch.ones((), device="cuda")
    if blocks:
        scale_x = torch.ones(k // 128, m, device="cuda").t()
        scale_w = torch.ones(n // 128, k // 128, device="cuda").t()
    else:
        scale_x = scale_w = one
    call = lambda i: torch._scaled_mm(x, weights[i].t(), scale_a=scale_x, scale_b=scale_w, out_dtype=torch.bfloat16,
                                      use_fast_accum=not blocks)
    try:
        return Timer(call, count, quick).measure()
    except (RuntimeError, ValueError) as error:
        print(f"refused: {str(error).splitlines()[0]}", file=sys.stderr)
        return None


def peers_of(row, quick, cache):
    gemv = re.match(r"gemv (\d+) x (\d+), (\S+) weights, (\d+) row", row["name"])
    matmul = re.match(r"matmul (\d+) x (\d+) x (\d+), (\S+) weights x (?:bf16 to )?(\S+)", row["name"])
    if not gemv and not matmul:
        return {}
    if gemv:
        n, k, m = int(gemv[1]), int(gemv[2]), int(gemv[4])
        rounding = "bf16"
    else:
        m, n, k, rounding = int(matmul[1]), int(matmul[2]), int(matmul[3]), matmul[5]
    kinds = {"cuBLASLt bf16": lambda: bf16(m, n, k, quick)}
    if rounding.startswith("fp8"):
        kinds["cuBLASLt fp8, block scales"] = lambda: fp8(m, n, k, True, quick)
        kinds["cuBLASLt fp8, tensor scale"] = lambda: fp8(m, n, k, False, quick)
    peers = {}
    for name, measure in kinds.items():
        key = (name, m, n, k)
        if key not in cache:
            cache[key] = measure()
            torch.cuda.empty_cache()
        if cache[key]:
            peers[name] = cache[key]
    return peers


def main():
    arguments = beside.parse(__doc__, families=["gemv", "matmul"])
    cache = {}
    with beside.report_of(arguments, arguments.families) as report:
        beside.product_roof(report, arguments.quick)
        for family in report["families"]:
            for row in family["rows"]:
                peers = peers_of(row, arguments.quick, cache)
                if peers:
                    beside.add_peers(row, peers)


if __name__ == "__main__":
    main()
