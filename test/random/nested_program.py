"""Makes random programs of nested commands for nested.py: tables, functions, triggers, and steps.

No result may depend on the physical order of rows. So a statement with side effects concerns one row, or uses an index
on id (functions and sessions disable other scans), or reads a table that has just been clustered by id. Queries that
may use other scans return their rows sorted.

The body of a function is a list of nodes. A node is a statement, or {"parts": [text, list of nodes, text ...]}. Failing
programs are shrunk by removing nodes.
"""

ORDERED = "SET enable_seqscan = off SET enable_bitmapscan = off SET enable_indexscan = on"
SCANS = {
    "seq": "SET enable_seqscan = on SET enable_bitmapscan = off SET enable_indexscan = off SET enable_indexonlyscan = off",
    "idx": "SET enable_seqscan = off SET enable_bitmapscan = off SET enable_indexscan = on SET enable_indexonlyscan = off",
    "ios": "SET enable_seqscan = off SET enable_bitmapscan = off SET enable_indexscan = on SET enable_indexonlyscan = on",
    "bmp": "SET enable_seqscan = off SET enable_bitmapscan = on SET enable_indexscan = off SET enable_indexonlyscan = off",
}
ROW = "concat_ws(':', id, a, n, u, length(b), left(md5(b), 4))"
TABLES = ("t1", "t2")


def helpers():
    """Yields the statements that create the functions that every program uses.

    The functions find the tables of the session's side by its search_path. enter() and leave() limit the depth and
    the number of calls in one statement, look_ functions return a table's contents by one kind of scan, open_
    functions and take() open and read cursors.
    """
    yield ("CREATE FUNCTION txt(n int, seed int) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT left(string_agg(md5((g * 7919 + seed)::text), ''), n) "
           "FROM generate_series(0, n / 32) g $$")
    yield """CREATE FUNCTION enter() RETURNS bool LANGUAGE plpgsql AS $$
DECLARE d int := current_setting('my.depth')::int;
BEGIN
  IF d >= 4 OR nextval('calls') > current_setting('my.calls')::int THEN RETURN false; END IF;
  PERFORM set_config('my.depth', (d + 1)::text, false);
  RETURN true;
END $$"""
    yield """CREATE FUNCTION leave() RETURNS void LANGUAGE plpgsql AS $$
BEGIN PERFORM set_config('my.depth', (current_setting('my.depth')::int - 1)::text, false); END $$"""
    for name, settings in SCANS.items():
        column = "a" if name == "bmp" else "id"
        for volatility in ("VOLATILE", "STABLE"):
            yield f"""CREATE FUNCTION look_{name}_{volatility[0].lower()}(tab text, lo int, hi int) RETURNS text LANGUAGE plpgsql {volatility} {settings} AS $$
DECLARE s text;
BEGIN
  EXECUTE format('SELECT string_agg({ROW.replace("'", "''")}, '' '' ORDER BY id, n) FROM %I WHERE {column} > -1000000 AND id BETWEEN $1 AND $2', tab) INTO s USING lo, hi;
  RETURN s;
END $$"""
            yield f"""CREATE FUNCTION open_{name}_{volatility[0].lower()}(name text, query text) RETURNS text LANGUAGE plpgsql {volatility} {settings} AS $$
DECLARE c refcursor := name;
BEGIN
  IF EXISTS (SELECT FROM pg_cursors p WHERE p.name = $1) THEN RETURN 'open already'; END IF;
  OPEN c SCROLL FOR EXECUTE query;
  RETURN 'opened';
END $$"""
    yield """CREATE FUNCTION take(name text, how text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE c refcursor := name; r record;
BEGIN
  IF NOT EXISTS (SELECT FROM pg_cursors p WHERE p.name = $1) THEN RETURN 'not open'; END IF;
  CASE how
    WHEN 'next' THEN FETCH NEXT FROM c INTO r;
    WHEN 'prior' THEN FETCH PRIOR FROM c INTO r;
    WHEN 'first' THEN FETCH FIRST FROM c INTO r;
    WHEN 'last' THEN FETCH LAST FROM c INTO r;
    WHEN 'third' THEN FETCH ABSOLUTE 3 FROM c INTO r;
    WHEN 'close' THEN CLOSE c;
  END CASE;
  RETURN r::text;
END $$"""


def render(nodes):
    """Returns the text of a body."""
    text = []
    for node in nodes:
        if isinstance(node, str):
            text.append(node)
        else:
            text.extend(part if isinstance(part, str) else (render(part) or "NULL;") for part in node["parts"])
    return "\n".join(text)


def statement_of(item):
    """Returns the SQL of an item of the set-up or of a step, which is a text or a dictionary with head, body and tail."""
    if isinstance(item, str):
        return item
    return item["head"] + "\n" + (render(item["body"]) or "NULL;") + "\n" + item["tail"]


