#!/usr/bin/env python3
"""side_by_side.py DIR DURABILITY...: the table of side-by-side.sh from DIR/head, DIR/logs-DURABILITY/results.tsv and .../first.

A figure is the median over the counted repetitions; "longest" is the greatest of all of them. "better" says how many
times better Halcyon is, whichever direction is the good one."""
import csv
import os
import statistics
import sys

CASES = [('get', 'single get'), ('scan', 'scanned row'), ('put', 'unbuffered put'), ('buffered', 'buffered put')]
SERVERS = ['hbase', 'halcyon']


def read(path):
    with open(path, newline='') as lines:
        rows = list(csv.DictReader(lines, delimiter='\t'))
    for row in rows:
        case, _, rest = row['name'].partition('@')
        row['case'] = case
        row['server'], _, row['repetition'] = rest.partition('.')
    return rows


def counted(rows, case, server):
    return [r for r in rows if (r['case'], r['server']) == (case, server) and r['repetition'] != 'warm']


def median(rows, of):
    return statistics.median(of(row) for row in rows)


def ops_per_second(row):
    return int(row['ops']) * 1000 / max(1, int(row['ms']))


def line(what, hbase, halcyon, less_is_better=True, digits=1):
    over, under = (hbase, halcyon) if less_is_better else (halcyon, hbase)
    better = '%.1f' % (over / under) if under else '-'
    print('| %s | %.*f | %.*f | %s |' % (what, digits, hbase, digits, halcyon, better))


def table(directory, durability):
    rows = read(os.path.join(directory, 'results.tsv'))
    print('\n### %s\n' % {'written': 'An acknowledged put is with the operating system (written; HBase: wal local)',
                          'fsync': 'An acknowledged put is on the disk (fsync; HBase: wal raw)'}[durability])
    print('| | HBase 2.6.4 | Halcyon | better, times |\n|---|---|---|---|')
    for case, what in CASES:
        both = [counted(rows, case, server) for server in SERVERS]
        if not all(both):
            continue
        cost = lambda row: float(row['server_cpu_s']) * 1e6 / int(row['ops'])
        line('%s: server CPU, us each' % what, *(median(runs, cost) for runs in both))
        line('%s: each second' % what, *(median(runs, ops_per_second) for runs in both), less_is_better=False, digits=0)
        if case != 'buffered':  # its latencies are those of the client's buffer
            line('%s: p99, ms' % what, *(median(runs, lambda r: float(r['p99_us']) / 1e3) for runs in both), digits=2)
            line('%s: p99.9, ms' % what, *(median(runs, lambda r: float(r['p999_us']) / 1e3) for runs in both), digits=2)
        line('%s: longest wait, ms' % what, *(max(float(r['max_us']) / 1e3 for r in runs) for runs in both))
    peak = [max(int(r['server_rss_peak_kb']) / 1024 for r in rows if r['server'] == server) for server in SERVERS]
    line('peak resident memory, MiB', *peak, digits=0)
    with open(os.path.join(directory, 'first')) as first:
        _, hbase, halcyon = first.read().split()
    line('from the process start to the first acknowledged put, ms', int(hbase), int(halcyon), digits=0)
    runs = [r for r in rows if r['repetition'] != 'warm']
    others = sorted(float(r['others_cpu_s']) / float(r['seconds']) for r in runs)
    print('\nOther processes held %.2f cores in the median run and %.2f at most.' % (statistics.median(others), others[-1]))
    print('\nCommands:\n')
    for case, what in CASES:
        some = counted(rows, case, 'hbase')
        if some:
            print('- %s, %d times: `%s`' % (what, len(some), some[0]['arguments']))


with open(os.path.join(sys.argv[1], 'head')) as head:
    print(''.join('- ' + one for one in head), end='')
for durability in sys.argv[2:]:
    table(os.path.join(sys.argv[1], 'logs-' + durability), durability)
