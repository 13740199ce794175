"""Generates random histories: the tables, and the statements of the sessions.

This file has the basic statements; wide.py adds those of --wide.
"""

COLUMNS = "id int, a int, b text, c int[], e bigint"
SHOW = "id, a, left(b, 6) || length(b) || md5(b) AS b, c, e"


class Table:
    """A table of a history, which is the same on both sides."""

    def __init__(self, rng, name, flags):
        self.name = name
        self.key = rng.random() < 0.75
        self.rows = rng.choice([5, 10, 30, 80, 200])
        self.width = rng.choice([10, 40, 200, 1000])
        self.fillfactor = rng.choice([100, 100, 70, 30])
        self.indexes = []
        self.serial = 0
        kinds = ["(a)", "USING hash (a)", "USING gin (c)", "USING brin (a)", "(left(b, 20))", "(e) WHERE e IS NOT NULL",
                 "(a, id)", "(id)", "(a) INCLUDE (e)", "USING brin (id)", "(e DESC, a)"]
        for kind in rng.sample(kinds, rng.choice([0, 0, 1, 1, 2, 3])):
            self.indexes.append(kind)
        self.trigger = flags.triggers and rng.random() < 0.5
        self.temp = "TEMP " if flags.temp else ""
        self.on_commit = " ON COMMIT DELETE ROWS" if flags.temp and rng.random() < 0.2 else ""
        if flags.locks:
            self.key = True
            self.rows = rng.choice([2, 5, 9])
            self.indexes = ["(a)"]
        elif flags.zbtree:
            for kind in rng.sample(["(a, id)", "(a) INCLUDE (e)", "(e DESC, a)", "(a DESC NULLS LAST, e)",
                                    "(a, id) WHERE e > 0", "(e) INCLUDE (a) WHERE a IN (0, 2)", "(id) WHERE a = 1 OR e IS NULL"], 3):
                if kind not in self.indexes:
                    self.indexes.append(kind)
        self.extra = ""                 # further columns and constraints
        self.narrow = False             # columns b and c start as NULL
        self.leaves = [name]            # the tables with the rows

    def create(self, rng):
        """Yields the statements that create and fill the table."""
        yield from self.create_relations()
        b, c = ("NULL", "NULL") if self.narrow else (f"txt({self.width} + g % 30, g)", "ARRAY[g % 5, g % 3]")
        yield (f"INSERT INTO {self.name} SELECT g, g % 7, {b}, {c}, "
               f"CASE WHEN g % 4 > 0 THEN g * 1000000007::bigint END FROM generate_series(1, {self.rows}) g")
        yield from self.create_indexes(rng)
        yield from self.create_triggers(rng)

    def columns(self):
        """Returns the definitions of all columns and constraints."""
        return (COLUMNS.replace("id int,", "id int PRIMARY KEY,") if self.key else COLUMNS) + self.extra

    def create_relations(self):
        """Yields the statements that create the table, or a partitioned table with its partitions."""
        options = f" WITH (fillfactor = {self.fillfactor}, autovacuum_enabled = off)"
        yield f"CREATE {self.temp}TABLE {self.name} ({self.columns()}){options}{self.on_commit}"

    def create_indexes(self, rng):
        """Yields the statements that create its indexes."""
        for kind in self.indexes:
            self.serial += 1
            yield f"CREATE INDEX {self.name}_i{self.serial} ON {self.name} {kind}"
        if self.key and len(self.leaves) == 1 and rng.random() < 0.15:
            yield f"CREATE UNIQUE INDEX {self.name}_u ON {self.name} (e)"

    def create_triggers(self, rng):
        """Yields the statements that create triggers, which note every change."""
        if self.trigger:
            for deferred in rng.choice([[False], [True], [False, True]]):
                kind, name, when = ("CONSTRAINT ", "later", "DEFERRABLE INITIALLY DEFERRED ") if deferred else ("", "note", "")
                yield (f"CREATE {kind}TRIGGER {name} AFTER INSERT OR UPDATE OR DELETE ON {self.name} {when}"
                       "FOR EACH ROW EXECUTE FUNCTION public.note_change()")


