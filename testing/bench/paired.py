#!/usr/bin/env python3
"""Two builds of the server beside each other: the same load in turn, and the ratio of each pair.

    paired.py NEW OLD [ROUNDS [LOAD...]]   programs, such as the one of this commit and the one before; default 15 rounds, all loads

Both servers are standalone, with 2 GiB and files on the local disk, acknowledged after write(). NEW generates the load. Prints the
median of the ratios NEW/OLD of the server's CPU time and of the time that passed, and the range of both. Needs an idle machine.
"""
import os
import statistics
import subprocess
import sys
import tempfile
import time

LOADS = {
    "put": ["sequentialWrite", "8", "--rows", "20000", "--autoFlush=true"],
    "put, 50 rows a call": ["sequentialWrite", "4", "--rows", "150000", "--autoFlush=true", "--multiPut", "50", "--table", "Batch",
                            "--valueSize", "100"],
    "increment": ["increment", "8", "--rows", "20000", "--table", "Counters"],
    "get": ["randomRead", "8", "--rows", "20000"],
    "get, 50 rows a call": ["randomRead", "4", "--rows", "40000", "--multiGet", "50"],
    "scan": ["scan", "2", "--rows", "300000", "--table", "Batch", "--caching", "100"],
}


def start(program, directory, shift):
    """A server on ports of its own; its ZooKeeper port."""
    zookeeper = 21810 + shift
    ports = {"zookeeper": zookeeper, "master": 26000 + shift, "regionserver": 26020 + shift,
             "master-info": 26010 + shift, "regionserver-info": 26030 + shift}
    options = [word for name, port in ports.items() for word in (f"--{name}-port", str(port))]
    log = open(f"{directory}.log", "w")
    command = [program, "standalone", "--data", directory, "--memory", "2g", "--wal-sync", "written", *options]
    return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT), zookeeper


def cpu_seconds(process):
    fields = open(f"/proc/{process.pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(client, server, load):
    process, zookeeper = server
    before, began = cpu_seconds(process), time.monotonic()
    subprocess.run([client, "bench", "pe", "--zookeeper", f"127.0.0.1:{zookeeper}", *load], check=True, capture_output=True)
    return cpu_seconds(process) - before, time.monotonic() - began


def describe(ratios):
    return f"{statistics.median(ratios):.3f} ({min(ratios):.2f} to {max(ratios):.2f})"


def main():
    new, old = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 15
    with tempfile.TemporaryDirectory(prefix="halcyon-paired.") as directory:
        servers = [start(new, f"{directory}/new", 0), start(old, f"{directory}/old", 100)]
        try:
            time.sleep(6)
            chosen = {name: load for name, load in LOADS.items() if not sys.argv[4:] or name in sys.argv[4:]}
            pairs = {name: [] for name in chosen}
            for number in range(rounds + 1):
                for name, load in chosen.items():
                    order = servers if number % 2 else servers[::-1]
                    figures = {id(server): run(new, server, load) for server in order}
                    if number:  # the first round warms up
                        pairs[name].append([figures[id(server)] for server in servers])
            for name, found in pairs.items():
                cpu = [first[0] / max(second[0], 0.01) for first, second in found]
                passed = [first[1] / second[1] for first, second in found]
                print(f"{name:20} CPU {describe(cpu)}   time {describe(passed)}")
        finally:
            for process, _ in servers:
                process.terminate()
                process.wait()


if __name__ == "__main__":
    main()
