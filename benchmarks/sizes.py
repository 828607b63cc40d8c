"""The chart of docs/proofs.md: seconds of exhaustive exploration and of the proof against the size of the instance.

    python -m benchmarks.sizes [--patience SECONDS]

Each point is a process of its own, `kvmodel check handoff --method explore` at one size, stopped after `--patience`
seconds (default 60); what did not end is drawn as an open marker at the top, with the states that it had seen. The proof has
no size: `kvmodel prove handoff` is timed whole, three times, and its median drawn as a line. Writes docs/images/sizes.svg and
prints the figures.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

CHART = Path(__file__).resolve().parents[1] / "docs" / "images" / "sizes.svg"
REQUESTS = (2, 3, 4, 5)
PAGES = (2, 3, 4, 5, 6, 7, 8)
MARKERS = ("o", "s", "^", "D")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")  # told apart by colour-blind people; the markers differ too


@dataclass(frozen=True)
class Point:
    """One exploration: whether it ended, after how many seconds, with how many states seen."""

    requests: int
    pages: int
    ended: bool
    seconds: float
    states: int


def explored(requests: int, pages: int, patience: float) -> Point:
    """Explore `handoff` at one size. Memory is limited as the command line limits it."""
    command = [sys.executable, "-m", "kvmodel", "explore", "handoff", "--size", f"Request={requests}", "--size", f"Page={pages}"]
    started = time.monotonic()
    done = subprocess.run([*command, "--timeout", str(patience), "--json"], capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    states = int(found["statistics"]["states"])
    return Point(requests, pages, found["verdict"] == "holds", time.monotonic() - started, states)


def proved() -> float:
    """Seconds of `kvmodel prove handoff`, whole."""
    seconds = []
    for _ in range(3):
        started = time.monotonic()
        subprocess.run([sys.executable, "-m", "kvmodel", "prove", "handoff"], capture_output=True, check=True)
        seconds.append(time.monotonic() - started)
    return statistics.median(seconds)


def measure(patience: float) -> tuple[list[Point], float]:
    """Every size until the first of its row that does not end: what is larger does not end either."""
    points = []
    for requests in REQUESTS:
        for pages in PAGES:
            point = explored(requests, pages, patience)
            points.append(point)
            how = "" if point.ended else "stopped at "
            print(f"{requests} requests, {pages} pages a pool: {how}{point.seconds:.1f} s, {point.states:,} states", flush=True)
            if not point.ended:
                break
    return points, proved()


def draw(points: list[Point], proof: float, patience: float) -> None:
    """One line for each number of requests, and one for the proof."""
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "kvmodel", "font.size": 11})
    figure, axes = plt.subplots(figsize=(8, 4.5))
    for requests, marker, colour in zip(REQUESTS, MARKERS, COLOURS, strict=True):
        row = [point for point in points if point.requests == requests]
        axes.plot([p.pages for p in row], [p.seconds for p in row], color=colour, linewidth=1, linestyle=":")
        ended = [point for point in row if point.ended]
        axes.plot([p.pages for p in ended], [p.seconds for p in ended], marker, color=colour, label=f"exploration, {requests} requests")
        for point in row:
            if not point.ended:
                axes.plot([point.pages], [point.seconds], marker, color=colour, fillstyle="none", markersize=9)
    axes.axhline(proof, color="black", linewidth=2, label=f"proof, any number of both ({proof:.1f} s)")
    axes.axhline(patience, color="grey", linewidth=1, linestyle="--")
    axes.annotate(f"stopped at {patience:.0f} s (open markers)", (PAGES[-1], patience), ha="right", va="bottom", color="#444444")
    axes.set_yscale("log")
    axes.set_ylim(1, 120)
    axes.set_yticks([1, 2, 5, 10, 20, 50], labels=["1", "2", "5", "10", "20", "50"])
    axes.minorticks_off()
    axes.set_xlabel("pages in each pool")
    axes.set_ylabel("seconds (2 cores)")
    axes.set_xticks(PAGES)
    axes.set_title("handoff: every reachable state of one size, and a proof for every size")
    axes.legend(loc="center right", framealpha=1)
    figure.tight_layout()
    CHART.parent.mkdir(exist_ok=True)
    figure.savefig(CHART, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patience", type=float, default=60)
    patience = parser.parse_args().patience
    points, proof = measure(patience)
    draw(points, proof, patience)
    print(f"proof: {proof:.1f} s (median of 3)\n{CHART}")


if __name__ == "__main__":
    main()
