"""Kinds of tables and statements that --wide adds to those of generate.py.

Each history has some of FEATURES. They are:
    cursors      SCROLL and WITH HOLD cursors, moves in both directions, CURRENT OF
    partitions   partitioned tables, rows that move between partitions, ATTACH and DETACH
    rewrites     TRUNCATE, CLUSTER, VACUUM FULL, ALTER TABLE beside other sessions and old snapshots
    concurrent   CREATE INDEX, REINDEX, DROP INDEX CONCURRENTLY beside writers
    constraints  exclusion and deferrable unique constraints, generated columns
    narrow       hundreds of narrow rows on a page, and rows that grow out of it
    crowd        many sessions that change rows of a few pages
    twice        rows changed twice by one statement: WITH, BEFORE and AFTER triggers, transition tables
    scans        sessions with ways to scan forbidden; index-only, backward and limited scans
    merge        MERGE of several rows, with RETURNING from 17 on
    blocks       DO blocks whose exceptions roll subtransactions back
"""

from generate import SHOW, Generator, Table

FEATURES = ("cursors", "partitions", "rewrites", "concurrent", "constraints", "narrow", "crowd", "twice", "scans", "merge", "blocks")
NOT_TEMPORARY = ("partitions", "concurrent", "crowd")
T_SHOW = "t.id, t.a, left(t.b, 6) || length(t.b) || md5(t.b) AS b, t.c, t.e"

WIDE_HELPERS = """
CREATE OR REPLACE FUNCTION public.note_tables() RETURNS trigger LANGUAGE plpgsql AS
$$ DECLARE olds text; news text;
BEGIN
  IF TG_OP <> 'INSERT' THEN SELECT md5(string_agg(md5(t::text), ',' ORDER BY md5(t::text))) INTO olds FROM old_rows t; END IF;
  IF TG_OP <> 'DELETE' THEN SELECT md5(string_agg(md5(t::text), ',' ORDER BY md5(t::text))) INTO news FROM new_rows t; END IF;
  EXECUTE format('INSERT INTO %I.changes VALUES (%L, %L, %L, %L)', TG_TABLE_SCHEMA, TG_TABLE_NAME, TG_OP || ' all', olds, news);
  RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION public.before_change() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN
  IF TG_OP = 'DELETE' THEN
    IF OLD.a = 5 AND pg_trigger_depth() = 1 THEN
      EXECUTE format('UPDATE %I.%I SET e = coalesce(e, 0) + 3 WHERE id = $1', TG_TABLE_SCHEMA, TG_TABLE_NAME) USING OLD.id;
    END IF;
    RETURN OLD;
  END IF;
  IF NEW.a = 6 AND NEW.e IS NULL THEN RETURN NULL; END IF;
  IF NEW.a = 4 AND TG_OP = 'UPDATE' AND pg_trigger_depth() = 1 THEN
    EXECUTE format('UPDATE %I.%I SET e = coalesce(e, 0) + 5 WHERE id = $1', TG_TABLE_SCHEMA, TG_TABLE_NAME) USING OLD.id;
  END IF;
  IF NEW.a = 2 THEN NEW.b := left(NEW.b, 30) || 'q'; END IF;
  RETURN NEW;
END $$;
CREATE OR REPLACE FUNCTION public.again() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN
  IF pg_trigger_depth() < 3 THEN
    IF NEW.a % 3 = 0 THEN
      EXECUTE format('UPDATE %I.%I SET e = coalesce(e, 0) + 1 WHERE id = $1', TG_TABLE_SCHEMA, TG_TABLE_NAME) USING NEW.id;
    ELSIF NEW.a % 3 = 1 THEN
      EXECUTE format('UPDATE %I.%I SET b = left(b, 100) || ''z'' WHERE id = $1', TG_TABLE_SCHEMA, TG_TABLE_NAME) USING NEW.id;
    ELSIF NEW.a = 8 THEN
      EXECUTE format('DELETE FROM %I.%I WHERE id = $1', TG_TABLE_SCHEMA, TG_TABLE_NAME) USING NEW.id;
    END IF;
  END IF;
  RETURN NULL;
END $$;
"""


