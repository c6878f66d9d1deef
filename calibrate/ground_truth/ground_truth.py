#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs real training steps on one GPU and writes them as measurement rows of `orrery validate`.

    ground_truth.py --list                       the configurations
    ground_truth.py --dry-run                    the rows without values: needs neither torch nor GPU
    ground_truth.py --output rows.csv            measures everything that fits on the GPU
    ground_truth.py --only llama --output rows.csv

Each configuration runs in a process of its own, so that its memory is its own. Iteration time is
the median of repeated steps after a warm-up; peak memory is what the allocator held (reserved
memory stands in aux_metrics).
"""

import argparse
import csv
import datetime
import io
import json
import os
import subprocess
import sys
import tempfile

import configurations

# Device names of the driver and what topologies/gpus calls them.
GPU_NAMES = {
    "NVIDIA H200": "H200-141GB-SXM5",
    "NVIDIA H100 80GB HBM3": "H100-80GB-SXM5",
    "NVIDIA H100 PCIe": "H100-PCIe",
    "NVIDIA A100-SXM4-80GB": "A100-80GB-SXM4",
    "NVIDIA A100-SXM4-40GB": "a100-sxm4-40gb",
    "NVIDIA B200": "B200-180GB-SXM",
    "NVIDIA L40S": "L40S",
}


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the configurations")
    parser.add_argument("--dry-run", action="store_true", help="write rows without measuring")
    parser.add_argument("--dummy-value", default="", help="measured value of --dry-run rows")
    parser.add_argument("--only", default="", help="configurations whose name has this text")
    parser.add_argument("--gpu", default="", help="the GPU's name in Orrery (default: detected)")
    parser.add_argument("--output", default="-", help="file to write (default: standard output)")
    parser.add_argument("--timeout", type=float, default=300, help="seconds a configuration")
    parser.add_argument("--run-one", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def describe(config):
    attention = "fused" if config.fused_attention else "unfused"
    return (f"{config.name:22} {config.parameters() / 1e9:5.2f} B  seq {config.seq_len:5}  "
            f"batch {config.micro_batch} x {config.micro_batches}  {config.precision}  "
            f"{attention} attention, recompute {config.recompute}"
            f"{', torch.compile' if config.compiled else ''}")


def write(rows, path):
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(configurations.COLUMNS)
    writer.writerows(rows)
    if path == "-":
        sys.stdout.write(text.getvalue())
        return
    folder = os.path.dirname(os.path.abspath(path))
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, newline="") as file:
        file.write(text.getvalue())
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)


def run_one(index):
    """In the child: measures one configuration and prints JSON."""
    import torch

    import training_step

    try:
        result = training_step.measure(configurations.CONFIGURATIONS[index])
    except torch.cuda.OutOfMemoryError:
        result = {"problem": "out of memory"}
    print(json.dumps(result))


def in_child(index, timeout):
    command = [sys.executable, os.path.abspath(__file__), "--run-one", str(index)]
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return {"problem": f"took longer than {timeout:g} s"}
    if child.returncode != 0:
        lines = child.stderr.strip().splitlines() or [f"exit code {child.returncode}"]
        return {"problem": lines[-1][:300]}
    return json.loads(child.stdout.strip().splitlines()[-1])


def rows_of(config, environment, result):
    common = {"repetitions": result["repetitions"], "versions": environment["versions"]}
    common["versions"] = common["versions"].replace(";", ",").replace("=", " ")
    time_aux = {"p25_s": f"{result['p25_s']:.6g}", "p75_s": f"{result['p75_s']:.6g}"}
    memory_aux = {"reserved_gib": f"{result['reserved_gib']:.4f}"}
    return [
        configurations.row(config, environment, "iteration_s", f"{result['median_s']:.6g}",
                           time_aux | common),
        configurations.row(config, environment, "peak_mem_gib", f"{result['allocated_gib']:.4f}",
                           memory_aux | common),
    ]


def measure_all(options, chosen):
    try:
        import training_step
    except ImportError as error:
        sys.exit(f"ground_truth.py: PyTorch is needed to measure ({error}); --dry-run works without")
    import torch

    if not torch.cuda.is_available():
        print("ground_truth.py: no CUDA device or driver", file=sys.stderr)
        sys.exit(5)
    environment = training_step.environment()
    gpu = options.gpu or GPU_NAMES.get(environment["device"])
    if gpu is None:
        sys.exit(f"ground_truth.py: unknown device \"{environment['device']}\": name it with --gpu")
    environment.update(gpu=gpu, year=datetime.date.today().year)
    rows = []
    for index, config in chosen:
        if config.precision == "fp8" and not environment["fp8"]:
            result = {"problem": "no fp8 on this device or in this PyTorch"}
        elif config.memory_estimate() > 0.95 * environment["memory"]:
            result = {"problem": "does not fit"}
        else:
            result = in_child(index, options.timeout)
        if "problem" in result:
            print(f"skipped   {describe(config)}: {result['problem']}", file=sys.stderr)
            continue
        rows += rows_of(config, environment, result)
        print(f"{result['median_s']:8.4f} s  {describe(config)}", file=sys.stderr)
        write(rows, options.output if options.output != "-" else os.devnull)
    return rows


def main():
    options = arguments()
    if options.run_one is not None:
        run_one(options.run_one)
        return
    chosen = [(index, config) for index, config in enumerate(configurations.CONFIGURATIONS)
              if options.only in config.name]
    if not chosen:
        sys.exit(f"ground_truth.py: no configuration has \"{options.only}\" in its name; see --list")
    if options.list:
        for _, config in chosen:
            print(describe(config))
        return
    if options.dry_run:
        environment = {"gpu": options.gpu or "H100-80GB-SXM5", "versions": "not measured",
                       "year": 2026}
        rows = [configurations.row(config, environment, metric, options.dummy_value, {})
                for _, config in chosen for metric in ("iteration_s", "peak_mem_gib")]
    else:
        rows = measure_all(options, chosen)
    write(rows, options.output)


if __name__ == "__main__":
    main()
