"""Runs one phase of a measurement through Google's Python client; see tests/clients/go/cmd/measure for the phases.

Prints "ready" after a warm-up and waits for a line, then measures, prints "done" and a line of JSON. The loop is closed.
The Go program makes and fills the tables.
"""

import argparse
import itertools
import json
import os
import random
import sys
import threading
import time

FAMILY = "f"
COLUMN = b"q"
# Every write of a cell has the same timestamp, so that all servers keep one version.
TIMESTAMP_MICROS = 1000
BATCH_ROWS = 100
SCAN_ROWS = 1000
ZIPF_EXPONENT = 0.99


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("phase", choices=["read", "zipf", "write", "mix", "increment", "batch", "scan"])
    parser.add_argument("-address", required=True)
    parser.add_argument("-table", default="measure")
    parser.add_argument("-rows", type=int, default=200_000)
    parser.add_argument("-value-bytes", type=int, default=1000)
    parser.add_argument("-callers", type=int, default=8)
    parser.add_argument("-seconds", type=float, default=10)
    parser.add_argument("-warm-up", type=float, default=1)
    return parser.parse_args()


def row_key(number):
    """As in the Go program."""
    return b"%016x" % (number * 0x9E3779B97F4A7C15 % (1 << 64))


def phases(table, settings):
    """One function for each phase; it does one operation and returns the number of rows."""
    from google.cloud.bigtable import data
    from google.cloud.bigtable.data import mutations, read_modify_write_rules

    def uniform(rng):
        return row_key(rng.randrange(settings.rows))

    def put(rng):
        value = rng.randbytes(settings.value_bytes)
        return mutations.SetCell(FAMILY, COLUMN, value, timestamp_micros=TIMESTAMP_MICROS)

    def read(rng, key=uniform):
        row = table.read_row(key(rng))
        if row is None or len(row) != 1:
            raise ValueError(f"a row is {row}, want one cell")
        return 1

    def write(rng):
        table.mutate_row(uniform(rng), put(rng))
        return 1

    def mix(rng):
        return read(rng) if rng.random() < 0.7 else write(rng)

    def increment(rng):
        table.read_modify_write_row(uniform(rng), read_modify_write_rules.IncrementRule(FAMILY, b"n", 1))
        return 1

    def batch(rng):
        entries = [mutations.RowMutationEntry(uniform(rng), [put(rng)]) for _ in range(BATCH_ROWS)]
        table.bulk_mutate_rows(entries)
        return BATCH_ROWS

    def scan(rng):
        ranges = data.RowRange(start_key=uniform(rng))
        count = sum(1 for _ in table.read_rows_stream(data.ReadRowsQuery(row_ranges=ranges, limit=SCAN_ROWS)))
        if count == 0:
            raise ValueError("a scan gave no row, not even the first")
        return count

    if settings.phase == "zipf":
        weights = list(itertools.accumulate(n**-ZIPF_EXPONENT for n in range(1, settings.rows + 1)))
        numbers = range(settings.rows)

        def ranked(rng):
            return row_key(rng.choices(numbers, cum_weights=weights)[0])

        return lambda rng: read(rng, ranked)
    named = {"read": read, "write": write, "mix": mix, "increment": increment, "batch": batch, "scan": scan}
    return named[settings.phase]


def caller(operation, seed, end, results):
    rng = random.Random(seed)
    latencies, rows, errors, first = [], 0, 0, None
    while (began := time.perf_counter()) < end:
        try:
            rows += operation(rng)
            latencies.append(time.perf_counter() - began)
        except Exception as error:  # any failure of the server or the client counts
            errors += 1
            first = first or error
            # A dead server fails at once; do not spin.
            time.sleep(0.01)
    results.append((latencies, rows, errors, first))


def loop(operation, callers, seconds, seed):
    results = []
    start = time.perf_counter()
    threads = [
        threading.Thread(target=caller, args=(operation, seed + number, start + seconds, results))
        for number in range(callers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start, results


def report(elapsed, results):
    latencies = sorted(latency for result in results for latency in result[0])
    count = len(latencies)

    def at(quantile):
        return int(latencies[min(count - 1, int(count * quantile))] * 1e6) if count else 0

    return {
        "operations": count,
        "rows": sum(result[1] for result in results),
        "errors": sum(result[2] for result in results),
        "seconds": elapsed,
        "per_second": count / elapsed,
        "p50_us": at(0.5),
        "p99_us": at(0.99),
        "p999_us": at(0.999),
        "max_us": at(1),
    }


def main():
    settings = arguments()
    # The client reads it when it is made.
    os.environ["BIGTABLE_EMULATOR_HOST"] = settings.address
    from google.cloud.bigtable import data

    with data.BigtableDataClient(project="measure") as client:
        table = client.get_table("measure", settings.table)
        operation = phases(table, settings)
        loop(operation, settings.callers, settings.warm_up, seed=1)
        print("ready", flush=True)
        # At the end of input it measures, too: then nobody watches the server.
        sys.stdin.readline()
        elapsed, results = loop(operation, settings.callers, settings.seconds, seed=1001)
        print("done", flush=True)
        for _, _, errors, first in results:
            if errors:
                print(f"{errors} errors of one caller, the first: {first}", file=sys.stderr)
        print(json.dumps(report(elapsed, results)), flush=True)


if __name__ == "__main__":
    main()