class WideTable(Table):
    """A table of a history with some of FEATURES."""

    def __init__(self, rng, name, flags, features):
        super().__init__(rng, name, flags)
        self.method = None
        self.triggers = []
        if "narrow" in features and rng.random() < 0.7:
            self.narrow = True
            self.rows = rng.choice([100, 300, 500])
        if "crowd" in features and rng.random() < 0.8:
            self.key = True
            self.rows = rng.choice([10, 20, 60])
            self.narrow = rng.random() < 0.5
            self.fillfactor = 100
        if "partitions" in features and rng.random() < 0.7:
            self.method = rng.choice(["range", "range", "hash", "list"])
            if self.method == "list":
                self.key = False
            self.leaves = [f"{name}_p{n}" for n in range(3)]
        if "constraints" in features:
            self.add_constraints(rng)
        if "twice" in features and rng.random() < 0.8:
            self.triggers = rng.sample(["before", "again", "tables"], rng.choice([1, 1, 2, 3]))
            if not self.key and "tables" in self.triggers:
                # "before" and "again" change all rows with the same id, in their physical order, which differs
                # between the sides; so would the intermediate versions that "tables" notes.
                self.triggers = ["tables"]

    def add_constraints(self, rng):
        """Adds columns and constraints."""
        later = rng.choice([" DEFERRABLE", " DEFERRABLE INITIALLY DEFERRED", " DEFERRABLE INITIALLY DEFERRED", ""])
        chosen = rng.choice(["unique", "exclude", "none", "hash"])
        if self.method is None:
            if chosen == "unique":
                self.extra += f", UNIQUE (e){later}"
            elif chosen == "exclude":
                self.extra += f", EXCLUDE USING gist ((int8range(e, e + 2)) WITH &&) WHERE (e IS NOT NULL){later}"
            elif chosen == "hash":
                self.extra += f", EXCLUDE USING hash (e WITH =){later}"
        if rng.random() < 0.5:
            self.extra += ", g bigint GENERATED ALWAYS AS (coalesce(a, 0) * 2 + length(b)) STORED"
            if rng.random() < 0.5:
                self.indexes.append("(g)")

    def create_relations(self):
        """Yields the statements that create the table and its partitions."""
        if self.method is None:
            yield from super().create_relations()
            return
        column = "a" if self.method == "list" else "id"
        yield f"CREATE TABLE {self.name} ({self.columns()}) PARTITION BY {self.method} ({column})"
        for number, leaf in enumerate(self.leaves):
            bounds = {"hash": f"FOR VALUES WITH (MODULUS 3, REMAINDER {number})",
                      "list": ["FOR VALUES IN (0, 1, 2)", "FOR VALUES IN (3, 4, 5, NULL)", "DEFAULT"][number],
                      "range": [f"FOR VALUES FROM (-5000) TO ({self.rows // 2 + 1})",
                                f"FOR VALUES FROM ({self.rows // 2 + 1}) TO (1000)", "DEFAULT"][number]}[self.method]
            yield (f"CREATE TABLE {leaf} PARTITION OF {self.name} {bounds} "
                   f"WITH (fillfactor = {self.fillfactor}, autovacuum_enabled = off)")

    def create_triggers(self, rng):
        """Yields the statements that create triggers, which change rows again or note all changes."""
        if "before" in self.triggers:
            yield (f"CREATE TRIGGER before_it BEFORE INSERT OR UPDATE OR DELETE ON {self.name} "
                   "FOR EACH ROW EXECUTE FUNCTION public.before_change()")
        if "again" in self.triggers and self.key:       # rows of one id would be changed in another order
            yield f"CREATE TRIGGER again AFTER INSERT OR UPDATE ON {self.name} FOR EACH ROW EXECUTE FUNCTION public.again()"
        if "tables" in self.triggers:
            for what, tables in (("INSERT", "NEW TABLE AS new_rows"), ("DELETE", "OLD TABLE AS old_rows"),
                                 ("UPDATE", "OLD TABLE AS old_rows NEW TABLE AS new_rows")):
                yield (f"CREATE TRIGGER tables_{what} AFTER {what} ON {self.name} REFERENCING {tables} "
                       "FOR EACH STATEMENT EXECUTE FUNCTION public.note_tables()")
        yield from super().create_triggers(rng)


