"""What the comparisons share: Halftone's report, PyTorch's calls timed as `halftone bench` times its own, and the
report that holds both."""
import argparse
import contextlib
import json
import signal
import subprocess
import sys
import time

import torch


def parse(doc, families=None, rows=()):
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--halftone", required=True, help="the halftone command")
    parser.add_argument("--quick", action="store_true", help="fewer shapes, shorter rests")
    parser.add_argument("--rows", nargs="+", default=list(rows), metavar="TEXT",
                        help="only rows whose names contain one of these" + "; default: " * bool(rows) + " ".join(rows))
    if families:
        parser.add_argument("--families", nargs="+", default=families)
    parser.add_argument("--out", help="where the joined report goes, as far as it is when a run is ended early, too")
    sys.stdout.reconfigure(line_buffering=True)  # a row is seen when it is measured, in a file as well
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    return parser.parse_args()


def run_halftone(command):
    """Its report; where this program is ended meanwhile, that of the rows so far, and how it was ended."""
    ending = None
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            out = process.communicate()[0]
        except (KeyboardInterrupt, SystemExit) as one:
            ending = one
            if isinstance(one, SystemExit):  # Ctrl-C has reached both
                process.terminate()
            out = process.communicate()[0]
    if process.returncode != 0 and not ending:
        raise subprocess.CalledProcessError(process.returncode, command)
    return json.loads(out) if out else None, ending


def add_halftone(report, arguments, families, *options):
    """Adds `halftone bench FAMILY --device cuda:0 --json` of each family to one report."""
    for family in families:
        command = [arguments.halftone, "bench", family, "--device", "cuda:0", "--json", *options]
        command += ["--quick"] * arguments.quick + ["--rows", *arguments.rows] * bool(arguments.rows)
        print(f"running {' '.join(command)}", file=sys.stderr)
        one, ending = run_halftone(command)
        if not report:
            report.update(one or {})
        elif one:
            report["families"] += one["families"]
        if ending:
            raise ending
    report["conditions"]["peers"] = {"pytorch": torch.__version__, "cuda": torch.version.cuda,
                                     "cudnn": torch.backends.cudnn.version()}


@contextlib.contextmanager
def report_of(arguments, families, *options):
    """Halftone's report, to which the block adds peers; written to --out however it ends."""
    report = {}
    try:
        add_halftone(report, arguments, families, *options)
        yield report
    finally:
        if arguments.out and report:
            with open(arguments.out, "w") as file:
                json.dump(report, file, indent=2)
                file.write("\n")


class Timer:
    """Seconds of call(i), i below `sets` of buffers in turn, captured in one graph: the median of five bursts of
    about 4 ms after rest, and a figure after half a second of load."""

    def __init__(self, call, sets, quick):
        self.sets = sets
        self.rest = 0.1 if quick else 1.0
        self.warm_up, self.sustained = (0.05, 0.05) if quick else (0.5, 0.25)
        side = torch.cuda.Stream()  # libraries allocate on first calls, which a capture may not
        with torch.cuda.stream(side):
            for _ in range(2):
                call(0)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.kept = [call(i) for i in range(sets)]

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
        return burst / self.sets, self.several(max(1, int(self.sustained / burst))) / self.sets


def product_roof(report, quick):
    """The bf16 product of 8192^3, noted in the report; TFLOP/s, burst and sustained."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    rates = [2 * 8192**3 / seconds * 1e-12 for seconds in Timer(lambda i: a @ b, 1, quick).measure()]
    report["conditions"]["peers"]["bf16_product_8192"] = {"burst": rates[0], "sustained": rates[1]}
    print(f"bf16 product of 8192^3: {rates[0]:.0f} TFLOP/s burst, {rates[1]:.0f} sustained")


def add_peers(row, peers):
    """`peers`: (burst, sustained) seconds by name; the fastest is the row's peer, in the row's unit."""
    work = row["value"] * row["seconds"]
    row["peers"] = {name: {"burst": work / burst, "sustained": work / sustained}
                    for name, (burst, sustained) in peers.items()}
    row["peer_name"] = max(row["peers"], key=lambda name: row["peers"][name]["burst"])
    row["peer"] = row["peers"][row["peer_name"]]["burst"]
    row["ratio_to_peer"] = row["value"] / row["peer"]
    print(f"{row['name']:62} {row['seconds'] * 1e6:9.1f} us {row['value']:8.2f} {row['unit']}, "
          + ", ".join(f"{name} {burst * 1e6:.1f} us" for name, (burst, _) in peers.items())
          + f": {row['ratio_to_peer']:.2f}")
