#!/usr/bin/env python3
"""cuBLASLt's products, through PyTorch, beside Halftone's on one GPU, in one run.

Usage: products_torch.py --halftone build/release/apps/halftone/halftone [--quick] [--families gemv matmul] [--out FILE]

Runs `halftone bench FAMILY --device cuda:0 --json`, then the same shapes in PyTorch, timed the same way (a graph of
one call for each copy of the weights, bursts of about 4 ms after rest, the median of five; a sustained figure after
half a second of load). Peers of a row: the bf16 product of its shape, which is what someone without a kernel for the
format would run; for bf16 weights that is the peer proper. For fp8 x fp8_1x128 cuBLASLt's product with the same scales
where PyTorch offers it, and its tensor-wise one. Writes Halftone's report with the peers, for
`halftone bench --from FILE`, and prints the ratios."""
import argparse
import json
import re
import subprocess
import sys
import time

import torch

L2_BYTES = 60 << 20


class Timer:
    """Seconds a call, by events, of calls captured in a graph: as `halftone bench` takes them."""

    def __init__(self, call, copies, quick):
        self.turn = copies
        self.rest = 0.1 if quick else 1.0
        self.warm_up, self.sustained = (0.05, 0.05) if quick else (0.5, 0.25)
        call(0)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            for i in range(copies):
                call(i)

    def several(self, turns):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(turns):
            self.graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3 / turns

    def measure(self):
        self.several(1)
        one = self.several(1)
        bursts = []
        for i in range(5):
            time.sleep(self.rest if i == 0 else self.rest / 4)
            bursts.append(self.several(max(1, int(0.004 / one))))
        burst = sorted(bursts)[2]
        self.several(max(1, int(self.warm_up / burst)))
        return burst / self.turn, self.several(max(1, int(self.sustained / burst))) / self.turn


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
    matmul = re.match(r"matmul (\d+) x (\d+) x (\d+), (\S+) weights x (\S+)", row["name"])
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--halftone", required=True, help="the halftone command")
    parser.add_argument("--families", nargs="+", default=["gemv", "matmul"])
    parser.add_argument("--quick", action="store_true", help="fewer shapes, shorter rests")
    parser.add_argument("--out", help="where the joined report goes")
    arguments = parser.parse_args()

    report = None
    for family in arguments.families:
        command = [arguments.halftone, "bench", family, "--device", "cuda:0", "--json"] + ["--quick"] * arguments.quick
        one = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        if report is None:
            report = one
        else:
            report["families"] += one["families"]
    roof = bf16(8192, 8192, 8192, arguments.quick)
    report["conditions"]["peers"] = {"pytorch": torch.__version__, "cuda": torch.version.cuda,
                                     "bf16_product_8192": {"burst": 2 * 8192**3 / roof[0] * 1e-12,
                                                           "sustained": 2 * 8192**3 / roof[1] * 1e-12}}
    cache = {}
    for family in report["families"]:
        for row in family["rows"]:
            peers = peers_of(row, arguments.quick, cache)
            if not peers:
                continue
            # Times as speeds in the unit of the row, whose work is the same.
            work = row["value"] * row["seconds"]
            row["peers"] = {name: {"burst": work / burst, "sustained": work / sustained}
                            for name, (burst, sustained) in peers.items()}
            best = max(row["peers"], key=lambda name: row["peers"][name]["burst"])
            row["peer"], row["peer_name"] = row["peers"][best]["burst"], best
            row["ratio_to_peer"] = row["value"] / row["peer"]
            print(f"{row['name']:62} {row['seconds'] * 1e6:9.1f} us {row['value']:8.2f} {row['unit']}, "
                  + ", ".join(f"{name} {peers[name][0] * 1e6:.1f} us" for name in peers)
                  + f": {row['ratio_to_peer']:.2f}")
    print(f"bf16 product of 8192^3: {2 * 8192**3 / roof[0] * 1e-12:.0f} TFLOP/s burst")
    if arguments.out:
        with open(arguments.out, "w") as file:
            json.dump(report, file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    main()
