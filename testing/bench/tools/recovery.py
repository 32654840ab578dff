"""The table of testing/bench/recovery.sh: recovery.py ROUNDS.tsv"""

import statistics
import sys

COLUMNS = ["no write to some region", "no read of some region", "longest call", "no answer of a master"]


def main(path):
    rounds = {}
    for line in open(path):
        system, case, *figures = line.rstrip("\n").split("\t")
        assert len(figures) == len(COLUMNS) + 1, line
        rounds.setdefault((case, system), []).append([int(figure) for figure in figures])
    print("\n| case | system | rounds | " + " | ".join(COLUMNS) + " | errors |")
    print("|---|---|" + "---|" * (len(COLUMNS) + 2))
    for (case, system), figures in rounds.items():
        columns = list(zip(*figures))
        cells = [f"{statistics.median(column):.0f} / {max(column)}" for column in columns[:-1]]
        print(f"| {case} | {system} | {len(figures)} | " + " | ".join(cells) + f" | {sum(columns[-1])} |")


main(sys.argv[1])
