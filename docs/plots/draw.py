#!/usr/bin/env python3
"""Draws throughput.svg and latency.svg from figures.tsv, for README.md and docs/BENCHMARKS.md. Needs Python 3 only."""

import math
import pathlib

HERE = pathlib.Path(__file__).parent
CASES = ["A", "B", "C", "F", "D"]
MIX = {"A": "half updates", "B": "5 % updates", "C": "reads", "F": "read-modify-write", "D": "latest reads"}
FOOT = "YCSB, 64 clients, heap 2 GiB, 2 cores of an AMD EPYC virtual machine, commit 4e8b077 (2026-11-22). Medians of 3."
WIDTH, LEFT, RIGHT, TOP, ROW = 760, 150, 70, 86, 62
CLASSES = ["g1", "zgc", "halcyon"]
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .title { font-size: 16px; font-weight: 600 } .small { font-size: 11px; fill: #59636e }
  .grid { stroke: #d1d9e0; stroke-width: 1 } .paper { fill: #ffffff }
  .g1 { fill: #8c959f } .zgc { fill: #bf8700 } .halcyon { fill: #0969da }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc } .small { fill: #9198a1 } .grid { stroke: #3d444d } .paper { fill: #0d1117 }
    .g1 { fill: #9198a1 } .zgc { fill: #d29922 } .halcyon { fill: #4493f8 }
  }
"""


def figures():
    plots = {}
    for line in (HERE / "figures.tsv").read_text().splitlines():
        if not line.startswith("#"):
            plot, side, *values = line.split("\t")
            plots.setdefault(plot, []).append((side, [float(value) for value in values]))
    return plots


def frame(title, sides, marks, ticks, description):
    height = TOP + ROW * len(CASES) + 48
    bottom = TOP + ROW * len(CASES)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
           f'aria-label="{title}">', f"<style>{STYLE}</style>", f"<desc>{description}</desc>",
           f'<rect class="paper" width="{WIDTH}" height="{height}"/>', f'<text class="title" x="16" y="28">{title}</text>']
    x = 16
    for (side, _), look in zip(sides, CLASSES):
        out.append(f'<rect class="{look}" x="{x}" y="43" width="12" height="12"/><text x="{x + 18}" y="54">{side}</text>')
        x += 44 + 7.1 * len(side)
    for at, text in ticks:
        out.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP - 10}" y2="{bottom}"/>'
                   f'<text class="small" text-anchor="middle" x="{at:.1f}" y="{bottom + 16}">{text}</text>')
    for number, case in enumerate(CASES):
        y = TOP + ROW * number + 18
        out.append(f'<text x="16" y="{y}">{case}</text><text class="small" x="34" y="{y}">{MIX[case]}</text>')
    out += marks
    out.append(f'<text class="small" x="16" y="{height - 10}">{FOOT}</text></svg>')
    return "\n".join(out) + "\n"


def describe(sides, unit):
    return ". ".join(f"{side}: " + ", ".join(f"{case} {value:g} {unit}" for case, value in zip(CASES, values))
                     for side, values in sides)


def throughput(sides):
    top = 150_000
    scale = (WIDTH - LEFT - RIGHT) / top
    marks = []
    for look, (_, values) in zip(CLASSES, sides):
        for number, value in enumerate(values):
            y = TOP + ROW * number + 17 * CLASSES.index(look)
            marks.append(f'<rect class="{look}" x="{LEFT}" y="{y}" width="{value * scale:.1f}" height="14"/>'
                         f'<text class="small" x="{LEFT + value * scale + 5:.1f}" y="{y + 11}">{value:,.0f}</text>')
    ticks = [(LEFT + at * scale, f"{at:,}") for at in range(0, top + 1, 50_000)]
    return frame("Throughput: operations per second (more is better)", sides, marks, ticks, describe(sides, "per second"))


def latency(sides):
    low, high = 1, 200
    place = lambda ms: LEFT + (WIDTH - LEFT - RIGHT) * math.log(ms / low) / math.log(high / low)
    marks = []
    for look, (_, values) in zip(CLASSES, sides):
        for number, value in enumerate(values):
            y = TOP + ROW * number + 17 * CLASSES.index(look) + 7
            marks.append(f'<circle class="{look}" cx="{place(value):.1f}" cy="{y}" r="5"/>'
                         f'<text class="small" x="{place(value) + 10:.1f}" y="{y + 4}">{value:g} ms</text>')
    ticks = [(place(at), f"{at} ms") for at in (1, 2, 5, 10, 20, 50, 100, 200)]
    title = "Latency: 99.9th percentile at full load, log scale (less is better)"
    return frame(title, sides, marks, ticks, describe(sides, "ms"))


if __name__ == "__main__":
    plots = figures()
    (HERE / "throughput.svg").write_text(throughput(plots["throughput"]))
    (HERE / "latency.svg").write_text(latency(plots["p99.9"]))