class Generator:
    """Makes the steps of one history.

    A step is a dictionary. s: the session, -1 for the maintenance session. sql: the
    statement. many: whether it locks several rows in an order that it does not
    state. kind, which decides when it may run (Run.allowed in history.py):
        begin, end, savepoint, set, read
        lock            takes row locks
        maintenance     VACUUM and the like
        beside          runs while no session waits
        ddl             runs while no session waits and at most one transaction is open
        ddl-alone       runs while no session waits and no transaction is open
        zheap           runs only on the zheap side
    """

    def __init__(self, rng, flags):
        self.rng = rng
        self.flags = flags
        self.tables = [self.new_table(f"t{n}") for n in range(1 if flags.locks else rng.choice([1, 1, 2, 3]))]
        self.changes = flags.triggers   # is there a table for the changes that triggers note?

    def new_table(self, name):
        """Returns a random table."""
        return Table(self.rng, name, self.flags)

    def spec(self):
        """Returns what the history needs in addition to its steps: sessions, set-up, length and so on."""
        rng = self.rng
        return {
            "sessions": 1 if self.flags.temp else self.flags.sessions,
            "setup": list(self.setup()),
            "length": rng.choice([30, 60, 120, 200]),
            "max_waiters": rng.choice([1, 1, 1, 2, 3]),
            "commit": rng.random() < 0.6,
            "settings": [f"SET zundo.eager_rollback_pages = {rng.choice([0, 1, 32, 32])}"],
        }

    def setup(self):
        """Yields the statements that run before the sessions start."""
        if self.changes:
            yield f"CREATE {'TEMP ' if self.flags.temp else ''}TABLE changes (tab text, op text, o text, n text)"
        for table in self.tables:
            yield from table.create(self.rng)
        if self.flags.fk:
            for table in self.tables:
                if table.key:
                    yield (f"CREATE {table.temp}TABLE {table.name}_child (id int PRIMARY KEY, p int REFERENCES {table.name} "
                           f"{self.rng.choice(['', 'ON DELETE CASCADE', 'ON UPDATE CASCADE', 'ON DELETE SET NULL'])} "
                           f"{self.rng.choice(['', 'DEFERRABLE', 'DEFERRABLE INITIALLY DEFERRED'])}, n int){table.on_commit}")
                    yield f"INSERT INTO {table.name}_child SELECT g, g, 0 FROM generate_series(1, {0 if table.on_commit else min(table.rows, 10)}) g"

    def text(self):
        """Returns an expression for the text column."""
        rng = self.rng
        kind = rng.random()
        if kind < 0.1:
            return "NULL"
        if kind < 0.2:
            return "''"
        if kind < 0.24:
            return f"txt({rng.choice([2500, 3000, 9000, 20000])}, {rng.randint(0, 99)})"
        if kind < 0.30:
            return f"repeat('x', {rng.choice([3000, 20000, 100000])})"
        return f"txt({rng.choice([1, 5, 20, 60, 150, 400, 900, 1900])} + {rng.randint(0, 9)}, {rng.randint(0, 999)})"

    def number(self, table):
        """Returns a key that may exist."""
        return self.rng.randint(1, max(3, int(table.rows * 1.1)))

    def values(self, key):
        """Returns one row of VALUES."""
        rng = self.rng
        a = rng.choice(["NULL", str(rng.randint(0, 9))])
        c = rng.choice(["NULL", "'{}'", f"ARRAY[{rng.randint(0, 5)}, {rng.randint(0, 5)}, {rng.randint(0, 5)}]"])
        e = rng.choice(["NULL", str(rng.randint(-9, 9)), str(rng.randint(0, 1 << 60))])
        return f"({key}, {a}, {self.text()}, {c}, {e})"

    def assignments(self, table, moves):
        """Returns the SET list of an UPDATE; moves: it may change the key."""
        rng = self.rng
        b = rng.choice(["b || 'y'", "left(b, length(b) / 2)", "b || b", "left(b, 10)", self.text(), self.text()])
        if "b || b" in b:
            b = "left(b || b, 4000)"
        choices = ["a = coalesce(a, 0) + 1", f"a = {rng.randint(0, 9)}", "a = NULL", f"b = {b}", f"b = {b}",
                   "c = c || 7", f"c = ARRAY[{rng.randint(0, 5)}]", "e = coalesce(e, 0) + 1", "e = NULL",
                   f"e = {rng.randint(0, 1 << 60)}", "id = id", "a = a"]
        chosen = rng.sample(choices, rng.choice([1, 1, 1, 2, 3]))
        if moves and rng.random() < 0.15:
            chosen.append(f"id = id + {rng.choice([1000, -1000])}")
        taken = {}
        for item in chosen:
            taken[item.split(" = ")[0]] = item
        return ", ".join(taken.values())

    def child_step(self, table):
        """Returns a change of one row that refers to a row of table."""
        rng = self.rng
        child, key, parent = f"{table.name}_child", rng.randint(1, 14), self.number(table)
        return rng.choice([f"INSERT INTO {child} VALUES ({key}, {parent}, 0)", f"DELETE FROM {child} WHERE id = {key}",
                           f"UPDATE {child} SET n = n + 1 WHERE id = {key}", f"UPDATE {child} SET n = n - 1 WHERE id = {key}",
                           f"UPDATE {child} SET p = {parent} WHERE id = {key}", f"UPDATE {child} SET p = NULL WHERE id = {key}",
                           f"UPDATE {child} SET p = {parent}, n = 0 WHERE id = {key}",
                           f"UPDATE {child} SET id = id + {rng.randint(1, 3)} WHERE id = {key}"])

    def where(self, table, one):
        """Returns a condition that is true for one row (if the table has a key) or for several rows."""
        rng = self.rng
        if one:
            if rng.random() < 0.08:
                return f"id = {self.number(table)} + 1000"
            return f"id = {self.number(table)}"
        k = self.number(table)
        return rng.choice([f"id BETWEEN {k} AND {k + rng.randint(0, 12)}", f"a = {rng.randint(0, 9)}",
                           f"id % 5 = {rng.randint(0, 4)}", "true", f"c @> ARRAY[{rng.randint(0, 5)}]",
                           f"e IS NULL AND id < {k}", f"id IN ({k}, {k + 3}, {self.number(table)})",
                           f"a BETWEEN 2 AND {rng.randint(2, 9)}"])

    def lock_step(self, made, table):
        """Returns a step that locks rows, or changes one that other sessions may have locked."""
        rng = self.rng
        k = rng.randint(1, table.rows)
        choice = rng.random()
        strength = rng.choice(["UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE", "KEY SHARE", "KEY SHARE"])
        wait = rng.choice(["", "", " NOWAIT", " SKIP LOCKED"])
        if choice < 0.4:
            return made(f"SELECT id, a, e FROM {table.name} WHERE id = {k} FOR {strength}{wait}", "lock")
        if choice < 0.5:
            return made(f"SELECT id, a, e FROM {table.name} WHERE id <= {k + 1} ORDER BY id FOR {strength}{wait}", "lock")
        change = rng.choice(["a = coalesce(a, 0) + 1", "a = coalesce(a, 0) + 1", "a = coalesce(a, 0) + 1", "e = coalesce(e, 0) + 1",
                             "e = coalesce(e, 0) + 1", "b = b || txt(900, 1)", "b = left(b, 5)", f"id = {rng.randint(1, table.rows)}"])
        if choice < 0.85:
            return made(f"UPDATE {table.name} SET {change} WHERE id = {k} RETURNING id, a, e", "lock")
        if choice < 0.9:
            return made(f"DELETE FROM {table.name} WHERE id = {k} RETURNING id, a, e", "lock")
        if choice < 0.95:
            return made(f"INSERT INTO {table.name} VALUES ({k}, 0, 'x', NULL, 0)", "lock")
        return {"s": -1, "sql": rng.choice(["SELECT zundo.discard()", "CHECK " + rng.choice(table.leaves)]), "kind": "zheap", "many": False}

    def key_step(self, made, table):
        """Returns a step that changes indexed columns to one of few values, or reads by one kind of scan, in index order."""
        rng = self.rng
        name = table.name
        if rng.random() < 0.5:
            change = rng.choice([f"a = {rng.randint(0, 3)}", f"a = {rng.randint(0, 3)}", "a = (coalesce(a, 0) + 1) % 3", "a = NULL",
                                 f"e = {rng.randint(0, 2)}", f"a = {rng.randint(0, 3)}, e = {rng.randint(0, 2)}", "e = -coalesce(e, 0)"])
            one = rng.random() < 0.7
            return made(f"UPDATE {name} SET {change} WHERE {self.where(table, one)}", "lock", not (one and table.key))
        low = rng.randint(-1, 3)
        query = rng.choice([f"SELECT a, id FROM {name} WHERE e > 0 AND a >= {low} ORDER BY a, id", f"SELECT e, a FROM {name} WHERE a = 2 AND e < 3 ORDER BY e",
                            f"SELECT id FROM {name} WHERE a = 1 ORDER BY id DESC", f"SELECT id, e FROM {name} WHERE e IS NULL AND id > {low} ORDER BY id",
                            f"SELECT a, id FROM {name} WHERE a BETWEEN {low} AND {low + rng.randint(0, 3)} ORDER BY a, id",
                            f"SELECT a, id FROM {name} WHERE a >= {low} ORDER BY a DESC, id DESC", f"SELECT a, id FROM {name} WHERE a IS NULL ORDER BY id",
                            f"SELECT e, a FROM {name} WHERE e <= {rng.randint(0, 3)} ORDER BY e DESC, a", f"SELECT e, a FROM {name} WHERE e > -5 ORDER BY e, a DESC",
                            f"SELECT a, e FROM {name} WHERE a = {low} ORDER BY e", f"SELECT a, e FROM {name} WHERE a > {low} ORDER BY a, e", f"SELECT min(a), max(a), count(a) FROM {name} WHERE a < 4",
                            f"SELECT a, count(*) FROM {name} WHERE a = ANY (ARRAY[0, 2, {low}]) GROUP BY a ORDER BY a DESC",
                            f"SELECT x.a, x.id, y.id AS other FROM {name} x JOIN {name} y ON x.a = y.a WHERE x.a < {low} AND x.id < 20 ORDER BY 1, 2, 3"])
        ways = rng.sample(["index", "index_only", "bitmap", "seq"], rng.choice([1, 2, 4]))
        return made("SELECT " + ", ".join(f"by_{way}($q${query}$q$)" for way in ways), "read")

    def wide_step(self, session, state, table):
        """Returns a step of wide.py, or None."""
        return None

    def insert_step(self, made, table, returning):
        """Returns a step that inserts one row or several: by VALUES, COPY or SELECT."""
        rng = self.rng
        name = table.name
        if rng.random() < 0.5:
            key = rng.randint(1, int(table.rows * 1.5) + 3)
            return made(f"INSERT INTO {name} VALUES {self.values(key)}{returning}", "lock")
        if rng.random() < 0.4:
            first = rng.randint(1, table.rows * 3)
            rows = ", ".join(self.values(first + n) for n in range(rng.randint(2, 9)))
            return made(f"INSERT INTO {name} VALUES {rows}{returning}", "lock", True)
        if rng.random() < 0.4:
            first = rng.randint(1, table.rows * 3)
            rows = "".join(f"{first + n}\\t{rng.randint(0, 9)}\\t{'z' * rng.randint(0, 300)}\\t\\\\N\\t{n}\\n"
                           for n in range(rng.randint(1, 20)))
            return made(f"COPY {name} (id, a, b, c, e) FROM PROGRAM $$printf '{rows}'$$", "lock", True)
        offset = rng.choice([1000, 2000, 300])
        return made(f"INSERT INTO {name} (id, a, b, c, e) SELECT id + {offset}, a, b, c, e FROM {name} "
                    f"WHERE {self.where(table, False)} ORDER BY id{returning}", "lock", True)

    def update_step(self, made, table, one, returning):
        """Returns a step that updates rows, or inserts or deletes them by an upsert or MERGE; one: mostly of one row."""
        rng = self.rng
        name = table.name
        exact = one and table.key
        if self.flags.on_conflict and rng.random() < 0.15 and table.key:
            return made(f"INSERT INTO {name} VALUES {self.values(self.number(table))} ON CONFLICT (id) DO "
                        + rng.choice(["NOTHING", f"UPDATE SET a = excluded.a, b = {name}.b || 'c'"])
                        + (returning and returning + ", xmax = 0"), "lock")
        if exact and rng.random() < 0.06:
            return made(f"MERGE INTO {name} t USING (VALUES ({self.number(table)})) AS v (k) ON t.id = v.k "
                        f"WHEN MATCHED AND t.a = 3 THEN DELETE WHEN MATCHED THEN UPDATE SET {self.assignments(table, False)} "
                        f"WHEN NOT MATCHED THEN INSERT (id, a, b) VALUES (v.k, 1, {self.text()})", "lock")
        if not one and table.key and rng.random() < 0.4:
            return made(f"UPDATE {name} t SET {self.assignments(table, False).replace('= b', '= t.b').replace('= a', '= t.a')} "
                        f"FROM (SELECT id AS k FROM {name} WHERE {self.where(table, False)} ORDER BY id FOR NO KEY UPDATE) o "
                        f"WHERE t.id = o.k", "lock", True)
        return made(f"UPDATE {name} SET {self.assignments(table, True)} WHERE {self.where(table, one)}{returning}",
                    "lock", not exact)

    def fetch_step(self, made, table):
        """Returns a step that opens, reads or closes a cursor."""
        name = table.name
        cursor = f"c{self.rng.randint(1, 2)}"
        return made(self.rng.choice([
            f"DECLARE {cursor} CURSOR FOR SELECT {SHOW} FROM {name} WHERE {self.where(table, False)}",
            f"DECLARE {cursor} SCROLL CURSOR FOR SELECT {SHOW} FROM {name} ORDER BY id, a, md5(b), c, e",
            f"FETCH {self.rng.randint(1, 4)} FROM {cursor}", f"FETCH ALL FROM {cursor}", f"FETCH ALL FROM {cursor}",
            f"CLOSE {cursor}"]), "read")

    def current_of_step(self, made, table):
        """Returns a step that opens or reads a cursor of one row, or changes that row by WHERE CURRENT OF."""
        rng = self.rng
        name = table.name
        cursor = f"w{rng.randint(1, 2)}"
        return made(rng.choice([
            f"DECLARE {cursor} CURSOR FOR SELECT id FROM {name} WHERE {self.where(table, True)}" + rng.choice([" FOR UPDATE", ""]),
            f"FETCH 1 FROM {cursor}", f"FETCH 1 FROM {cursor}",
            f"UPDATE {name} SET {self.assignments(table, True)} WHERE CURRENT OF {cursor}",
            f"DELETE FROM {name} WHERE CURRENT OF {cursor}"]), "lock")

    def other_step(self, made, table, choice):
        """Returns a step of maintenance, a setting or DDL; choice, less than 0.765, decides which."""
        rng = self.rng
        name = table.name
        if choice < 0.72:
            # VACUUM FREEZE waits for the pins of cursors on heap, so it runs only while no transaction is open
            sql = rng.choice([f"VACUUM {name}", f"VACUUM {name}", f"ANALYZE {name}", f"VACUUM (FREEZE) {name}"])
            return {"s": -1, "sql": sql, "kind": "ddl-alone" if "FREEZE" in sql else "maintenance", "many": False}
        if choice < 0.735:
            return {"s": -1, "sql": rng.choice(["SELECT zundo.discard()", "CHECK " + rng.choice(table.leaves)]), "kind": "zheap", "many": False}
        if choice < 0.75:
            setting = rng.choice(["enable_seqscan", "enable_indexscan", "enable_bitmapscan", "enable_indexonlyscan",
                                  "enable_tidscan", "zundo.eager_rollback_pages", "enable_nestloop", "parallel"])
            if setting == "parallel":
                return made(f"SELECT set_config(name, '{rng.choice(['on', 'off', 'off'])}', false) FROM pg_settings "
                            "WHERE name IN ('force_parallel_mode', 'debug_parallel_query')", "set")
            value = rng.choice(["0", "1", "32"]) if setting.startswith("zundo") else rng.choice(["on", "off"])
            return made(f"SET {setting} = {value}", "set")
        if choice < 0.757:
            return made(rng.choice([f"TRUNCATE {name}", f"ALTER TABLE {name} ADD COLUMN x{rng.randint(0, 99)} int DEFAULT {rng.randint(0, 9)}",
                                    f"LOCK TABLE {name} IN SHARE MODE", f"CLUSTER {name} USING {name}_pkey",
                                    f"ALTER TABLE {name} SET (fillfactor = {rng.choice([30, 90, 100])})"]), "ddl", True)
        table.serial += 1
        kind = rng.choice(["(a)", "USING hash (a)", "USING gin (c)", "USING brin (a)", "(e)", "(left(b, 10))"])
        return {"s": -1, "sql": rng.choice([f"CREATE INDEX {name}_i{table.serial} ON {name} {kind}",
                                            f"DROP INDEX {name}_i{rng.randint(1, table.serial)}", f"REINDEX TABLE {name}",
                                            f"VACUUM FULL {name}"]),
                "kind": "ddl-alone", "many": True}

    def read_step(self, made, table):
        """Returns a step that reads."""
        rng = self.rng
        name = table.name
        return made(rng.choice([
            f"SELECT {SHOW} FROM {name} WHERE {self.where(table, True)}",
            f"SELECT {SHOW} FROM {name} WHERE {self.where(table, False)}",
            f"SELECT {SHOW} FROM {name}",
            f"SELECT md5({name}::text) FROM {name}",
            f"SELECT count(*), count(a), sum(a), sum(e), sum(length(b)), max(id) FROM {name}",
            f"SELECT id FROM {name} WHERE id BETWEEN {self.number(table)} AND 1200",
            f"SELECT a, count(*) FROM {name} GROUP BY a",
            f"SELECT x.id, y.id FROM {name} x JOIN {name} y ON y.id = x.id + 1 WHERE x.a = {rng.randint(0, 9)}",
            f"SELECT count(*) FROM {name} WHERE a = {rng.randint(0, 9)}",
            f"SELECT {SHOW} FROM {table.leaves[0]} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {table.leaves[0]} WHERE {self.where(table, False)}))",
        ]), "read")

    def step(self, session, state):
        """Returns a random step for a session in some state (State in history.py), mostly one that can succeed."""
        rng = self.rng
        if state.failed and rng.random() < 0.85:
            ways = ["ROLLBACK", "COMMIT"] + [f"ROLLBACK TO {point}" for point in state.points] * 2
            sql = rng.choice(ways)
            return {"s": session, "sql": sql, "kind": "savepoint" if " TO " in sql else "end", "many": False}
        open_blocks = state.open
        table = rng.choice(self.tables)
        name = table.name
        choice = rng.random()
        one = rng.random() < 0.6
        exact = one and table.key
        returning = f" RETURNING {SHOW}" if rng.random() < 0.3 else ""

        def made(sql, kind, many=False):
            return {"s": session, "sql": sql, "kind": kind, "many": many}

        if not open_blocks and choice < 0.62 and self.rng.random() < 0.75:
            levels = ["READ COMMITTED"] * 3 + ["REPEATABLE READ"] * 2
            if self.flags.serializable:
                levels += ["SERIALIZABLE"] * 2
            return made(f"BEGIN ISOLATION LEVEL {rng.choice(levels)}", "begin")
        if open_blocks and choice < 0.09:
            return made("COMMIT", "end")
        if open_blocks and choice < 0.14:
            return made("ROLLBACK", "end")
        if open_blocks and choice < 0.25:
            point = f"s{rng.randint(1, 3)}"
            if not state.points or rng.random() < 0.4:
                return made(f"SAVEPOINT {point}", "savepoint")
            if rng.random() < 0.95:
                point = rng.choice(state.points)
            return made(rng.choice([f"ROLLBACK TO {point}", f"ROLLBACK TO {point}", f"RELEASE {point}"]), "savepoint")
        if self.flags.locks and rng.random() < 0.8:
            return self.lock_step(made, table)
        if self.flags.zbtree and rng.random() < 0.25:
            return self.key_step(made, table)
        if self.flags.fk and table.key and rng.random() < 0.12:
            return made(self.child_step(table), "lock")
        if open_blocks and (self.flags.triggers or self.flags.fk) and rng.random() < 0.03:
            return made(f"SET CONSTRAINTS ALL {rng.choice(['IMMEDIATE', 'DEFERRED'])}", "lock", True)
        wide = self.wide_step(session, state, table)
        if wide is not None:
            return wide
        choice = rng.random()
        if choice < 0.14:
            return self.insert_step(made, table, returning)
        if choice < 0.46:
            return self.update_step(made, table, one, returning)
        if choice < 0.54:
            if not one and rng.random() < 0.6:
                one = True
                exact = table.key
            return made(f"DELETE FROM {name} WHERE {self.where(table, one)}{returning}", "lock", not exact)
        if choice < 0.64:
            strength = rng.choice(["UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"])
            wait = rng.choice(["", "", " NOWAIT", " SKIP LOCKED"])
            order = ""
            if not one and table.key:
                order = " ORDER BY id"
            return made(f"SELECT {SHOW} FROM {name} WHERE {self.where(table, one)}{order} FOR {strength}{wait}",
                        "lock", not (exact or order))
        if choice < 0.67 and open_blocks:
            return self.fetch_step(made, table)
        if choice < 0.69 and open_blocks and table.key:
            return self.current_of_step(made, table)
        if choice < 0.765:
            return self.other_step(made, table, choice)
        if choice < 0.775 and open_blocks and self.flags.prepare:
            return made("PREPARE TRANSACTION '@S@'", "end")
        return self.read_step(made, table)