class Program:
    """Makes the set-up and the steps of one program."""

    def __init__(self, rng, version):
        self.rng = rng
        self.version = version
        self.rows = rng.choice([3, 5, 8, 12, 20, 40, 40, 40, 300])
        self.width = rng.choice([5, 5, 20, 60, 200, 900])
        self.functions = rng.choice([1, 2, 3, 4])
        self.points = []
        self.points_serial = 0
        self.deep = True                # are bodies of functions made now, rather than statements of a session?
        self.span = rng.choice([0, 2, 5])
        self.parted = rng.random() < 0.12
        self.vectors = rng.sample(["before", "after", "deferred", "statement", "transition", "check", "default", "fk"], rng.choice([0, 0, 1, 1, 2, 3]))

    # --- expressions --------------------------------------------------------

    def number(self):
        """Returns a key that may exist."""
        return self.rng.randint(1, min(self.rows, 60) + 2)

    def key(self, scope):
        """Returns an expression for a key; scope: expressions for ids that are available."""
        rng = self.rng
        if not scope or rng.random() < 0.3:
            return str(self.number())
        v = rng.choice(scope)
        return rng.choice([v, v, f"{v} + 1", f"{v} - 1", f"{v} + 2", f"1 + abs({v} * {rng.randint(2, 5)} + {rng.randint(0, 9)}) % {self.rows}"])

    def where(self, scope, alias="", many=True):
        """Returns a condition on id."""
        rng = self.rng
        column = f"{alias}id"
        if not many or rng.random() < 0.5:
            return f"{column} = {self.key(scope)}"
        k = self.key(scope)
        if rng.random() < 0.25:
            return f"{column} IN ({k}, {self.key(scope)}, {self.number()})"
        return f"{column} BETWEEN {k} AND {k} + {rng.randint(1, 3 + self.span)}"

    def call(self, level, arg="id"):
        """Returns a call of one of the functions below level, or None."""
        if level <= 0:
            return None
        if level > 1 and self.rng.random() < 0.15:
            return f"g({arg})"
        return f"f{self.rng.randrange(level)}({arg})"

    def text(self):
        """Returns a value for b."""
        rng = self.rng
        return rng.choice(["'x'", f"txt({rng.choice([3, 3, 30, 30, 150, 150, 700, 700, 1900, 5000])}, {rng.randint(0, 99)})", f"repeat('y', {rng.choice([10, 400, 3000])})"])

    def expression(self, table, level):
        """Returns an integer expression for n, of the row's columns."""
        rng = self.rng
        choices = [f"{table}.n + {rng.randint(1, 9)}", f"-{table}.n", str(rng.randint(0, 99)), f"{table}.n * 2 % 1000",
                   f"(SELECT count(*) FROM {rng.choice(TABLES)} x WHERE x.n > 0)",
                   f"(SELECT coalesce(sum(x.n), 0) % 1000 FROM {rng.choice(TABLES)} x WHERE x.id <= {table}.id)"]
        call = self.call(level, f"{table}.id")
        if call and rng.random() < 0.6:
            choices = [f"{table}.n + {call} % 100", call]
        return rng.choice(choices)

    def assignments(self, table, level):
        """Returns the SET list of an UPDATE."""
        rng = self.rng
        choices = [f"n = {self.expression(table, level)}"] * 4 + [
            f"a = {table}.a + 1", f"b = left({table}.b || {table}.b, 1500)", f"b = left({table}.b, 3)", f"b = {self.text()}",
            f"b = {table}.b || 'z'", "u = NULL", f"u = {table}.id", f"u = 1000 - {table}.id", f"u = {rng.randint(1, 9)}",
            f"id = {table}.id + {rng.choice([1, 50, -50])}"]
        taken = {}
        for item in rng.sample(choices, rng.choice([1, 1, 2, 3])):
            taken[item.split(" = ")[0]] = item
        return ", ".join(taken.values())

    def returning(self, table, level):
        """Returns a RETURNING list."""
        rng = self.rng
        extra = names = ""
        call = self.call(level, f"{table}.id")
        if call and rng.random() < 0.4:
            extra = f", {call} AS f"
        if self.version >= 18 and rng.random() < 0.5:
            names = " WITH (OLD AS was, NEW AS now)"       # OLD and NEW are variables of triggers
            extra += ", was.n AS old_n, now.n AS new_n, was.id AS old_id, length(was.b) AS old_b"
        return f" RETURNING{names} {table}.id, {table}.n, {table}.a, length({table}.b) AS b{extra}"

    def row(self, key, level):
        """Returns the values of a row to insert."""
        rng = self.rng
        n = self.call(level, key) if rng.random() < 0.3 else None
        return f"({key}, {rng.randint(0, 9)}, {n or rng.randint(0, 99)}, {self.text()}, {rng.choice(['NULL', 'NULL', str(rng.randint(1, 9))])})"

    # --- statements ---------------------------------------------------------

    def change(self, level, scope, table=None, one=False):
        """Returns (table, statement): an INSERT, UPDATE, DELETE or MERGE without RETURNING; one: of one row."""
        rng = self.rng
        t = table or rng.choice(["t1", "t1", "t2"])
        choice = rng.random()
        call = self.call(level)
        extra = f" AND {call} % 5 <> {rng.randint(0, 4)}" if call and rng.random() < 0.2 else ""
        if choice < 0.45:
            return t, f"UPDATE {t} SET {self.assignments(t, level)} WHERE {self.where(scope, t + '.', not one)}{extra}"
        if choice < 0.53 and not one:
            o = rng.choice(TABLES)
            k = self.key(scope)
            return t, (f"UPDATE {t} SET n = {self.expression(t, level)} + o.n, b = left({t}.b || o.b, 900) FROM {o} o "
                       f"WHERE o.id = {t}.id + {rng.choice([0, 0, 1])} AND {t}.id BETWEEN {k} AND {k} + {rng.randint(0, 4)}")
        if choice < 0.65:
            return t, f"DELETE FROM {t} WHERE {self.where(scope, '', not one and rng.random() < 0.4)}{extra}"
        if choice < 0.85 or self.version < 15:
            if rng.random() < 0.25 and not one:
                k = self.key(scope)
                return t, (f"INSERT INTO {t} (id, a, n, b) SELECT id + {rng.choice([50, 100, 0])}, a, {call or 'n'}, b FROM {rng.choice(TABLES)} "
                           f"WHERE id BETWEEN {k} AND {k} + {rng.randint(0, 4)} ORDER BY id" + self.conflict(t, level))
            if rng.random() < 0.2:
                return t, f"INSERT INTO {t} (id, a, b) VALUES ({self.key(scope)}, 1, {self.text()})" + self.conflict(t, level)
            count = 1 if one else rng.choice([1, 1, 2, 3])
            return t, f"INSERT INTO {t} (id, a, n, b, u) VALUES {', '.join(self.row(self.key(scope), level) for _ in range(count))}" + self.conflict(t, level)
        keys = ", ".join(f"({self.key(scope)})" for _ in range(1 if one else rng.choice([1, 2, 3])))
        first = rng.choice([f"UPDATE SET {self.assignments(t, level)}", "DELETE", "DO NOTHING"])
        # WHEN NOT MATCHED always inserts: else the join might begin with the table, in the order of its rows
        second = f"INSERT (id, a, n, b) VALUES (v.k, 2, {self.call(level, 'v.k') or 7}, {self.text()})"
        third = f" WHEN MATCHED THEN UPDATE SET {self.assignments(t, level)}" if rng.random() < 0.5 else ""
        return t, (f"MERGE INTO {t} USING (VALUES {keys}) AS v (k) ON {t}.id = v.k WHEN MATCHED AND {t}.n % 3 <> {rng.randint(0, 2)} THEN {first}{third} "
                   f"WHEN NOT MATCHED{rng.choice(['', ' AND v.k < 0'])} THEN {second}")

    def conflict(self, table, level):
        """Returns an ON CONFLICT clause, or an empty string."""
        rng = self.rng
        if rng.random() < 0.4:
            return ""
        if rng.random() < 0.3:
            return " ON CONFLICT (id) DO NOTHING"
        moves = f", a = {table}.a + 1" if rng.random() < 0.3 else ""
        return (f" ON CONFLICT (id) DO UPDATE SET n = {self.expression(table, level)}, b = left({table}.b || excluded.b, 900){moves}"
                + (f" WHERE {table}.n % 2 = 0" if rng.random() < 0.3 else ""))

    def lock(self, level, scope):
        """Returns a SELECT that locks rows."""
        rng = self.rng
        call = self.call(level)
        extra = f", {call} AS f" if call and rng.random() < 0.4 else ""
        return (f"SELECT id, n, a{extra} FROM {rng.choice(TABLES)} WHERE {self.where(scope)} ORDER BY id "
                f"FOR {rng.choice(['UPDATE', 'NO KEY UPDATE', 'SHARE', 'KEY SHARE'])}")

    def look(self, stable=None):
        """Returns an expression for the contents of a table; stable: "s" or "v", the volatility of the function."""
        rng = self.rng
        volatility = rng.choice("vvs") if stable is None else stable
        return f"look_{rng.choice(list(SCANS))}_{volatility}('{rng.choice(TABLES)}', 0, {rng.choice([20, 2000])})"

    def cursor(self):
        """Returns an expression that opens or reads a cursor.

        A cursor that a function opens sees what the calling statement changes afterwards. How much of that a running index scan
        finds depends on where the new versions are. So functions do not read such cursors (d1 to d3), but only those that were
        opened by earlier statements (c1 to c3).
        """
        rng = self.rng
        opens = rng.random() < 0.6
        name = f"{'d' if opens and self.deep else 'c'}{rng.randint(1, 3)}"
        if not opens and not self.deep and rng.random() < 0.4:
            name = name.replace("c", "d")
        if opens:
            k = self.number()
            scan = rng.choice(["seq", "idx", "idx", "ios", "bmp"])
            table = rng.choice(TABLES)
            if scan in ("idx", "ios"):
                query = rng.choice([f"SELECT id, n, a, length(b) FROM {table} WHERE id >= {rng.randint(0, 3)} ORDER BY id",
                                    f"SELECT id FROM {table} WHERE id < 1000 ORDER BY id",
                                    f"SELECT id, n, a, md5(b) FROM {table} WHERE id <= {k + 9} ORDER BY id DESC",
                                    f"SELECT * FROM {table} ORDER BY id"])
            else:
                query = f"SELECT id, n, a, left(md5(b), 5), u FROM {table} WHERE a > -100 ORDER BY id"
            return f"open_{scan}_{rng.choice('vvs')}('{name}', '{query}')"
        return f"take('{name}', '{rng.choice(['next', 'next', 'prior', 'first', 'last', 'third', 'close'])}')"

    # --- bodies -------------------------------------------------------------

    def nodes(self, level, scope, depth, count=None):
        """Returns the nodes of a block."""
        return [self.node(level, scope, depth) for _ in range(count or self.rng.choice([1, 1, 2, 2, 3, 4]))]

    def node(self, level, scope, depth):
        """Returns a node: a statement of PL/pgSQL."""
        rng = self.rng
        choice = rng.random()
        if choice < 0.36:
            shown = rng.random() < 0.4
            table, sql = self.change(level, scope, one=shown)
            if "MERGE" not in sql and shown:
                return f"{sql}{self.returning(table, level)} INTO r9; RAISE NOTICE 'returned %', r9;"
            return sql + ";"
        if choice < 0.42:
            return f"PERFORM * FROM ({self.lock(level, scope)}) q;"
        if choice < 0.53:
            return f"RAISE NOTICE 'look %', {self.look()};"
        if choice < 0.62:
            return f"RAISE NOTICE 'cursor %', {self.cursor()};"
        if choice < 0.65:
            return f"SELECT count(*), sum(n) INTO x FROM {rng.choice(TABLES)}; RAISE NOTICE 'count %', x;"
        if choice < 0.69 and level > 0:
            return f"x := {self.call(level, self.key(scope))};"
        if depth >= 3:
            return f"RAISE NOTICE 'look %', {self.look()};"
        if choice < 0.82:
            raises = []
            if rng.random() < 0.6:
                raises = [f"IF {rng.choice(scope + ['1'])} % {rng.choice([1, 2, 3])} = 0 THEN RAISE EXCEPTION 'mine'; END IF;"]
            inner = self.nodes(level, scope, depth + 1) + raises
            handler = ["RAISE NOTICE 'caught %', SQLSTATE;"] + (self.nodes(level, scope, depth + 1, 1) if rng.random() < 0.5 else [])
            return {"parts": ["BEGIN", inner, "EXCEPTION WHEN OTHERS THEN", handler, "END;"]}
        if choice < 0.92:
            k = self.key(scope)
            name = f"r{depth}"
            query = rng.choice([
                f"SELECT id, n FROM {rng.choice(TABLES)} WHERE id BETWEEN {k} AND {k} + {rng.randint(1, 4)} ORDER BY id"
                + rng.choice(["", "", " FOR UPDATE", " FOR KEY SHARE"]),
                f"SELECT g AS id FROM generate_series(1, {rng.randint(2, 3)}) g"])
            if rng.random() < 0.2:
                table, query = self.change(level, scope)
                if "MERGE" in query:
                    query = f"DELETE FROM {table} WHERE {self.where(scope)}"
                query += self.returning(table, level)
            return {"parts": [f"FOR {name} IN {query} LOOP", self.nodes(level, scope + [f"{name}.id"], depth + 1), "END LOOP;"]}
        if choice < 0.96:
            return {"parts": [f"IF {rng.choice(scope + ['1'])} % {rng.choice([2, 3])} = {rng.randint(0, 1)} THEN", self.nodes(level, scope, depth + 1), "END IF;"]}
        k = self.key(scope)
        order = rng.choice(["", "", " FOR UPDATE"])
        current = rng.choice([f"UPDATE t1 SET {self.assignments('t1', level)} WHERE CURRENT OF w;", "DELETE FROM t1 WHERE CURRENT OF w;"])
        return {"parts": [f"DECLARE w CURSOR FOR SELECT * FROM t1 WHERE id = {k}{order}; BEGIN OPEN w; FETCH w INTO r9; RAISE NOTICE 'w %', r9.id; IF FOUND THEN",
                          self.nodes(level, scope, depth + 1, 1) if rng.random() < 0.4 else [], current, "END IF; CLOSE w; END;"]}

    DECLARE = "r0 record; r1 record; r2 record; r3 record; r9 record; x bigint;"

    def function(self, number):
        """Returns the item that creates the function of a number, which calls those with smaller numbers."""
        rng = self.rng
        stable = rng.random() < 0.15
        body = self.nodes(number, ["i"], 0)
        if stable:
            body = [f"RAISE NOTICE 'stable %', {self.look('s')};"]
            if number:
                body.append(f"x := {self.call(number, 'i')};")
            body += [f"RAISE NOTICE 'stable %', {self.look('s')};", f"RAISE NOTICE 'cursor %', {self.cursor()};",
                     f"SELECT sum(n) INTO x FROM {rng.choice(TABLES)}; RAISE NOTICE 'sum %', x;"]
        return {"head": f"CREATE FUNCTION f{number}(i int) RETURNS int LANGUAGE plpgsql {'STABLE' if stable else 'VOLATILE'} {ORDERED} AS $$\n"
                        f"DECLARE {self.DECLARE}\nBEGIN\nIF NOT enter() THEN RETURN i; END IF;",
                "body": body,
                "tail": f"PERFORM leave(); RETURN {rng.choice(['i', 'i + 1', 'coalesce(x % 1000, i)'])};\nEND $$"}

    def trigger(self, name, table, kind):
        """Yields the items that create a trigger and its function."""
        rng = self.rng
        row = kind in ("before", "after", "deferred")
        level = rng.choice([0, 0, 1])
        events = rng.sample(["INSERT", "UPDATE", "DELETE"], rng.choice([1, 2, 3]))
        if kind == "transition":
            events = events[:1]
        body = []
        if row:
            body.append("RAISE NOTICE '% % % % % % % % %', TG_NAME, TG_OP, OLD.id, OLD.n, left(md5(OLD.b), 4), NEW.id, NEW.n, left(md5(NEW.b), 4), NEW.a;")
        else:
            body.append("RAISE NOTICE '% % %', TG_NAME, TG_WHEN, TG_OP;")
        referencing = ""
        if kind == "transition":
            for word, wanted in (("OLD", "INSERT"), ("NEW", "DELETE")):
                if events[0] != wanted:
                    referencing += f" {word} TABLE AS {word.lower()}s"
                    body.append(f"RAISE NOTICE '{word} %', (SELECT string_agg({ROW}, ' ' ORDER BY id) FROM {word.lower()}s);")
            referencing = " REFERENCING" + referencing
        body += self.nodes(level, ["i"], 1)
        if kind == "before" and rng.random() < 0.5:
            body.append("IF TG_OP <> 'DELETE' THEN NEW.n := NEW.n + 1; END IF;")
        if kind == "before" and rng.random() < 0.2:
            body.append("IF i % 7 = 3 THEN PERFORM leave(); RETURN NULL; END IF;")
        i = "CASE TG_OP WHEN 'DELETE' THEN OLD.id ELSE NEW.id END" if row else "3"
        ends = "IF TG_OP = 'DELETE' THEN RETURN OLD; END IF; RETURN NEW;" if row else "RETURN NULL;"
        yield {"head": f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql {ORDERED} AS $$\nDECLARE {self.DECLARE} i int := {i};\n"
                       f"BEGIN\nIF NOT enter() THEN {ends} END IF;",
               "body": body, "tail": f"PERFORM leave(); {ends}\nEND $$"}
        when = {"before": "BEFORE", "after": "AFTER", "deferred": "AFTER", "transition": "AFTER"}.get(kind) or rng.choice(["BEFORE", "AFTER"])
        constraint = "CONSTRAINT " if kind == "deferred" else ""
        condition = ""
        if row and events == ["UPDATE"]:
            condition = rng.choice(["", " WHEN (OLD.n <> NEW.n)", " WHEN (OLD.id > 5)", " WHEN (OLD.* IS DISTINCT FROM NEW.*)"])
            events = [rng.choice(["UPDATE", "UPDATE OF n", "UPDATE OF id, b"])]
        defer = f" DEFERRABLE INITIALLY {rng.choice(['DEFERRED', 'IMMEDIATE'])}" if kind == "deferred" else ""
        yield (f"CREATE {constraint}TRIGGER {name} {when} {' OR '.join(events)} ON {table}{defer}{referencing} FOR EACH {'ROW' if row else 'STATEMENT'}{condition} "
               f"EXECUTE FUNCTION {name}()")

    def setup(self):
        """Yields the items of the set-up."""
        rng = self.rng
        fillfactor = rng.choice([100, 100, 60, 20])
        yield "CREATE SEQUENCE calls"
        for t in TABLES:
            fk = ""
            if t == "t2" and "fk" in self.vectors:
                fk = (f", p int GENERATED ALWAYS AS (id) STORED REFERENCES t1 {rng.choice(['', 'ON DELETE CASCADE'])} "
                      f"{rng.choice(['', 'DEFERRABLE', 'DEFERRABLE INITIALLY DEFERRED'])}")
                if rng.random() < 0.5:
                    fk = (f", p int DEFAULT {self.number()} REFERENCES t1 {rng.choice(['', 'ON DELETE CASCADE', 'ON DELETE SET NULL', 'ON UPDATE CASCADE'])} "
                          f"{rng.choice(['', 'DEFERRABLE', 'DEFERRABLE INITIALLY DEFERRED'])}")
            parted = self.parted and t == "t1"
            options = f" WITH (fillfactor = {fillfactor}, autovacuum_enabled = off)"
            yield (f"CREATE TABLE {t} (id int PRIMARY KEY, a int, n int DEFAULT 5, b text, u int, UNIQUE ({'id, ' if parted else ''}u) DEFERRABLE INITIALLY "
                   f"{rng.choice(['IMMEDIATE', 'DEFERRED'])}{fk}){' PARTITION BY RANGE (id)' if parted else options}")
            if parted:
                yield f"CREATE TABLE t1a PARTITION OF t1 FOR VALUES FROM (MINVALUE) TO (8){options}"
                yield f"CREATE TABLE t1b PARTITION OF t1 FOR VALUES FROM (8) TO (MAXVALUE){options}"
            yield (f"INSERT INTO {t} (id, a, n, b, u) SELECT g, g % 5, g, txt({self.width}, g), CASE WHEN g > 50 THEN NULL WHEN g % 3 = 0 THEN g END "
                   f"FROM generate_series(1, {self.rows}) g")
            yield f"CREATE INDEX ON {t} (a)"
            if fk:
                yield f"CREATE INDEX ON {t} (p, id)"
        for number in range(self.functions):
            yield self.function(number)
            if number == 0:
                body = [f"{self.change(1, ['i'])[1]};" for _ in range(rng.choice([1, 2]))]
                yield {"head": "CREATE FUNCTION g(i int) RETURNS int LANGUAGE sql VOLATILE " + ORDERED + " AS $$", "body": body,
                       "tail": f"SELECT count(*)::int FROM {rng.choice(TABLES)} $$"}
        serial = 0
        for vector in self.vectors:
            for t in rng.choice([["t1"], ["t1"], ["t2"], ["t1", "t2"]]):
                serial += 1
                if vector == "check":
                    yield f"ALTER TABLE {t} ADD CHECK (f0(id) % 11 <> {rng.randint(0, 10)}) NOT VALID"
                elif vector == "default":
                    yield f"ALTER TABLE {t} ALTER n SET DEFAULT f0({self.number()})"
                elif vector != "fk":
                    yield from self.trigger(f"{vector}{serial}", t, vector)

    # --- steps --------------------------------------------------------------

    def step(self, state):
        """Returns the next step, a list of (session, item); state is that of session 0: idle, open or failed."""
        rng = self.rng
        self.deep = False
        if state == "idle":
            self.points = []
        if state == "failed":
            if self.points and rng.random() < 0.7:
                return [(0, f"ROLLBACK TO {self.cut(rng.choice(self.points))}")]
            return [(0, rng.choice(["ROLLBACK", "COMMIT"]))]
        choice = rng.random()
        if state == "idle":
            if choice < 0.5:
                return [(0, "BEGIN" + rng.choice(["", "", "", " ISOLATION LEVEL REPEATABLE READ", " ISOLATION LEVEL REPEATABLE READ",
                                                  " ISOLATION LEVEL SERIALIZABLE"]))]
            if choice < 0.58:
                return self.maintenance()
            if choice < 0.68:
                return self.fresh()
            if choice < 0.72:
                k = self.number()
                ends = rng.choice(["COMMIT; ELSE ROLLBACK", "COMMIT; ELSE COMMIT", "ROLLBACK; ELSE NULL"])
                body = [{"parts": [f"FOR r0 IN SELECT id, n FROM {rng.choice(TABLES)} WHERE id BETWEEN {k} AND {k + 6} ORDER BY id LOOP",
                                   self.nodes(self.functions, ["r0.id"], 1) + [f"IF r0.id % {rng.choice([2, 3])} = 0 THEN {ends}; END IF;"], "END LOOP;"]}]
                return [(0, {"head": f"DO $$\nDECLARE {self.DECLARE}\nBEGIN", "body": body, "tail": "END $$"})]
        else:
            if choice < 0.09:
                return self.commit()
            if choice < 0.13:
                return [(0, "ROLLBACK")]
            if choice < 0.25:
                return [(0, self.savepoint())]
            if choice < 0.28:
                return [(0, f"SET CONSTRAINTS ALL {rng.choice(['IMMEDIATE', 'DEFERRED'])}")]
            if choice < 0.44:
                return [(0, self.top_cursor())]
            if choice < 0.47:
                t = rng.choice(TABLES)
                return [(0, rng.choice([f"REINDEX TABLE {t}", f"CREATE INDEX ON {t} (n)", f"CLUSTER {t} USING {t}_pkey", f"ALTER TABLE {t} ADD CHECK (n > -100000)",
                                        f"ALTER TABLE {t} ALTER a TYPE bigint", f"CREATE INDEX ON {t} (a, id) WHERE n % 2 = 0"]))]
        choice = rng.random()
        if choice < 0.12:
            return [(1, self.change(0, [], one=rng.random() < 0.6)[1])]
        if choice < 0.15:
            return [(2, rng.choice(["BEGIN ISOLATION LEVEL REPEATABLE READ", f"SELECT {self.look('s')}", f"SELECT {self.look('s')}",
                                    "COMMIT"]))]
        if choice < 0.17:
            return self.maintenance()
        return [(0, self.statement())]

    def maintenance(self):
        """Returns a step with a command of maintenance in another session."""
        rng = self.rng
        return [(rng.choice([1, 3, 3, 3]), rng.choice([f"VACUUM (TRUNCATE off) {rng.choice(TABLES)}", "SELECT zundo.discard()"]))]

    def fresh(self):
        """Returns a step with a statement of many rows by any scan, on tables that have just been clustered by id."""
        rng = self.rng
        kind = rng.choice(["seqscan", "seqscan", "bitmapscan"])
        t = rng.choice(["t1", "t1", "t2"])
        call = self.call(self.functions)
        where = f"{t}.id BETWEEN {rng.randint(0, 2)} AND {rng.choice([5, 12, 300])}" + (" AND a > -100" if kind == "bitmapscan" else "")
        if rng.random() < 0.3:
            where += f" AND {call} % 4 <> {rng.randint(0, 3)}"
        sql = rng.choice([f"UPDATE {t} SET {self.assignments(t, self.functions)} WHERE {where}{self.returning(t, self.functions)}",
                          f"UPDATE {t} SET n = {call} WHERE {where}", f"UPDATE {t} SET n = {call} WHERE {where}",
                          f"UPDATE {t} SET n = {call}, a = a + 1 WHERE {where}",
                          f"DELETE FROM {t} WHERE {where} AND {call} % 3 = 0", f"SELECT id, n, {call} FROM {t} WHERE {where}",
                          f"INSERT INTO {t} (id, a, n, b) SELECT id + 100, a, {call}, b FROM {t} WHERE {where}"])
        other = "bitmapscan" if kind == "seqscan" else "seqscan"
        return ([(2, "ROLLBACK")] + [(0, f"CLUSTER {name} USING {name}_pkey") for name in TABLES]
                + [(0, "BEGIN"), (0, f"SET LOCAL enable_{kind} = on"), (0, f"SET LOCAL enable_{other} = off"), (0, "SET LOCAL enable_indexscan = off"),
                   (0, "SET LOCAL enable_indexonlyscan = off"), (0, sql)] + rng.choice([self.commit(), [(0, "ROLLBACK")], []])
                + [(0, "RESET enable_indexscan"), (0, "SET enable_seqscan = off"), (0, "SET enable_bitmapscan = off"), (0, "RESET enable_indexonlyscan")])

    @staticmethod
    def commit():
        """Returns a step that commits. Deferred triggers fire before: if one has an EXCEPTION block, an assertion of the server
        (xact.c, TBLOCK_END) would fail in the COMMIT."""
        return [(0, "SET CONSTRAINTS ALL IMMEDIATE"), (0, "COMMIT")]

    def cut(self, point):
        """Notes that ROLLBACK TO the savepoint ends later ones; returns its name."""
        self.points = self.points[:self.points.index(point) + 1]
        return point

    def savepoint(self):
        """Returns a SAVEPOINT, ROLLBACK TO or RELEASE."""
        rng = self.rng
        if not self.points or rng.random() < 0.45:
            self.points_serial += 1
            self.points.append(f"s{self.points_serial}")
            return f"SAVEPOINT {self.points[-1]}"
        point = rng.choice(self.points)
        if rng.random() < 0.65:
            return f"ROLLBACK TO {self.cut(point)}"
        self.cut(point)
        self.points.pop()
        return f"RELEASE {point}"

    def top_cursor(self):
        """Returns a statement with a cursor: DECLARE, FETCH, MOVE, CLOSE, or WHERE CURRENT OF."""
        rng = self.rng
        name = rng.choice(["c1", "c2", "c3", "c1", "c2", "c3", "d1", "d2", "d3"])
        return rng.choice([
            f"SELECT {self.cursor()}", f"SELECT {self.cursor()}",
            f"DECLARE {name} SCROLL CURSOR WITH HOLD FOR SELECT id, n, a, b FROM t1 WHERE id < 9 ORDER BY id",
            f"DECLARE {name} SCROLL CURSOR FOR SELECT id, n, a, md5(b) FROM {rng.choice(TABLES)} ORDER BY id",
            f"DECLARE {name} SCROLL CURSOR FOR SELECT id, n, {self.call(self.functions)} FROM {rng.choice(TABLES)} WHERE id > 1 ORDER BY id",
            f"DECLARE {name} CURSOR FOR SELECT id, n, a, b FROM t1 WHERE id >= {self.number()} ORDER BY id{rng.choice(['', ' FOR UPDATE', ' FOR SHARE'])}",
            f"FETCH ALL FROM {name}", f"FETCH ALL FROM {name}", f"FETCH {rng.randint(1, 5)} FROM {name}", f"FETCH {rng.randint(1, 5)} FROM {name}",
            f"FETCH BACKWARD {rng.randint(1, 5)} FROM {name}", f"FETCH BACKWARD ALL FROM {name}", f"MOVE ABSOLUTE {rng.randint(0, 5)} FROM {name}", f"MOVE 2 IN {name}",
            f"FETCH RELATIVE 0 FROM {name}", f"CLOSE {name}",
            f"UPDATE t1 SET {self.assignments('t1', self.functions)} WHERE CURRENT OF {name}", f"DELETE FROM t1 WHERE CURRENT OF {name}"])

    def statement(self):
        """Returns a random statement of session 0."""
        rng = self.rng
        level = self.functions
        choice = rng.random()
        if choice < 0.45:
            table, sql = self.change(level, [])
            if ("MERGE" not in sql or self.version >= 17) and rng.random() < 0.5:
                sql += self.returning(table, level)
            return sql
        if choice < 0.5:
            return self.lock(level, [])
        if choice < 0.62:
            k = self.number()
            call = self.call(level)
            return rng.choice([
                f"SELECT id, n, {call} FROM {rng.choice(TABLES)} WHERE id BETWEEN {k} AND {k + 5} ORDER BY id",
                f"SELECT id, n, {call} FROM {rng.choice(TABLES)} WHERE id BETWEEN {k} AND {k + 5} AND {call} % 3 <> 1 ORDER BY id",
                f"SELECT {self.look()}, {self.call(level, str(k))}, {self.look('s')}, {self.look('v')}",
                f"SELECT x.id, x.n, y.n, {self.call(level, 'x.id')} FROM t1 x JOIN t1 y ON y.id = x.id + 1 WHERE x.id BETWEEN {k} AND {k + 3} ORDER BY x.id"])
        if choice < 0.64:
            t = rng.choice(TABLES)
            rows = "".join(f"{self.number() + rng.choice([0, 100])}\\t{rng.randint(0, 9)}\\t{'z' * rng.choice([1, 30, 300])}\\n" for _ in range(rng.randint(1, 5)))
            return f"COPY {t} (id, a, b) FROM PROGRAM $$printf '{rows}'$$"
        if choice < 0.68 and not self.parted:
            k = self.number()
            return f"UPDATE t1 SET {self.assignments('t1', level)} WHERE ctid = (SELECT ctid FROM t1 WHERE id = {k})"
        if choice < 0.82:
            parts = []
            for n in range(rng.choice([2, 2, 3])):
                while True:
                    table, sql = self.change(level if rng.random() < 0.5 else 0, [])
                    if "MERGE" not in sql:
                        break
                parts.append(f"q{n} AS ({sql} RETURNING {table}.id, {table}.n)")
            shown = [f"(SELECT string_agg(id || ':' || n, ' ' ORDER BY id, n) FROM q{n})" for n in range(len(parts)) if rng.random() < 0.7]
            shown.append("(SELECT sum(n) FROM t1)")
            return f"WITH {', '.join(parts)} SELECT {', '.join(shown)}"
        return {"head": f"DO $$\nDECLARE {self.DECLARE}\nBEGIN", "body": self.nodes(level, [], 0), "tail": "END $$"}
