#!/usr/bin/env python3
"""Makes a random program for the torture machine: SEED -> a table on standard output.

The same seed always gives the same table. table.md says what a line means. Sizes are drawn so that a
program takes about half a second, and so that in most programs every goroutine has several turns in
that time: a table in which a round of turns takes longer than the program says little, because then
the longest wait is the length of the program with any scheduler.
"""

import math
import random
import sys

SLICE_US = 10_000
CORES = 2  # what sizes are drawn for; a machine with more cores has an easier time
ROUND_US = 150_000  # what one turn of every goroutine may take in most programs
COLLAPSE = 0.1  # how often a group is drawn without that limit


def log_uniform(r, low, high):
    return int(round(math.exp(r.uniform(math.log(low), math.log(high)))))


def limited(r, count, cost_us, cores):
    """Returns the count, cut down so that a turn of all of them takes ROUND_US on so many cores."""
    if r.random() < COLLAPSE:
        return count
    return max(1, min(count, int(ROUND_US * cores / max(cost_us, 1))))


def yielders(r, cores):
    work = log_uniform(r, 10, 100_000)
    return {"n": limited(r, log_uniform(r, 1, 1000), min(work, SLICE_US), cores), "work_us": work}


def pairs(r, cores):
    work = log_uniform(r, 1, 20_000)
    return {"n": limited(r, log_uniform(r, 1, 300), SLICE_US / 2, cores), "work_us": work}


def rings(r, cores):
    size = log_uniform(r, 3, 200)
    tokens = min(size - 1, log_uniform(r, 1, 8))
    return {"n": limited(r, log_uniform(r, 1, 10), tokens * SLICE_US / 2, cores), "size": size,
            "tokens": tokens, "work_us": log_uniform(r, 1, 3000)}


def sleepers(r, cores):
    work = log_uniform(r, 1, 50) if r.random() < 0.8 else log_uniform(r, 50, 5000)
    return {"n": limited(r, log_uniform(r, 1, 1000), work * 10, cores),
            "sleep_us": log_uniform(r, 100, 20_000), "work_us": work}


def tickers(r, cores):
    every = log_uniform(r, 500, 20_000)
    return {"n": log_uniform(r, 1, 50), "every_us": every, "work_us": log_uniform(r, 1, 50)}


def pollers(r, cores):
    return {"n": log_uniform(r, 1, 8), "sleep_us": log_uniform(r, 50, 500)}


def waiters(r, cores):
    return {"n": log_uniform(r, 1, 16), "work_us": log_uniform(r, 1, 3000)}


def mutexes(r, cores):
    work = log_uniform(r, 1, 3000)
    return {"n": limited(r, log_uniform(r, 2, 64), work * 2, cores), "work_us": work}


def blocking(r, cores):
    return {"n": log_uniform(r, 1, 50), "sleep_us": log_uniform(r, 1000, 100_000),
            "work_us": log_uniform(r, 1, 200)}


def unannounced(r, cores):
    return {"n": log_uniform(r, 1, 16), "sleep_us": log_uniform(r, 1000, 100_000),
            "work_us": log_uniform(r, 1, 200)}


def locked(r, cores):
    return {"n": log_uniform(r, 1, 8), "work_us": log_uniform(r, 1, 1000),
            "sleep_us": r.choice([0, 0, log_uniform(r, 100, 5000)]), "both": r.choice([0, 1])}


def storm(r, cores):
    return {"n": r.choice([1, 1, 1, 2, 4]), "burst": log_uniform(r, 10, 3000),
            "every_us": log_uniform(r, 500, 10_000), "work_us": log_uniform(r, 1, 30)}


def tree(r, cores):
    return {"n": r.choice([1, 1, 2]), "depth": r.randint(3, 9),
            "every_us": log_uniform(r, 500, 10_000), "work_us": log_uniform(r, 1, 30)}


def timers(r, cores):
    return {"n": r.choice([1, 1, 2]), "burst": log_uniform(r, 100, 5000),
            "within_us": log_uniform(r, 500, 30_000), "every_us": log_uniform(r, 500, 10_000),
            "work_us": log_uniform(r, 1, 10)}


def sockets(r, cores):
    return {"n": log_uniform(r, 1, 40), "every_us": log_uniform(r, 200, 10_000),
            "work_us": log_uniform(r, 1, 100)}


def files(r, cores):
    return {"n": log_uniform(r, 1, 6), "bytes": log_uniform(r, 100, 200_000),
            "every_us": log_uniform(r, 200, 10_000)}


def hogs(r, cores):
    return {"n": limited(r, log_uniform(r, 1, 300), SLICE_US, cores)}


def resize(r, cores):
    values = [r.choice([1, 2, 3, 4, 8, 16]) for _ in range(r.randint(2, 4))]
    return {"n": 1, "every_us": log_uniform(r, 1000, 30_000), "values": ",".join(map(str, values))}


KINDS = {yielders: 6, pairs: 5, rings: 3, sleepers: 5, tickers: 2, pollers: 3, waiters: 2, mutexes: 2,
         blocking: 2, unannounced: 3, locked: 3, storm: 3, tree: 1, timers: 2, sockets: 3, files: 1,
         hogs: 5, resize: 1}


def turn_us(name, g):
    """Returns what one turn of all goroutines of a group costs, roughly, in microseconds of CPU."""
    n, work = g["n"], g.get("work_us", 0)
    if name in ("hogs", "pairs", "pollers", "unannounced", "waiters", "locked"):
        return n * SLICE_US
    if name == "rings":
        return n * g["tokens"] * SLICE_US
    if name in ("storm", "timers"):
        return n * g["burst"] * (work + 3)
    if name == "tree":
        return n * 2 ** g["depth"] * (work + 3)
    return n * min(work + 1, SLICE_US)


def make_finite(r, groups, cores):
    """Gives some groups a number of rounds instead of the deadline, about 0.1 to 0.4 s of them."""
    crowd_us = sum(turn_us(name, g) for name, g in groups) / cores
    for name, g in groups:
        if name not in ("yielders", "pairs", "sleepers", "storm", "mutexes") or r.random() < 0.3:
            continue
        lone_us = g.get("sleep_us", 0) + g.get("every_us", 0) + 2 * g["work_us"] + 5
        rounds = int(r.uniform(100_000, 400_000) / max(lone_us, crowd_us))
        if rounds >= 2:
            g["rounds"] = rounds


def generate(seed):
    """Returns the table of a seed as text."""
    r = random.Random(seed)
    procs = r.choices([1, 2, 4, 16], [3, 4, 2, 2])[0]
    head = {"seed": seed, "procs": procs, "ms": r.randint(400, 600)}
    if r.random() < 0.1:
        head["beside"] = 1
    if r.random() < 0.08:
        head["late_us"] = log_uniform(r, 200, 10_000)
        head["late_permille"] = r.choice([0, 100, 500])
    cores = min(procs, CORES) / (2 if "beside" in head else 1)
    groups = []
    for kind in r.choices(list(KINDS), list(KINDS.values()), k=r.choices(range(1, 7), [4, 6, 5, 4, 2, 1])[0]):
        groups.append((kind.__name__, kind(r, cores)))
    if all(name == "resize" for name, _ in groups):
        groups.append(("yielders", yielders(r, cores)))
    if r.random() < 0.3:
        make_finite(r, groups, cores)
    lines = [("program", head), *groups]
    return "".join(" ".join([name, *(f"{k}={v}" for k, v in g.items())]) + "\n" for name, g in lines)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: generate.py SEED")
    sys.stdout.write(generate(int(sys.argv[1])))
