"""The operations whose cost is measured: SQL commands, or transactions of one kind.

This file has only data. ops.py measures CPU time (./zundo compare --workload ops),
cost.py instructions (./zundo test --part cost), touched.py calls of functions.

In the commands {t} is the operation's table, {am} its access method, {n} the number
of rows, {n3} a third of it and so on, {file} a file for COPY with all rows. The
tables are filled from the heap table src; the heap table big has one value of 8 kB.
"""


class Operation:
    """One operation. Its commands run in this order:

    setup       commands that create the table
    before      commands of the measured session
    snapshot    which session begins a transaction with one snapshot for all its
                queries: "own", the measured one; "other", another one; or None
    changes     commands that another session then commits
    warm        commands of the measured session, which are not measured
    run         the measured commands
    after       commands of the measured session

    divisor     figures are divided by rows / divisor
    shared      name of a table that is shared by operations that change nothing
    beside      name of the operation with the same commands but without the
                snapshot or the changes, for comparison
    """

    def __init__(self, name, group, what, run, setup=(), before=(), snapshot=None, changes=(), warm=(), after=(),
                 divisor=1, shared=None, beside=None):
        self.name, self.group, self.what = name, group, what
        self.setup, self.before, self.snapshot, self.changes = listed(setup), listed(before), snapshot, listed(changes)
        self.warm, self.run, self.after = listed(warm), listed(run), listed(after)
        self.divisor, self.shared, self.beside = divisor, shared, beside
        self.temporary = any("CREATE TEMP" in text for text in self.setup)
        self.parallel = any(text.startswith("SET max_parallel") and not text.endswith("= 0") for text in self.before)

    def loaded(self):
        """Returns the same operation on a table as it is right after loading; None if it begins with such a one."""
        setup = [text for text in self.setup if "VACUUM" not in text]
        if setup == self.setup or self.temporary:
            return None
        return Operation(self.name + "_loaded", self.group, self.what, self.run, setup, self.before, self.snapshot, self.changes,
                         self.warm, self.after, self.divisor)

    def rows(self, rows):
        """Returns the number of rows, or transactions, by which figures are divided."""
        return max(rows // self.divisor, 1)

    def table(self, engine_name):
        """Returns the name of the operation's table; all operations with the same shared have the same."""
        return f"shared_{self.shared}_{engine_name}" if self.shared else f"op_{self.name}_{engine_name}"


def listed(texts):
    """Returns a list of the commands, which may be given as one string."""
    return [texts] if isinstance(texts, str) else list(texts)


OPTIONS = "autovacuum_enabled = off"
ROW = "id int, v int, r int, f text"
FROM_SRC = "SELECT * FROM src"
WIDE = ", ".join(f"c{i} int" for i in range(100))
WIDE_ROWS = "SELECT " + ", ".join(f"i + {i}" for i in range(100)) + " FROM generate_series(1, {n10}) i"
MIXED = ", ".join(f"c{i} {('int', 'text', 'numeric', 'timestamptz', 'bigint')[i % 5]}" for i in range(20))
MIXED_ROWS = "SELECT " + ", ".join(
    ("i", "md5(i::text)", "i * 1.01", "timestamptz '2020-01-01' + i * interval '1 s'", "i::bigint")[i % 5]
    for i in range(20)) + " FROM generate_series(1, {n5}) i"
TOASTED = "id int, f text"
TOASTED_ROWS = "SELECT i, value FROM generate_series(1, {n50}) i, big"


def table(columns=ROW, rows=FROM_SRC, key=False, more=(), options="", kind="TABLE", vacuum=True):
    """Returns commands that create and fill a table."""
    made = ["DROP TABLE IF EXISTS {t}_child", "DROP TABLE IF EXISTS {t}",
            f"CREATE {kind} {{t}} ({columns}) USING {{am}} WITH ({', '.join(filter(None, (OPTIONS, options)))})"]
    if rows:
        made.append(f"INSERT INTO {{t}} {rows}")
    if key:
        made.append("ALTER TABLE {t} ADD PRIMARY KEY (id)")
    made += more
    if vacuum and rows:
        made.append("VACUUM (ANALYZE) {t}")
    return made


def empty(**options):
    """Returns commands that create an empty table."""
    return table(rows=None, **options)


def child(action=""):
    """Returns commands that create a table with a key, and an empty table that refers to it."""
    return table(key=True) + [f"CREATE TABLE {{t}}_child (id int, parent int REFERENCES {{t}} {action}) USING {{am}}"
                              f" WITH ({OPTIONS})"]


def loop(times, command, declare=""):
    """Returns a DO block that runs the command for i from 1 to times."""
    return f"DO $${declare}BEGIN FOR i IN 1..{times} LOOP {command} END LOOP; END$$"


def trigger(name, event, body):
    """Returns commands that create an AFTER row trigger."""
    return [f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN {body} RETURN NULL; END'",
            f"CREATE TRIGGER {name} AFTER {event} ON {{t}} FOR EACH ROW EXECUTE FUNCTION {name}()"]


UPDATE = "UPDATE {t} SET v = v + 1"
INSERT = "INSERT INTO {t} SELECT * FROM src"
LOCK_ALL = "SELECT count(*) FROM (SELECT 1 FROM {t} FOR UPDATE) x"
INSERT_ONE = "INSERT INTO {t} VALUES (i, i, i, 'abcdefghijklmnopqrstuvwxyz');"
SOME_KEY = "1 + (i::bigint * 7919) % {n}"
TEN_KEYS = ", ".join(f"i + {k} * {{n10}}" for k in range(10))
LOCK_ONE = f"PERFORM v FROM {{t}} WHERE id = {SOME_KEY} FOR UPDATE;"
SUM = "SELECT sum(v) FROM {t}"
SERIAL = ["SET max_parallel_workers_per_gather = 0", "SET jit = off"]
BY_INDEX = SERIAL + ["SET enable_seqscan = off", "SET enable_bitmapscan = off", "SET enable_sort = off",
                     "SET enable_indexonlyscan = off"]
BY_ONLY_INDEX = SERIAL + ["SET enable_seqscan = off", "SET enable_bitmapscan = off"]
BY_BITMAP = SERIAL + ["SET enable_seqscan = off", "SET enable_indexscan = off", "SET enable_indexonlyscan = off"]
PARALLEL = ["SET max_parallel_workers_per_gather = 2", "SET min_parallel_table_scan_size = 0",
            "SET parallel_setup_cost = 0", "SET parallel_tuple_cost = 0"]
BUILD = ["SET max_parallel_maintenance_workers = 0", "SET maintenance_work_mem = '512MB'"]
CREATE_INDEX = "CREATE INDEX {t}_x ON {t} (r)"
BIG = table(key=True, more=["CREATE INDEX {t}_r ON {t} (r)", "CREATE INDEX {t}_v ON {t} (v)"])
IN_ORDER = "SELECT sum(v) FROM (SELECT v FROM {t} ORDER BY id OFFSET 0) x"
AT_RANDOM = "SELECT sum(v) FROM (SELECT v FROM {t} ORDER BY r OFFSET 0) x"
READ_KEYS = loop("{n3}", f"SELECT v INTO x FROM {{t}} WHERE id = {SOME_KEY};", "DECLARE x int; ")
RANDOM_UPDATES = loop("{n3}", f"{UPDATE} WHERE id = {SOME_KEY}; COMMIT;")

WRITES = [
    Operation("insert", "write", "INSERT ... SELECT, no index", INSERT, empty()),
    Operation("insert_pk", "write", "the same with a primary key", INSERT, empty(key=True)),
    Operation("insert_narrow", "write", "the same, rows of one int", "INSERT INTO {t} SELECT id FROM src",
              empty(columns="id int")),
    Operation("insert_wide", "write", "INSERT of rows of 100 ints", f"INSERT INTO {{t}} {WIDE_ROWS}",
              empty(columns=WIDE), divisor=10),
    Operation("insert_mixed", "write", "INSERT of rows of 20 columns of five types", f"INSERT INTO {{t}} {MIXED_ROWS}",
              empty(columns=MIXED), divisor=5),
    Operation("copy", "write", "COPY, no index", "COPY {t} FROM '{file}'", empty()),
    Operation("copy_pk", "write", "COPY with a primary key", "COPY {t} FROM '{file}'", empty(key=True)),
    Operation("ctas", "write", "CREATE TABLE AS", "CREATE TABLE {t} USING {am} AS SELECT * FROM src",
              ["DROP TABLE IF EXISTS {t}"]),
    Operation("refresh", "write", "REFRESH MATERIALIZED VIEW", "REFRESH MATERIALIZED VIEW {t}_view",
              table() + ["DROP MATERIALIZED VIEW IF EXISTS {t}_view",
                         "CREATE MATERIALIZED VIEW {t}_view USING {am} AS SELECT i AS id, i % 1000 AS v,"
                         " 'abcdefghijklmnopqrstuvwxyz'::text AS f FROM generate_series(1, {n}) i"]),
    Operation("insert_unlogged", "write", "INSERT into an unlogged table", INSERT, empty(kind="UNLOGGED TABLE")),
    Operation("insert_temp", "write", "INSERT into a temporary table", INSERT, empty(kind="TEMP TABLE")),
    Operation("insert_trigger", "write", "INSERT with an AFTER row trigger", f"{INSERT} WHERE id <= {{n5}}",
              empty(more=trigger("after_insert", "INSERT", "")), divisor=5),
    Operation("insert_1stmt", "write", "INSERT of one row by each command of one transaction",
              loop("{n5}", INSERT_ONE), empty(), divisor=5),
    Operation("refill", "write", "INSERT of half the rows after DELETE and VACUUM", f"{INSERT} WHERE id % 2 = 0",
              table(key=True, more=["DELETE FROM {t} WHERE id % 2 = 0"]), divisor=2),
    Operation("upsert", "write", "INSERT ... ON CONFLICT DO UPDATE, all conflict",
              f"{INSERT} ON CONFLICT (id) DO UPDATE SET v = {{t}}.v + 1", table(key=True)),
    Operation("upsert_new", "write", "INSERT ... ON CONFLICT DO NOTHING, none conflicts",
              f"{INSERT} ON CONFLICT (id) DO NOTHING", empty(key=True)),
    Operation("toast_insert", "write", "INSERT of rows with 8 kB out of line", f"INSERT INTO {{t}} {TOASTED_ROWS}",
              empty(columns=TOASTED), divisor=50),
    Operation("fk_insert", "write", "INSERT of rows that refer to 256 parents",
              "INSERT INTO {t}_child SELECT id, 1 + (r & 255) FROM src WHERE id <= {n5}", child(), divisor=5),
    Operation("fk_insert_many", "write", "INSERT of rows that refer each to another parent",
              "INSERT INTO {t}_child SELECT id, id FROM src WHERE id <= {n5}", child(), divisor=5),
    Operation("update_all", "write", "UPDATE of all rows, no index, full pages", UPDATE, table()),
    Operation("update_all_pk", "write", "the same with a primary key", UPDATE, table(key=True)),
    Operation("update_all_ff50", "write", "the same at fillfactor 50: HOT on heap", UPDATE,
              table(key=True, options="fillfactor = 50")),
    Operation("update_again", "write", "UPDATE of all rows, once before and vacuumed", UPDATE,
              table(key=True, more=[UPDATE])),
    Operation("update_10pct", "write", "UPDATE of each tenth row", f"{UPDATE} WHERE id % 10 = 0", table(key=True)),
    Operation("update_text", "write", "UPDATE of a text of 32 bytes to another", "UPDATE {t} SET f = md5(f)",
              table(key=True)),
    Operation("update_grow", "write", "UPDATE that makes all rows longer",
              "UPDATE {t} SET f = f || 'twenty bytes longer!'", table(key=True)),
    Operation("update_indexed", "write", "UPDATE of an indexed column", UPDATE,
              table(key=True, more=["CREATE INDEX ON {t} (v)"])),
    Operation("update_3idx", "write", "UPDATE of one column, three indexes on others", UPDATE,
              table(key=True, more=["CREATE INDEX ON {t} (r)", "CREATE INDEX ON {t} (f)"])),
    Operation("update_wide", "write", "UPDATE of one of 100 ints", "UPDATE {t} SET c50 = c50 + 1",
              table(columns=WIDE, rows=WIDE_ROWS), divisor=10),
    Operation("update_temp", "write", "UPDATE of all rows of a temporary table", UPDATE, table(kind="TEMP TABLE")),
    Operation("update_trigger", "write", "UPDATE with an AFTER row trigger", UPDATE,
              table(key=True, more=trigger("after_update", "UPDATE",
                                           "IF OLD.v > NEW.v THEN RAISE EXCEPTION ''?''; END IF;"))),
    Operation("toast_other", "write", "UPDATE of another column of rows with 8 kB out of line",
              "UPDATE {t} SET id = -id", table(columns=TOASTED, rows=TOASTED_ROWS), divisor=50),
    Operation("update_serializable", "write", "UPDATE of all rows by a serializable transaction", UPDATE,
              table(key=True), before="SET default_transaction_isolation = serializable"),
    Operation("update_deferrable", "write", "UPDATE of a deferrable key", "UPDATE {t} SET id = id + {n}",
              table(more=["ALTER TABLE {t} ADD PRIMARY KEY (id) DEFERRABLE"])),
    Operation("merge", "write", "MERGE that updates all rows",
              "MERGE INTO {t} d USING src s ON d.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v + 1", table(key=True)),
    Operation("delete_all", "write", "DELETE of all rows", "DELETE FROM {t}", table(key=True)),
    Operation("delete_half", "write", "DELETE of each second row", "DELETE FROM {t} WHERE id % 2 = 0", table(key=True),
              divisor=2),
    Operation("delete_cascade", "write", "DELETE of rows that are referred to ON DELETE CASCADE", "DELETE FROM {t}",
              child("ON DELETE CASCADE") + ["INSERT INTO {t}_child SELECT id, id FROM src",
                                            "CREATE INDEX ON {t}_child (parent)", "VACUUM (ANALYZE) {t}_child"]),
    Operation("delete_own", "write", "DELETE of rows that the same transaction has inserted", "DELETE FROM {t}",
              empty(), before=["BEGIN", INSERT], after="COMMIT"),
    Operation("delete_4kb", "write", "DELETE of rows of 4 kB", "DELETE FROM {t}",
              empty(columns=TOASTED,
                    more=["ALTER TABLE {t} ALTER f SET STORAGE PLAIN",
                          "INSERT INTO {t} SELECT i, substr(value, 1 + i % 4000, 3900) FROM generate_series(1, {n50}) i, big",
                          "VACUUM (ANALYZE) {t}"]), divisor=50),
    Operation("toast_delete", "write", "DELETE of rows with 8 kB out of line", "DELETE FROM {t}",
              table(columns=TOASTED, rows=TOASTED_ROWS), divisor=50),
    Operation("lock_update", "write", "SELECT FOR UPDATE of all rows", LOCK_ALL, table(key=True)),
    Operation("lock_keyshare", "write", "SELECT FOR KEY SHARE of all rows",
              "SELECT count(*) FROM (SELECT 1 FROM {t} FOR KEY SHARE) x", table(key=True)),
    Operation("lock_again", "write", "SELECT FOR UPDATE of all rows, the second in its transaction", LOCK_ALL,
              table(key=True), before=["BEGIN", LOCK_ALL], after="COMMIT"),
    Operation("lock_upgrade", "write", "the same after SELECT FOR KEY SHARE", LOCK_ALL, table(key=True),
              before=["BEGIN", "SELECT count(*) FROM (SELECT 1 FROM {t} FOR KEY SHARE) x"], after="COMMIT"),
    Operation("update_locked", "write", "UPDATE of all rows after SELECT FOR UPDATE", UPDATE,
              table(key=True, options="fillfactor = 50"), before=["BEGIN", LOCK_ALL], after="COMMIT"),
    Operation("rollback_update", "write", "ROLLBACK of an UPDATE of all rows", "ROLLBACK", table(key=True),
              before=["BEGIN", UPDATE]),
    Operation("rollback_then_count", "write", "the same and a scan at once", ["ROLLBACK", SUM], table(key=True),
              before=SERIAL + ["BEGIN", UPDATE]),
]

TRANSACTIONS = [
    Operation("txn_insert", "txn", "INSERT of one row, COMMIT", loop("{n10}", INSERT_ONE + " COMMIT;"), empty(),
              divisor=10),
    Operation("txn_insert_pk", "txn", "the same with a primary key", loop("{n10}", INSERT_ONE + " COMMIT;"),
              empty(key=True), divisor=10),
    Operation("txn_update", "txn", "UPDATE of one row by key, COMMIT",
              loop("{n10}", f"{UPDATE} WHERE id = {SOME_KEY}; COMMIT;"), table(key=True), divisor=10),
    Operation("txn_update_hot", "txn", "the same, always one of 8 rows",
              loop("{n10}", f"{UPDATE} WHERE id = 1 + i % 8; COMMIT;"), table(key=True), divisor=10),
    Operation("txn_delete", "txn", "DELETE of one row by key, COMMIT",
              loop("{n10}", f"DELETE FROM {{t}} WHERE id = {SOME_KEY}; COMMIT;"), table(key=True), divisor=10),
    Operation("txn_delete_ten", "txn", "DELETE of ten rows by a list of keys, COMMIT",
              loop("{n10}", f"DELETE FROM {{t}} WHERE id IN ({TEN_KEYS}); COMMIT;"), table(key=True), divisor=10),
    Operation("txn_lock", "txn", "SELECT FOR UPDATE of one row by key, COMMIT",
              loop("{n10}", LOCK_ONE + " COMMIT;"), table(key=True), divisor=10),
    Operation("txn_lock_update", "txn", "the same, and UPDATE of that row before COMMIT",
              loop("{n10}", f"{LOCK_ONE} {UPDATE} WHERE id = {SOME_KEY}; COMMIT;"), table(key=True), divisor=10),
    Operation("txn_select", "txn", "SELECT of one row by key, COMMIT",
              loop("{n10}", f"SELECT v INTO x FROM {{t}} WHERE id = {SOME_KEY}; COMMIT;", "DECLARE x int; "),
              table(key=True), shared="pk", divisor=10),
    Operation("txn_queue", "txn", "the first row by key taken and deleted, COMMIT",
              loop("{n10}", "DELETE FROM {t} WHERE id = (SELECT id FROM {t} ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED);"
                   " COMMIT;"), table(key=True), before="SET synchronous_commit = on", divisor=10),
    Operation("subxacts", "txn", "UPDATE by key, each in a subtransaction",
              loop("{n10}", f"BEGIN {UPDATE} WHERE id = i; EXCEPTION WHEN division_by_zero THEN END;"),
              table(key=True), divisor=10),
]

READS = [
    Operation("seq_first", "read", "count(*), first scan after loading", "SELECT count(*) FROM {t}",
              table(vacuum=False), before=SERIAL),
    Operation("seq_count", "read", "count(*) by sequential scan", "SELECT count(*) FROM {t}", BIG,
              before=SERIAL + ["SET enable_indexonlyscan = off"], shared="big"),
    Operation("seq_sum", "read", "sum of the second column", "SELECT sum(v) FROM {t}", BIG,
              before=SERIAL + ["SET enable_indexonlyscan = off"], shared="big"),
    Operation("seq_filter", "read", "a filter that no row passes", "SELECT count(*) FROM {t} WHERE v + 0 = -1", BIG,
              before=SERIAL + ["SET enable_indexonlyscan = off"], shared="big"),
    Operation("seq_text", "read", "length of a text", "SELECT sum(length(f)) FROM {t}", BIG, before=SERIAL,
              shared="big"),
    Operation("seq_parallel", "read", "sum by a parallel scan", "SELECT sum(v) FROM {t}", BIG,
              before=PARALLEL + ["SET enable_indexonlyscan = off"], shared="big"),
    Operation("seq_wide", "read", "the last of 100 ints", "SELECT sum(c99) FROM {t}",
              table(columns=WIDE, rows=WIDE_ROWS), before=SERIAL, shared="wide", divisor=10),
    Operation("seq_wide_jit", "read", "the same with JIT", "SELECT sum(c99) FROM {t}",
              table(columns=WIDE, rows=WIDE_ROWS), shared="wide", divisor=10,
              before=SERIAL[:1] + ["SET jit = on", "SET jit_above_cost = 0", "SET jit_inline_above_cost = 0",
                                   "SET jit_optimize_above_cost = 0"], warm="SELECT sum(c99) FROM {t}"),
    Operation("seq_mixed", "read", "the last of 20 columns of five types", "SELECT count(c19), max(c18) FROM {t}",
              table(columns=MIXED, rows=MIXED_ROWS), before=SERIAL, shared="mixed", divisor=5),
    Operation("seq_numeric", "read", "the third of 20, a numeric", "SELECT sum(c2) FROM {t}",
              table(columns=MIXED, rows=MIXED_ROWS), before=SERIAL, shared="mixed", divisor=5),
    Operation("sort", "read", "a sort of whole rows",
              "SELECT count(*) FROM (SELECT * FROM {t} ORDER BY f OFFSET 0) x", BIG,
              before=SERIAL + ["SET work_mem = '512MB'"], shared="big"),
    Operation("sort_wide", "read", "a sort of rows of 100 columns",
              "SELECT count(*) FROM (SELECT * FROM {t} ORDER BY c50 OFFSET 0) x",
              table(columns=WIDE, rows=WIDE_ROWS), before=SERIAL + ["SET work_mem = '1GB'"], shared="wide", divisor=10),
    Operation("index_scan", "read", "index scan in the table's order", IN_ORDER, BIG, before=BY_INDEX, shared="big"),
    Operation("index_random", "read", "index scan in random order", AT_RANDOM, BIG, before=BY_INDEX, shared="big"),
    Operation("index_only", "read", "index-only scan, all visible", "SELECT count(id) FROM {t} WHERE id > 0", BIG,
              before=BY_ONLY_INDEX, shared="big"),
    Operation("index_only_dirty", "read", "the same, each page updated since VACUUM",
              "SELECT count(id) FROM {t} WHERE id > 0", BIG + ["UPDATE {t} SET f = f WHERE id % 50 = 0"],
              before=BY_ONLY_INDEX, shared="dirty"),
    Operation("bitmap", "read", "bitmap scan of a tenth of the rows, on all pages",
              "SELECT sum(v) FROM {t} WHERE v BETWEEN 100 AND 199", BIG, before=BY_BITMAP, shared="big", divisor=10),
    Operation("bitmap_1", "read", "bitmap scans of one row each",
              loop("{n30}", "SELECT sum(v) INTO x FROM {t} WHERE r = i;", "DECLARE x int; "), BIG, before=BY_BITMAP,
              shared="big", divisor=30),
    Operation("bitmap_sparse", "read", "bitmap scan of one row in 1000", "SELECT sum(v) FROM {t} WHERE v = 100", BIG,
              before=BY_BITMAP, shared="big", divisor=1000),
    Operation("nestloop", "read", "nested loop by key", "SELECT sum(b.v) FROM src a JOIN {t} b ON b.id = a.id", BIG,
              before=SERIAL + ["SET enable_hashjoin = off", "SET enable_mergejoin = off", "SET enable_material = off",
                               "SET enable_memoize = off"], shared="big"),
    Operation("hashjoin", "read", "hash join with itself", "SELECT sum(b.v) FROM {t} a JOIN {t} b ON b.id = a.r", BIG,
              before=SERIAL + ["SET enable_nestloop = off", "SET enable_mergejoin = off", "SET work_mem = '512MB'"],
              shared="big"),
    Operation("sample", "read", "TABLESAMPLE BERNOULLI (10)",
              "SELECT sum(v) FROM {t} TABLESAMPLE BERNOULLI (10) REPEATABLE (1)", BIG, before=SERIAL, shared="big"),
    Operation("toast_read", "read", "length of values out of line", "SELECT sum(length(f)) FROM {t}",
              table(columns=TOASTED, rows=TOASTED_ROWS), before=SERIAL, shared="toast", divisor=50),
    Operation("point", "read", "SELECT of rows by key, one transaction", READ_KEYS,
              table(key=True, more=[UPDATE]), divisor=3, shared="updated"),
    Operation("point_beside", "read", "the same of rows changed since a long transaction began", READ_KEYS,
              table(key=True), snapshot="other", changes=RANDOM_UPDATES, divisor=3, beside="point"),
    Operation("scan_after_update", "read", "first scan after an UPDATE of all rows", SUM,
              table(key=True, more=[UPDATE], vacuum=False), before=SERIAL),
    Operation("scan_own_update", "read", "the same in the updating transaction", SUM, table(key=True),
              before=SERIAL + ["BEGIN", UPDATE], after="COMMIT"),
]

OLD_SNAPSHOT = [
    Operation("seq_idle", "old", "sum of the second column, nothing changed", SUM, table(key=True), before=SERIAL,
              shared="idle"),
    Operation("seq_old_first", "old", "first scan by a snapshot older than updates of a third of the rows, one each", SUM,
              table(key=True), before=SERIAL, snapshot="own", changes=RANDOM_UPDATES, beside="seq_idle"),
    Operation("seq_old_second", "old", "the second scan by it", SUM, table(key=True), before=SERIAL, snapshot="own",
              changes=RANDOM_UPDATES, warm=SUM, beside="seq_idle"),
    Operation("scan_old_snapshot", "old", "scan by a snapshot older than three UPDATEs of all rows", SUM,
              table(key=True), before=SERIAL, snapshot="own", changes=[UPDATE] * 3, beside="seq_idle"),
    Operation("index_old_1", "old", "index range scan by a snapshot older than an UPDATE of all rows", IN_ORDER,
              table(key=True), before=BY_INDEX, snapshot="own", changes=[UPDATE]),
    Operation("index_old_3", "old", "the same after three", IN_ORDER, table(key=True), before=BY_INDEX,
              snapshot="own", changes=[UPDATE] * 3),
    Operation("random_old_1", "old", "reads by key in random order by a snapshot older than an UPDATE of all rows",
              READ_KEYS, table(key=True), before=SERIAL, snapshot="own", changes=[UPDATE], divisor=3),
    Operation("random_old_3", "old", "the same after three", READ_KEYS, table(key=True), before=SERIAL,
              snapshot="own", changes=[UPDATE] * 3, divisor=3),
    Operation("create_index_old", "old", "CREATE INDEX beside a snapshot older than an UPDATE of all rows",
              CREATE_INDEX, table(key=True), before=BUILD, snapshot="other", changes=[UPDATE]),
]

MAINTENANCE = [
    Operation("analyze", "maint", "ANALYZE", "ANALYZE {t}", BIG, shared="big"),
    Operation("vacuum_clean", "maint", "VACUUM with nothing to do", "VACUUM {t}", BIG, shared="big"),
    Operation("vacuum_load", "maint", "first VACUUM after loading", "VACUUM {t}", table(key=True, vacuum=False)),
    Operation("vacuum_delete", "maint", "VACUUM after DELETE of half, one index", "VACUUM {t}",
              table(key=True) + ["DELETE FROM {t} WHERE id % 2 = 0"]),
    Operation("vacuum_update", "maint", "VACUUM after UPDATE of all", "VACUUM {t}", table(key=True) + [UPDATE]),
    Operation("vacuum_full", "maint", "VACUUM FULL", "VACUUM FULL {t}", table(key=True)),
    Operation("cluster", "maint", "CLUSTER by another index", "CLUSTER {t} USING {t}_r",
              table(key=True, more=["CREATE INDEX {t}_r ON {t} (r)"])),
    Operation("create_index", "maint", "CREATE INDEX on an int", CREATE_INDEX, table(), before=BUILD),
    Operation("create_index_par", "maint", "the same with parallel workers", CREATE_INDEX, table(),
              before=["SET max_parallel_maintenance_workers = 2", "SET min_parallel_table_scan_size = 0",
                      "SET maintenance_work_mem = '512MB'"]),
    Operation("create_index_text", "maint", "CREATE INDEX on a text", 'CREATE INDEX {t}_x ON {t} (f COLLATE "C")',
              table(), before=BUILD),
    Operation("create_index_conc", "maint", "CREATE INDEX CONCURRENTLY",
              "CREATE INDEX CONCURRENTLY {t}_x ON {t} (r)", table(), before=BUILD),
    Operation("create_brin", "maint", "CREATE INDEX USING brin", "CREATE INDEX {t}_x ON {t} USING brin (id)", table()),
    Operation("index_same_txn", "maint", "CREATE INDEX in the transaction that inserted the rows", CREATE_INDEX,
              empty(), before=BUILD + ["BEGIN", INSERT], after="COMMIT"),
    Operation("index_after_update", "maint", "CREATE INDEX in the transaction that updated all rows", CREATE_INDEX,
              table(vacuum=False), before=BUILD + ["BEGIN", UPDATE], after="COMMIT"),
    Operation("alter_type", "maint", "ALTER TABLE that rewrites", "ALTER TABLE {t} ALTER v TYPE bigint",
              table(key=True)),
]

OPERATIONS = {operation.name: operation for operation in WRITES + TRANSACTIONS + READS + OLD_SNAPSHOT + MAINTENANCE}

# The operations that are part of --workload all.
FEW = ("fk_insert", "create_index_old", "index_old_1")

SOURCES = [
    "DROP TABLE IF EXISTS src, big",
    "CREATE UNLOGGED TABLE src (id int, v int, r int, f text) USING heap WITH (autovacuum_enabled = off)",
    "INSERT INTO src SELECT i, i % 1000, (i::bigint * 7919 % {n})::int, md5(i::text) FROM generate_series(1, {n}) i",
    "VACUUM (ANALYZE) src",
    "CREATE UNLOGGED TABLE big (value text) USING heap WITH (autovacuum_enabled = off)",
    "INSERT INTO big SELECT string_agg(md5(i::text), '') FROM generate_series(1, 256) i",
]


def fill_in(text, table_name, method, rows, file):
    """Returns the command with its placeholders replaced."""
    values = {"t": table_name, "am": method, "n": rows, "file": file}
    values.update({f"n{d}": max(rows // d, 1) for d in (3, 5, 10, 30, 50)})
    for key, value in values.items():
        text = text.replace("{" + key + "}", str(value))
    return text


def chosen(names, default):
    """Returns the operations of a comma-separated list, or of default; raises KeyError with an unknown name."""
    wanted = [name for name in names.split(",") if name] if names else list(default)
    for name in wanted:
        if name not in OPERATIONS:
            raise KeyError(name)
    return [OPERATIONS[name] for name in wanted]
