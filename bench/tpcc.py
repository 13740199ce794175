"""Workload T: TPC-C's five transactions, alone and beside an idle snapshot.

The tables and functions are in tpcc.sql, the mix of transactions in tpcc_mix.sql.
"""

import os

from server import MB, percentiles
from workloads import UNDO_GOAL, UNDO_PATIENCE, await_true, open_snapshot, plain_wal, sizes_now

FOLDER = os.path.dirname(os.path.abspath(__file__))
SCHEMA = "tpcc"
SIZE = f"SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relnamespace = '{SCHEMA}'::regnamespace AND relkind = 'r'"
SEEN = "SELECT sum(d_next_o_id), sum(d_ytd), (SELECT sum(w_ytd) FROM warehouse) FROM district"


def orders(bench, engine):
    """Runs T: loads the tables, then runs the mix twice, the second time beside an idle snapshot."""
    seconds, warehouses = bench.seconds or 30, max(1, bench.scale // 10)
    server = bench.server
    bench.say(f"loading {warehouses} warehouses")
    server.run_sql(engine.database, f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE; CREATE SCHEMA {SCHEMA};\n"
                                    f"ALTER DATABASE {engine.database} SET search_path = {SCHEMA}, public;\n")
    with open(os.path.join(FOLDER, "tpcc.sql"), encoding="utf-8") as file:
        server.run_sql(engine.database, f"\\set warehouses {warehouses}\n" + file.read())
    reader, meter = bench.session(engine), bench.session(engine)
    loaded = int(meter.value(SIZE))
    figures = {"loaded": loaded}
    load = ["-D", f"warehouses={warehouses}", "-f", os.path.join(FOLDER, "tpcc_mix.sql")]
    for suffix, words in (("", "alone"), ("_beside", "beside an idle snapshot")):
        bench.say(f"TPC-C's transactions for {seconds} s, {words}")
        seen = open_snapshot(reader, SEEN) if suffix else None
        before, start, cpu = int(meter.value(SIZE)), meter.value("SELECT pg_current_wal_insert_lsn()"), server.cpu_seconds()
        result = bench.load(engine, load, seconds).finish()
        cpu_end, count = server.cpu_seconds(), result["transactions"]
        wal, plain = plain_wal(bench, meter, start)
        figures.update({
            "tps" + suffix: result["tps"], "latency_ms" + suffix: result["latency_ms"],
            "cpu_us" + suffix: (cpu_end - cpu) / count * 1e6 if cpu is not None and cpu_end is not None else None,
            "wal" + suffix: wal / count, "wal_without_images" + suffix: plain / count if plain is not None else None,
            "growth" + suffix: (int(meter.value(SIZE)) - before) / count})
        if suffix:
            figures["undo_peak"] = sizes_now(meter, engine, "warehouse")["undo"]
            figures["old_read"], seen_again = reader.timed(SEEN)
            figures["snapshot_kept"] = seen == seen_again
            reader.query("COMMIT")
        else:
            figures.update(percentiles(result["sample"]))
    if engine.has_undo:
        figures["undo_back"] = await_true(lambda: sizes_now(meter, engine, "warehouse")["undo"] < UNDO_GOAL, UNDO_PATIENCE)
    bench.say("TPC-C's consistency conditions")
    violated = meter.query("SELECT violated()")
    if violated:
        bench.say("violated: " + ", ".join(row[0] for row in violated))
    figures["consistent"] = not violated
    reader.close()
    meter.close()
    server.run_sql(engine.database, f"DROP SCHEMA {SCHEMA} CASCADE; ALTER DATABASE {engine.database} RESET search_path;\n")
    return figures


# id: title, function, number of rounds
WORKLOADS = {"T": ("TPC-C's transactions, alone and beside an idle snapshot", orders, 3)}