class WideGenerator(Generator):
    """Makes the steps of a history with some of FEATURES."""

    def __init__(self, rng, flags):
        possible = [name for name in FEATURES if not (flags.temp and name in NOT_TEMPORARY)]
        if flags.wide == "all":
            self.features = rng.sample(possible, rng.choice([1, 2, 2, 3, 3, 4, 6, len(possible)]))
        else:
            self.features = [name for name in flags.wide.split(",") if name in possible]
        super().__init__(rng, flags)
        self.changes = self.changes or any("tables" in table.triggers for table in self.tables)
        self.makers = [getattr(self, name + "_step") for name in self.features]

    def new_table(self, name):
        """Returns a random table."""
        return WideTable(self.rng, name, self.flags, self.features)

    def spec(self):
        """Returns what the history needs in addition to its steps, with more sessions or settings for some features."""
        spec = super().spec()
        rng = self.rng
        spec["features"] = self.features
        if "crowd" in self.features:
            spec["sessions"] = rng.choice([7, 10, 14])
            spec["length"] = rng.choice([120, 250])
        if "scans" in self.features:
            ways = [["SET enable_seqscan = off", "SET enable_bitmapscan = off"],
                    ["SET enable_seqscan = off", "SET enable_indexscan = off", "SET enable_indexonlyscan = off"],
                    ["SET enable_indexscan = off", "SET enable_indexonlyscan = off", "SET enable_bitmapscan = off"],
                    ["SET enable_sort = off", "SET enable_seqscan = off"], ["SET plan_cache_mode = force_generic_plan"], []]
            spec["session_settings"] = {str(n): rng.choice(ways) for n in range(spec["sessions"])}
        return spec

    def wide_step(self, session, state, table):
        """Returns a step of one of the history's features, or None."""
        if self.rng.random() < 0.55:
            return None

        def made(sql, kind, many=False, by=session):
            return {"s": by, "sql": sql, "kind": kind, "many": many}

        return self.rng.choice(self.makers)(made, state, table)

    # Each of the following functions returns a step of one feature, or None if it has none for the session's state
    # or the table.

    def cursors_step(self, made, state, table):
        """Scrollable cursors, cursors WITH HOLD, and changes with WHERE CURRENT OF."""
        rng = self.rng
        name = table.name
        which = rng.randint(1, 2)
        order = "ORDER BY id, a, md5(b), c, e, tableoid::regclass::text"
        moves = ["FIRST", "LAST", "NEXT", "PRIOR", "ALL", "BACKWARD ALL", str(rng.randint(1, 6)), f"BACKWARD {rng.randint(1, 6)}",
                 f"ABSOLUTE {rng.randint(-4, 9)}", f"RELATIVE {rng.randint(-4, 4)}"]
        if not state.open or rng.random() < 0.2:
            if state.failed:
                return None
            if rng.random() < 0.3:
                return made(f"DECLARE h{which} SCROLL CURSOR WITH HOLD FOR SELECT {SHOW} FROM {name} "
                            f"WHERE {self.where(table, False)} {order}", "read")
            return made(rng.choice([f"FETCH {rng.choice(moves)} FROM h{which}", f"FETCH {rng.choice(moves)} FROM h{which}", f"CLOSE h{which}"]), "read")
        choice = rng.random()
        if choice < 0.25:
            return made(rng.choice([
                f"DECLARE o{which} SCROLL CURSOR FOR SELECT {SHOW} FROM {name} WHERE {self.where(table, False)} {order}",
                f"DECLARE o{which} SCROLL CURSOR FOR SELECT {SHOW} FROM {name} {'ORDER BY id' if table.key else order}",
                f"DECLARE k{which} SCROLL CURSOR FOR SELECT {SHOW} FROM {name} WHERE {self.where(table, False)}"]), "read")
        if choice < 0.55:
            return made(f"FETCH {rng.choice(moves)} FROM o{which}", "read")
        if choice < 0.7:
            return made(rng.choice([f"MOVE FORWARD ALL IN k{which}; FETCH BACKWARD ALL FROM k{which}",
                                    f"MOVE ABSOLUTE 0 IN k{which}; FETCH ALL FROM k{which}"]), "read")
        if choice < 0.8 and table.key:
            return made(f"DECLARE u{which} CURSOR FOR SELECT id, a FROM {name} WHERE {self.where(table, False)} ORDER BY id "
                        f"FOR {rng.choice(['UPDATE', 'NO KEY UPDATE', 'SHARE'])}", "read")
        if choice < 0.88:
            return made(f"FETCH {rng.choice(['1', '2', '5', 'ALL'])} FROM u{which}", "lock")
        return made(rng.choice([f"UPDATE {name} SET {self.assignments(table, True)} WHERE CURRENT OF u{which} RETURNING {SHOW}",
                                f"DELETE FROM {name} WHERE CURRENT OF u{which} RETURNING {SHOW}"]), "lock")

    def partitions_step(self, made, state, table):
        """Rows that move between partitions, TRUNCATE and DETACH of partitions."""
        rng = self.rng
        name = table.name
        if table.method is None:
            return None
        leaf = rng.choice(table.leaves)
        choice = rng.random()
        key = self.number(table)
        if choice < 0.45:
            column = "a" if table.method == "list" else "id"
            value = rng.choice([str(rng.randint(0, 9)), "NULL"]) if column == "a" else rng.choice(
                [str(self.number(table)), f"id + {table.rows // 2 or 1}", f"id - {table.rows // 2 or 1}", "id + 1000", "id - 1000"])
            return made(f"UPDATE {name} SET {column} = {value} WHERE id = {key} RETURNING {SHOW}, tableoid::regclass::text", "lock", not table.key)
        if choice < 0.6:
            return made(f"SELECT {SHOW}, tableoid::regclass::text FROM {name} WHERE {self.where(table, False)}", "read")
        if choice < 0.75:
            return made(f"UPDATE {leaf} SET {self.assignments(table, True)} WHERE id = {key} RETURNING {SHOW}", "lock", not table.key)
        if choice < 0.85:
            return made(f"SELECT {SHOW} FROM {name} WHERE id = {key} FOR {rng.choice(['UPDATE', 'KEY SHARE'])}", "lock", not table.key)
        if choice < 0.95:
            return made(f"SELECT count(*), sum(a) FROM {leaf}", "read")
        if choice < 0.975:
            return made(f"TRUNCATE {leaf}", "beside")
        return made(f"ALTER TABLE {name} DETACH PARTITION {leaf}{rng.choice([' CONCURRENTLY', ''])}", "ddl-alone", by=-1)

    def rewrites_step(self, made, state, table):
        """Commands that give the table a new file, while other sessions have snapshots."""
        rng = self.rng
        name = rng.choice([table.name, *table.leaves])
        if rng.random() < 0.7:
            return made(rng.choice([f"SELECT {SHOW} FROM {name}", f"SELECT count(*), sum(a), sum(e) FROM {name}",
                                    f"SELECT {SHOW} FROM {name} WHERE {self.where(table, True)}"]), "read")
        if rng.random() < 0.4:
            return made(rng.choice([f"VACUUM FULL {name}", f"CLUSTER {name} USING {name}_pkey", f"VACUUM {name}", f"REINDEX TABLE {name}",
                                    f"ALTER TABLE {name} ALTER COLUMN a TYPE {rng.choice(['int', 'bigint'])}"]), "beside", by=-1)
        return made(rng.choice([
            f"TRUNCATE {name}", f"TRUNCATE {name} CASCADE", f"ALTER TABLE {name} ALTER COLUMN a TYPE {rng.choice(['int', 'bigint'])}",
            f"CLUSTER {name} USING {name}_pkey", f"CLUSTER {name}",
            f"ALTER TABLE {name} ADD COLUMN x{rng.randint(0, 99)} int DEFAULT length(clock_timestamp()::text) * 0",
            f"ALTER TABLE {name} SET {rng.choice(['LOGGED', 'UNLOGGED'])}", f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE",
            f"ALTER TABLE {name} ADD CONSTRAINT k{rng.randint(1, 9)} CHECK (a < {rng.choice([8, 1000])})"]), "beside")

    def concurrent_step(self, made, state, table):
        """Indexes that are built, rebuilt and dropped while other sessions write."""
        rng = self.rng
        name = rng.choice(table.leaves)
        if rng.random() < 0.7:
            return made(rng.choice([
                f"UPDATE {name} SET a = coalesce(a, 0) + 1 WHERE id = {self.number(table)} RETURNING {SHOW}",
                f"UPDATE {name} SET e = e + 1 WHERE id = {self.number(table)}", f"UPDATE {name} SET b = left(b || 'w', 90) WHERE id = {self.number(table)}",
                f"INSERT INTO {name} VALUES {self.values(self.number(table))}", f"DELETE FROM {name} WHERE id = {self.number(table)}",
                f"SELECT {SHOW} FROM {name} WHERE a = {rng.randint(0, 9)}"]), "lock", not table.key)
        table.serial += 1
        kind = rng.choice(["(a)", "USING hash (a)", "USING gin (c)", "USING brin (a)", "(e)", "(left(b, 10))", "(a) WHERE e IS NOT NULL"])
        unique = "UNIQUE " if kind in ("(a)", "(e)") and rng.random() < 0.4 else ""
        index = f"{name}_i{rng.randint(1, table.serial)}"
        return made(rng.choice([f"CREATE {unique}INDEX CONCURRENTLY {name}_i{table.serial} ON {name} {kind}",
                                f"CREATE {unique}INDEX CONCURRENTLY {name}_i{table.serial} ON {name} {kind}",
                                f"REINDEX TABLE CONCURRENTLY {name}", f"REINDEX INDEX CONCURRENTLY {index}",
                                f"DROP INDEX CONCURRENTLY {index}"]), "beside", by=-1)

    def constraints_step(self, made, state, table):
        """Changes that violate constraints, for some time or permanently."""
        rng = self.rng
        name = table.name
        key, other = self.number(table), self.number(table)
        big = 1000000007
        choice = rng.random()
        if choice < 0.2 and state.open:
            return made(f"SET CONSTRAINTS ALL {rng.choice(['IMMEDIATE', 'DEFERRED'])}", "lock")
        if choice < 0.4:
            return made(f"UPDATE {name} SET e = {other * big} WHERE id = {key}", "lock", not table.key)
        if choice < 0.55:
            return made(f"UPDATE {name} SET e = e + {rng.choice([1, big])} WHERE id BETWEEN {key} AND {key + rng.randint(1, 4)}", "lock", True)
        if choice < 0.7:
            return made(f"UPDATE {name} SET e = CASE id WHEN {key} THEN {other * big} ELSE {key * big} END WHERE id IN ({key}, {other})", "lock", True)
        if choice < 0.8:
            return made(f"INSERT INTO {name} VALUES ({2000 + key}, 1, 'k', NULL, {other * big})", "lock")
        if choice < 0.9:
            return made(f"INSERT INTO {name} VALUES ({key}, 1, 'k', NULL, {other * big}) ON CONFLICT DO NOTHING", "lock", True)
        return made(f"DELETE FROM {name} WHERE id = {key}", "lock", not table.key)

    def narrow_step(self, made, state, table):
        """Inserts of up to a hundred narrow rows, and rows that grow and shrink."""
        rng = self.rng
        name = table.name
        first = rng.randint(1, table.rows)
        last = first + rng.choice([3, 20, 100])
        return made(rng.choice([
            f"UPDATE {name} SET b = txt({rng.choice([10, 50, 200, 700])}, {first}) WHERE id BETWEEN {first} AND {last}",
            f"UPDATE {name} SET b = NULL, c = NULL WHERE id BETWEEN {first} AND {last}",
            f"UPDATE {name} SET a = a + 1 WHERE id BETWEEN {first} AND {last}",
            f"UPDATE {name} SET b = repeat('x', {rng.choice([100, 3000, 8000])}) || txt({rng.choice([500, 2100, 7000])}, {first}) WHERE id = {first}",
            f"DELETE FROM {name} WHERE id BETWEEN {first} AND {last}",
            f"INSERT INTO {name} (id, e) SELECT g, {rng.choice(['NULL', 'g'])} FROM generate_series({3000 + first}, {3000 + last}) g",
            f"SELECT count(*), sum(a), sum(e), sum(length(b)) FROM {name}",
            f"SELECT {SHOW} FROM {name} WHERE id BETWEEN {first} AND {first + 20}"]), "lock", True)

    def crowd_step(self, made, state, table):
        """Small changes of one row each."""
        rng = self.rng
        name = table.name
        if not state.open and rng.random() < 0.8:
            return made(f"BEGIN ISOLATION LEVEL {rng.choice(['READ COMMITTED', 'READ COMMITTED', 'REPEATABLE READ'])}", "begin")
        key = self.number(table)
        return made(rng.choice([
            f"UPDATE {name} SET a = coalesce(a, 0) + 1 WHERE id = {key}", f"UPDATE {name} SET e = coalesce(e, 0) + 1 WHERE id = {key}",
            f"UPDATE {name} SET b = txt({rng.randint(0, 60)}, {key}) WHERE id = {key}",
            f"SELECT id, a FROM {name} WHERE id = {key} FOR {rng.choice(['KEY SHARE', 'SHARE', 'NO KEY UPDATE'])}{rng.choice([' SKIP LOCKED', ' NOWAIT', ''])}",
            f"DELETE FROM {name} WHERE id = {key}", f"INSERT INTO {name} VALUES {self.values(self.number(table))}",
            f"SELECT {SHOW} FROM {name}"]), "lock", not table.key)

    def twice_step(self, made, state, table):
        """Statements that change several rows, or one row twice."""
        rng = self.rng
        name = table.name
        one, two = self.number(table), self.number(table)
        if rng.random() < 0.3:
            two = one
        set_one, set_two = self.assignments(table, False), self.assignments(table, False)
        many = not table.key or "again" in table.triggers
        return made(rng.choice([
            f"WITH u AS (UPDATE {name} SET {set_one} WHERE id = {one} RETURNING id) UPDATE {name} SET {set_two} WHERE id = {two} RETURNING {SHOW}",
            f"WITH u AS (UPDATE {name} SET {set_one} WHERE id = {one} RETURNING {SHOW}) SELECT 'new', * FROM u UNION ALL SELECT 'old', {SHOW} FROM {name} "
            f"WHERE id BETWEEN {one} AND {one + 3}",
            f"WITH d AS (DELETE FROM {name} WHERE id = {one} RETURNING id, a, b, c, e) INSERT INTO {name} (id, a, b, c, e) SELECT id, a + 1, b, c, e FROM d RETURNING {SHOW}",
            f"WITH u AS (UPDATE {name} SET {set_one} WHERE id = {one}), d AS (DELETE FROM {name} WHERE id = {two} RETURNING {SHOW}) SELECT * FROM d",
            f"WITH i AS (INSERT INTO {name} VALUES {self.values(one)} RETURNING id) SELECT {SHOW} FROM {name} WHERE id IN (SELECT id FROM i) OR id = {two}",
            f"WITH x AS (SELECT id FROM {name} WHERE id = {one} FOR UPDATE) UPDATE {name} SET {set_one} WHERE id IN (SELECT id FROM x) RETURNING {SHOW}",
            f"UPDATE {name} SET {set_one} WHERE id = {one} RETURNING {SHOW}",
            f"DELETE FROM {name} WHERE id = {one} RETURNING {SHOW}"]), "lock", many)

    def scans_step(self, made, state, table):
        """Index-only, backward and limited scans."""
        rng = self.rng
        name = table.name
        key = self.number(table)
        order = "id" if table.key else "id, a, md5(b), c, e"
        reads = [f"SELECT id FROM {name} WHERE id >= {key} ORDER BY id", f"SELECT id FROM {name} ORDER BY id DESC LIMIT {rng.randint(1, 9)}",
                 f"SELECT {SHOW} FROM {name} WHERE id <= {key} ORDER BY {order.replace(',', ' DESC,')} DESC LIMIT {rng.randint(1, 5)}",
                 f"SELECT a, e FROM {name} WHERE a BETWEEN {rng.randint(0, 5)} AND 7", f"SELECT count(*) FROM {name} WHERE a = {rng.randint(0, 9)} OR id = {key}",
                 f"SELECT max(a), min(id), max(e) FROM {name}", f"SELECT {SHOW} FROM {name} WHERE a = {rng.randint(0, 9)} AND id > {key}",
                 f"SELECT x.id, y.a FROM {name} x JOIN {name} y ON x.id = y.a", f"SELECT {SHOW} FROM {name} TABLESAMPLE SYSTEM (100)",
                 f"SELECT {SHOW} FROM {name} WHERE ctid >= '(0,1)'", f"SELECT {SHOW} FROM {name} WHERE left(b, 20) > 'c'",
                 f"SELECT DISTINCT a FROM {name}", f"SELECT {SHOW} FROM {name} WHERE c @> ARRAY[{rng.randint(0, 5)}]"]
        if rng.random() < 0.12:
            return made(f"VACUUM {rng.choice(table.leaves)}", "maintenance", by=-1)
        if rng.random() < 0.2:
            limit = f"ORDER BY {order} LIMIT {rng.randint(1, 4)} FOR {rng.choice(['UPDATE', 'SHARE'])}{rng.choice(['', ' SKIP LOCKED'])}"
            ids = f"SELECT id FROM {name} WHERE a = {rng.randint(0, 9)} {limit}"
            return made(rng.choice([ids, f"UPDATE {name} SET e = e + 1 WHERE id IN ({ids}) RETURNING {SHOW}"]), "lock", True)
        return made(rng.choice(reads), "read")

    def merge_step(self, made, state, table):
        """MERGE of one row or of several."""
        rng = self.rng
        name = table.name
        one = rng.random() < 0.5
        source = f"(VALUES ({self.number(table)}, {rng.randint(0, 9)})) AS v (k, n)" if one else rng.choice([
            f"(SELECT g, g % 10 FROM generate_series({self.number(table)}, {self.number(table) + 3}) g) AS v (k, n)",
            f"(SELECT id, min(a) FROM {rng.choice(self.tables).name} WHERE {self.where(table, False)} GROUP BY id) AS v (k, n)"])
        sets = self.assignments(table, False).replace("= b", "= t.b").replace("= a", "= t.a").replace("b ||", "t.b ||").replace("t.t.", "t.")
        clauses = rng.sample(["WHEN MATCHED AND t.a = 3 THEN DELETE", f"WHEN MATCHED AND t.a > v.n THEN UPDATE SET {sets}",
                              "WHEN MATCHED AND v.n = 2 THEN DO NOTHING", "WHEN MATCHED AND t.e IS NULL THEN UPDATE SET a = v.n, e = v.k",
                              f"WHEN NOT MATCHED AND v.n < 7 THEN INSERT (id, a, b) VALUES (v.k, v.n, {self.text()})",
                              "WHEN NOT MATCHED THEN DO NOTHING"], rng.randint(1, 4))
        clauses.append(rng.choice(["WHEN MATCHED THEN UPDATE SET a = v.n", "WHEN MATCHED THEN DELETE",
                                   f"WHEN MATCHED THEN UPDATE SET id = {self.number(table)}"]))
        clauses.sort(key=lambda clause: " AND " not in clause)
        if len([clause for clause in clauses if clause.startswith("WHEN NOT MATCHED ") and " AND " not in clause]) == 0:
            clauses.append("WHEN NOT MATCHED THEN INSERT (id, a, e) VALUES (v.k, v.n, v.n)")
        returning = ""
        if self.flags.version >= 17:
            if rng.random() < 0.15:
                clauses.append(f"WHEN NOT MATCHED BY SOURCE AND t.a = {rng.randint(0, 9)} THEN {rng.choice(['DELETE', 'UPDATE SET e = 5'])}")
                one = False
            if rng.random() < 0.6:
                returning = f" RETURNING merge_action(), v.k, {T_SHOW}"
        return made(f"MERGE INTO {name} t USING {source} ON t.id = v.k {' '.join(clauses)}{returning}", "lock", not (one and table.key))

    def blocks_step(self, made, state, table):
        """DO blocks that catch exceptions."""
        rng = self.rng
        name = table.name

        def change():
            """Returns a statement that changes or locks a random row."""
            key = self.number(table)
            return rng.choice([f"UPDATE {name} SET {self.assignments(table, True)} WHERE id = {key};",
                               f"UPDATE {name} SET {self.assignments(table, True)} WHERE id = {key};",
                               f"DELETE FROM {name} WHERE id = {key};", f"INSERT INTO {name} VALUES {self.values(key)};",
                               f"PERFORM 1 FROM {name} WHERE id = {key} FOR UPDATE;"])

        def block(depth):
            """Returns a PL/pgSQL block that may fail, with nested ones down to this depth."""
            body = " ".join(block(depth - 1) if depth > 0 and rng.random() < 0.4 else change() for _ in range(rng.randint(1, 3)))
            fails = rng.choice(["PERFORM 1 / 0;", "", "RAISE unique_violation;"])
            return (f"BEGIN {body} {fails} EXCEPTION WHEN division_by_zero OR integrity_constraint_violation THEN "
                    f"{rng.choice([change(), 'NULL;'])} END;")

        if rng.random() < 0.2:
            key = self.number(table)
            return made(f"DO $$ DECLARE r record; BEGIN FOR r IN SELECT id FROM {name} WHERE id BETWEEN {key} AND {key + 5} ORDER BY id LOOP "
                        f"BEGIN UPDATE {name} SET {self.assignments(table, False)} WHERE id = r.id; "
                        "IF r.id % 2 = 0 THEN RAISE unique_violation; END IF; EXCEPTION WHEN unique_violation THEN NULL; END; END LOOP; END $$", "lock", not table.key)
        return made(f"DO $$ BEGIN {block(2)} END $$", "lock", not table.key)
