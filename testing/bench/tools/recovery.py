"""The table of testing/bench/recovery.sh: recovery.py ROUNDS.tsv

Fails if the probes of a case have the pauses of HBase's client: if all of its rounds are within 2 % of sums of them.
"""

import statistics
import sys
from itertools import accumulate

CLIENT = ["no write to some region", "no read of some region", "longest call", "no answer of a master"]
PROBES = ["no write, probes", "no read, probes", "no answer of a master, probes"]
# A line has the columns of the client, its errors, the columns of the probes, and their attempts that failed.
ERRORS, FIRST_PROBE = len(CLIENT), len(CLIENT) + 1
FAILED = FIRST_PROBE + len(PROBES)
PRINTED = [(CLIENT[0], 0), (PROBES[0], FIRST_PROBE), (CLIENT[1], 1), (PROBES[1], FIRST_PROBE + 1), (CLIENT[2], 2), (CLIENT[3], 3),
           (PROBES[2], FIRST_PROBE + 2)]

# HConstants.RETRY_BACKOFF times hbase.client.pause. The first pause is two intervals of the probes, and tells nothing.
PAUSES_MS = [100 * factor for factor in (1, 2, 3, 5, 10, 20, 40, 100, 100, 100, 100, 200, 200)]
SUMS_MS = list(accumulate(PAUSES_MS))[1:]
NEAR = 0.02
# One round may be near a sum by chance.
ROUNDS_LEAST = 3


def is_sum(ms):
    return any(abs(ms - sum_ms) <= NEAR * sum_ms for sum_ms in SUMS_MS)


def main(path):
    rounds = {}
    for line in open(path):
        system, case, *figures = line.rstrip("\n").split("\t")
        assert len(figures) == FAILED + 1, line
        rounds.setdefault((case, system), []).append([int(figure) for figure in figures])
    print("\n| case | system | rounds | " + " | ".join(name for name, _ in PRINTED) + " | errors | failed attempts of probes |")
    print("|---|---|" + "---|" * (len(PRINTED) + 3))
    faults = []
    for (case, system), figures in rounds.items():
        columns = list(zip(*figures))
        cells = [f"{statistics.median(columns[at]):.0f} / {max(columns[at])}" for _, at in PRINTED]
        print(f"| {case} | {system} | {len(figures)} | " + " | ".join(cells) + f" | {sum(columns[ERRORS])} | {sum(columns[FAILED])} |")
        for at, name in enumerate(PROBES[:2]):
            column = columns[FIRST_PROBE + at]
            if len(column) >= ROUNDS_LEAST and all(map(is_sum, column)):
                faults.append(f"{case} of {system}, {name}: all rounds are sums of the client's pauses: {sorted(column)}")
    if min(map(len, rounds.values()), default=0) < ROUNDS_LEAST:
        print(f"\nWith fewer than {ROUNDS_LEAST} rounds nothing tells whether the probes have the pauses of the client.")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults or not rounds else 0


sys.exit(main(sys.argv[1]))
