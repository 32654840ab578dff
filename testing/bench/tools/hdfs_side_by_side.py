#!/usr/bin/env python3
"""hdfs_side_by_side.py DIR MODE...: the tables of hdfs-side-by-side.sh from DIR/head and DIR/MODE.tsv.

A figure is the median over the counted rounds, with the smallest and the largest; "longest" is the greatest of all rounds.
The ratio is Halcyon's median over HBase's: below 1, Halcyon needs less."""
import csv
import os
import statistics
import sys

SERVERS = ['hbase', 'halcyon']
MODES = {'hflush': 'Acknowledged: in the memory of three DataNodes (hflush)',
         'hsync': 'Acknowledged: on the disks of three DataNodes (hsync)'}
CASES = {'put': 'put', 'batch': 'batch of 100 puts', 'get': 'get'}
# what, of a run, digits
FIGURES = [('p50, ms', lambda r: float(r['p50_us']) / 1e3, 2),
           ('p99, ms', lambda r: float(r['p99_us']) / 1e3, 2),
           ('p99.9, ms', lambda r: float(r['p999_us']) / 1e3, 2),
           ('server CPU, us a row', lambda r: float(r['server_cpu_s']) * 1e6 / int(r['rows']), 1),
           ('DataNodes\' CPU, us a row', lambda r: float(r['datanodes_cpu_s']) * 1e6 / int(r['rows']), 1),
           ('rows each second', lambda r: int(r['rows']) / float(r['seconds']), 0)]


def spread(values, digits):
    low, high = min(values), max(values)
    return '%.*f (%.*f to %.*f)' % (digits, statistics.median(values), digits, low, digits, high)


def ratio(hbase, halcyon):
    return '%.2f' % (halcyon / hbase) if hbase else '-'


def table(path, mode):
    with open(path, newline='') as lines:
        rows = [row for row in csv.DictReader(lines, delimiter='\t') if row['round'] != '0']
    print('\n### %s\n\n| | HBase 2.6.4 | Halcyon | Halcyon / HBase |\n|---|---|---|---|' % MODES[mode])
    cases = dict.fromkeys((row['case'], row['threads']) for row in rows)
    for case, threads in cases:
        both = [[r for r in rows if (r['case'], r['threads'], r['server']) == (case, threads, server)]
                for server in SERVERS]
        name = '%s, %s thread%s' % (CASES[case], threads, '' if threads == '1' else 's')
        for what, of, digits in FIGURES:
            if case == 'get' and what.startswith('DataNodes'):
                continue
            values = [[of(row) for row in runs] for runs in both]
            medians = [statistics.median(some) for some in values]
            print('| %s: %s | %s | %s | %s |' % (name, what, *(spread(some, digits) for some in values), ratio(*medians)))
        longest = [max(float(row['max_us']) / 1e3 for row in runs) for runs in both]
        print('| %s: longest, ms | %.1f | %.1f | %s |' % (name, *longest, ratio(*longest)))
    errors = sum(int(row['errors']) for row in rows)
    print('\n%d rounds, %d errors.' % (len({row['round'] for row in rows}), errors))


with open(os.path.join(sys.argv[1], 'head')) as head:
    print(head.read().strip())
for mode in sys.argv[2:]:
    table(os.path.join(sys.argv[1], mode + '.tsv'), mode)
