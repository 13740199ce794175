"""./zundo compare --from: what a table of the user's would gain.

Its definition and a sample of its rows are copied into the private server, once as
heap and once as zheap. On the user's server this only reads, in two short
transactions: that of pg_dump, and one for everything else.
"""

import os
import re
import subprocess

from growth import beside_transaction
from server import BenchError, ExistingServer, Session, one_line

ROWS, TRANSACTIONS = 100000, 100000
COUNTED = 1000                  # blocks whose rows are counted to find out how many a block has
LOCK_TIMEOUT_MS = 5000          # so that a lock on the table does not keep the two transactions open
# What pg_dump calls the things that are copied, before and after the rows.
BEFORE, AFTER = ("TABLE", "SEQUENCE", "SEQUENCE OWNED BY", "DEFAULT"), ("INDEX", "CONSTRAINT")
# What is left out, and said.
LEFT_OUT = {"FK CONSTRAINT": "foreign keys", "TRIGGER": "triggers", "RULE": "rules", "POLICY": "policies",
            "STATISTICS": "extended statistics", "CHECK CONSTRAINT": "constraints that were not validated",
            "TABLE ATTACH": "the place in a partitioned table"}
KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "i": "an index", "I": "an index",
         "c": "a type", "t": "a TOAST table"}
ENTRY = re.compile(r"^\d+; \d+ \d+ (" + "|".join(sorted(LEFT_OUT.keys() | set(BEFORE + AFTER) | {"INDEX ATTACH"}, key=len, reverse=True))
                   + r") (.*)$")


def literal(text):
    """Returns an SQL string."""
    return "'" + text.replace("'", "''") + "'"


def quoted(name):
    """Returns an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


class Table:
    """A copy of a table of the user's: its definition and a sample of its rows, in files of a folder.

    The constructor reads all of it, and raises a BenchError if that is not possible.
    """

    def __init__(self, bindir, options, folder, say):
        self.user = ExistingServer(bindir, getattr(options, "from"))
        self.dump, self.data = os.path.join(folder, "table.dump"), os.path.join(folder, "table.rows")
        self.notes, self.script, self.listed, self.zbtree = [], options.script, [], options.zbtree
        try:
            self.user.start()
            session = Session(self.user, self.user.admin_database)
            session.query(f"SET lock_timeout = {LOCK_TIMEOUT_MS}")
            session.query("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            self._find(session, options.table)
            self._find_columns(session, options.columns)
            self._find_types(session)
            say(f"copying the definition and up to {options.rows:,} rows of {self.name}")
            self._dump()
            self._sample(session, options.rows)
            session.query("COMMIT")
            session.close()
        finally:
            self.user.stop()

    def _find(self, session, name):
        """Finds the table, and checks that it is one, and can be read."""
        denied = session.value(
            f"SELECT n.nspname FROM pg_namespace n, parse_ident({literal(name)}, false) p"
            " WHERE n.nspname = p[cardinality(p) - 1] AND NOT has_schema_privilege(n.oid, 'USAGE')")
        if denied:
            raise BenchError(f"your role must not look into the schema {denied}: it needs the right USAGE")
        rows = session.query(
            "SELECT c.oid, c.relkind, n.nspname, c.relname, has_table_privilege(c.oid, 'SELECT')"
            f" FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass({literal(name)})")
        if not rows:
            raise BenchError(f"there is no table {name} in that database, or its schema is not in search_path")
        self.oid, kind, self.schema, self.relation, allowed = rows[0]
        self.name = f"{quoted(self.schema)}.{quoted(self.relation)}"
        if kind == "p":
            raise BenchError(f"{name} is a partitioned table, which has no rows of its own; name one of its partitions")
        if kind != "r":
            raise BenchError(f"{name} is {KINDS.get(kind, 'no table')}; --table takes a table")
        if self.schema in ("pg_catalog", "information_schema"):
            raise BenchError(f"{name} is a table of the system")
        if allowed != "t":
            raise BenchError(f"your role must not read {name}: it needs the right SELECT")

    def _find_columns(self, session, changed):
        """Finds the columns, and those of the primary key; checks the ones that are to be changed."""
        rows = session.query(f"SELECT attname, attgenerated FROM pg_attribute WHERE attrelid = {self.oid} AND attnum > 0"
                             " AND NOT attisdropped ORDER BY attnum")
        self.columns = [row[0] for row in rows if not row[1]]
        generated = [row[0] for row in rows if row[1]]
        self.key = [row[0] for row in session.query(
            f"SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)"
            f" WHERE i.indrelid = {self.oid} AND i.indisprimary")]
        self.changed = changed.split(",") if changed else []
        for column in self.changed:
            if column in generated:
                raise BenchError(f"{column} is a generated column: it cannot be updated")
            if column not in self.columns:
                raise BenchError(f"there is no column {column} in {self.name}")
        if not self.script:
            if not self.changed:
                raise BenchError("--columns must name the columns that the updates change, or --script a script of pgbench")
            if not self.key:
                raise BenchError(f"{self.name} has no primary key by which a row could be updated; use --script")

    def _find_types(self, session):
        """Finds what the private server needs to have the columns' types: SQL, and extensions."""
        self.sql, self.extensions = [f"CREATE SCHEMA IF NOT EXISTS {quoted(self.schema)}"], []
        for name, schema, kind, extension, where, base, column in session.query(f"""
            SELECT DISTINCT ON (t.oid) t.typname, n.nspname, t.typtype, coalesce(e.extname, ''), coalesce(en.nspname, ''),
                   CASE t.typtype WHEN 'd' THEN format_type(t.typbasetype, t.typtypmod)
                       WHEN 'e' THEN (SELECT string_agg(quote_literal(enumlabel), ', ' ORDER BY enumsortorder) FROM pg_enum WHERE enumtypid = t.oid)
                       ELSE '' END, a.attname
              FROM pg_attribute a JOIN pg_type c ON c.oid = a.atttypid
              JOIN pg_type t ON t.oid = CASE WHEN c.typcategory = 'A' AND c.typelem <> 0 THEN c.typelem ELSE c.oid END
              JOIN pg_namespace n ON n.oid = t.typnamespace
              LEFT JOIN pg_depend d ON d.classid = 'pg_type'::regclass AND d.objid = t.oid AND d.deptype = 'e'
              LEFT JOIN pg_extension e ON e.oid = d.refobjid LEFT JOIN pg_namespace en ON en.oid = e.extnamespace
             WHERE a.attrelid = {self.oid} AND a.attnum > 0 AND NOT a.attisdropped AND n.nspname <> 'pg_catalog'""".replace("\n", " ")):
            full = f"{quoted(schema)}.{quoted(name)}"
            if extension:
                self.extensions.append((extension, where, f"{column} has the type {name}"))
            elif kind in "ed":
                self.sql += [f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}",
                             f"CREATE TYPE {full} AS ENUM ({base})" if kind == "e" else f"CREATE DOMAIN {full} AS {base}"]
            else:
                raise BenchError(f"{column} has the type {name}, which cannot be copied: only enums, domains and types of extensions can")
        for extension, where, index in session.query(f"""
            SELECT DISTINCT e.extname, n.nspname, i.indexrelid::regclass FROM pg_index i CROSS JOIN LATERAL unnest(i.indclass::oid[]) o (oid)
              JOIN pg_depend d ON d.classid = 'pg_opclass'::regclass AND d.objid = o.oid AND d.deptype = 'e'
              JOIN pg_extension e ON e.oid = d.refobjid JOIN pg_namespace n ON n.oid = e.extnamespace
             WHERE i.indrelid = {self.oid}""".replace("\n", " ")):
            self.extensions.append((extension, where, f"the index {index} needs it"))

    def _dump(self):
        """Copies the definition, and lists what is in it."""
        done = self._tool(["pg_dump", f"--lock-wait-timeout={LOCK_TIMEOUT_MS}", "-Fc", "-s", "-t", self.name, "-f", self.dump, "-d", self.user.conninfo(self.user.admin_database)])
        if "server version mismatch" in done.stderr:
            raise BenchError("your server is newer than the private one; choose its version with --pg")
        if done.returncode != 0:
            raise BenchError("pg_dump: " + one_line(done.stderr.replace("pg_dump: ", "")))
        for line in self._tool(["pg_restore", "-l", self.dump]).stdout.splitlines():
            match = ENTRY.match(line)
            if match:
                self.listed.append((match[1], match[2].split(" ")[-2], line))
        for kind, words in LEFT_OUT.items():
            number = sum(entry[0] == kind for entry in self.listed)
            if number:
                self.notes.append(f"Left out: {words} ({number}).")

    def _tool(self, command, server=None):
        """Runs a client program; returns what it did."""
        server = server or self.user
        return subprocess.run([server.tool(command[0])] + command[1:], capture_output=True, text=True, env=server.environment(), check=False)

    def _part(self, fraction):
        """Returns the table's name for FROM, with a sample of this fraction of its blocks."""
        return f"ONLY {self.name}" + (f" TABLESAMPLE SYSTEM ({100 * fraction:.9f})" if fraction < 1 else "")

    def _sample(self, session, rows):
        """Copies rows of blocks all over the table, of at most as many blocks as rows."""
        blocks = max(1, int(session.value(f"SELECT pg_relation_size({self.oid}) / current_setting('block_size')::int")))
        counted = min(1.0, COUNTED / blocks)
        found = int(session.value(f"SELECT count(*) FROM {self._part(counted)}")) / counted
        fraction = min(1.0, rows / blocks)
        if found > rows:
            # somewhat fewer than LIMIT allows, which would cut off the end of the table
            fraction = min(fraction, 0.95 * rows / found)
        listed = ", ".join(quoted(column) for column in self.columns)
        session.query(f"\\copy (SELECT {listed} FROM {self._part(fraction)} LIMIT {rows}) TO {literal(self.data)}")

    def prepare(self, bench, engine):
        """Makes the types that the table needs in the engine's database."""
        server = bench.server
        for extension, where, why in self.extensions:
            if server.run_sql(engine.database, f"SELECT 1 FROM pg_available_extensions WHERE name = {literal(extension)};\n") != "1":
                raise BenchError(f"the private server does not have the extension {extension}: {why}")
            server.run_sql(engine.database, f"CREATE SCHEMA IF NOT EXISTS {quoted(where)};\n"
                                            f"CREATE EXTENSION IF NOT EXISTS {quoted(extension)} SCHEMA {quoted(where)};\n")
        for statement in self.sql:
            server.run_sql(engine.database, statement + ";\n")
        server.run_sql(engine.database, f"ALTER DATABASE {engine.database} SET search_path = {quoted(self.schema)}, public;\n")

    def _restore(self, bench, engine, lines):
        """Restores entries of the dump into the engine's database; returns the error, or ''."""
        path = bench.scratch("table.list")
        with open(path, "w", encoding="utf-8") as out:
            out.write("\n".join(lines) + "\n")
        done = self._tool(["pg_restore", "-L", path, "-O", "-x", "--no-table-access-method", "--no-tablespaces", "--exit-on-error",
                           "-d", bench.server.conninfo(engine.database), self.dump], bench.server)
        found = re.search(r"ERROR: +(.*)", done.stderr)
        return "" if done.returncode == 0 else found[1] if found else one_line(done.stderr)

    def _make(self, bench, engine, kind, line):
        """Makes an index or a constraint, with --zbtree a zbtree index of zheap; returns the error, or ''."""
        # zbtree would index the values of an extension's type by another operator class, or not at all
        if not (self.zbtree and engine.has_undo and kind == "INDEX" and not self.extensions):
            return self._restore(bench, engine, [line])
        with open(bench.scratch("table.list"), "w", encoding="utf-8") as out:
            out.write(line + "\n")
        sql = self._tool(["pg_restore", "-L", bench.scratch("table.list"), "-O", "-x", "--no-tablespaces", "-f", "-", self.dump],
                         bench.server).stdout
        if "CREATE" not in sql:
            return "pg_restore does not print it"
        try:
            bench.server.run_sql(engine.database, re.sub(r"^(CREATE INDEX .*? USING )btree ", r"\1zbtree ", sql, flags=re.M))
        except BenchError as error:
            return str(error)
        return ""

    def load(self, bench, engine):
        """Creates the table with its rows and indexes; returns the options of pgbench."""
        server = bench.server
        bench.say(f"loading {self.name}")
        server.run_sql(engine.database, f"DROP TABLE IF EXISTS {self.name}, public.zundo_rows;\n")
        error = self._restore(bench, engine, [line for kind, _, line in self.listed if kind in BEFORE])
        if error:
            raise BenchError(f"the table cannot be created in the private server: {error}")
        listed = ", ".join(quoted(column) for column in self.columns)
        server.run_sql(engine.database, f"\\copy {self.name} ({listed}) FROM {literal(self.data)}\n")
        for kind, name, line in self.listed:
            error = self._make(bench, engine, kind, line) if kind in AFTER else ""
            note = f"Left out with {engine.name}: {name} ({error})."
            if error and note not in self.notes:
                self.notes.append(note)
        rows = int(server.run_sql(engine.database, f"SELECT count(*) FROM {self.name};\n"))
        if not rows:
            raise BenchError(f"{self.name} has no rows that your role can see")
        if self.key:
            every = ", ".join(quoted(column) for column in dict.fromkeys(self.key + self.columns))
            server.run_sql(engine.database, f"CREATE TABLE public.zundo_rows USING heap AS SELECT row_number() OVER (ORDER BY "
                           f"{', '.join(quoted(column) for column in self.key)}) AS zundo_row, {every} FROM {self.name};\n"
                           "ALTER TABLE public.zundo_rows ADD PRIMARY KEY (zundo_row);\n"
                           "VACUUM ANALYZE public.zundo_rows;\n")
        server.run_sql(engine.database, f"VACUUM ANALYZE {self.name};\nCHECKPOINT;\n")
        self.rows = rows
        return ["-D", f"rows={rows}", "-f", self.script or self._updates(bench)]

    def _updates(self, bench):
        """Writes the script of the random updates, which give a row the values of another one; returns its path."""
        path = bench.scratch("updates.sql")
        assigned = ", ".join(f"{quoted(column)} = v.{quoted(column)}" for column in self.changed)
        same = " AND ".join(f"t.{quoted(column)} = k.{quoted(column)}" for column in self.key)
        with open(path, "w", encoding="utf-8") as out:
            out.write("\\set one random(1, :rows)\n\\set two random(1, :rows)\n"
                      f"UPDATE {self.name} t SET {assigned} FROM public.zundo_rows k, public.zundo_rows v"
                      f" WHERE k.zundo_row = :one AND v.zundo_row = :two AND {same};\n")
        return path

    def look_at_indexes(self, bench, engine):
        """Notes which columns have changed, and which indexes they are in. Needs the table as the updates left it."""
        changed = self.changed
        if self.script and self.key:
            same = " AND ".join(f"t.{quoted(column)} = k.{quoted(column)}" for column in self.key)
            counts = ", ".join(f"count(*) FILTER (WHERE t.{quoted(column)}::text IS DISTINCT FROM k.{quoted(column)}::text)"
                               for column in self.columns)
            row = bench.server.run_sql(engine.database, f"SELECT {counts} FROM {self.name} t JOIN public.zundo_rows k ON {same};\n")
            changed = [column for column, number in zip(self.columns, row.split("|")) if number != "0"]
        if not changed:
            self.notes.append("Which columns change was not found out.")
            return
        listed = ", ".join(literal(column) for column in changed)
        indexes = [line.rsplit("|", 3) for line in bench.server.run_sql(engine.database, f"""
            WITH found AS (
                SELECT d.objid, a.attnum FROM pg_depend d JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
                 WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
                   AND d.refobjid = {literal(self.name)}::regclass AND a.attname IN ({listed})
                UNION
                SELECT k.conindid, a.attnum FROM pg_constraint k JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = ANY (k.conkey)
                 WHERE k.conrelid = {literal(self.name)}::regclass AND a.attname IN ({listed}))
            SELECT DISTINCT c.relname, m.amname, i.indpred IS NOT NULL,
                   CASE WHEN m.amname = 'brin' AND current_setting('server_version_num')::int >= 160000 THEN 'stays'
                        WHEN i.indisunique OR i.indisexclusion OR i.indexprs IS NOT NULL THEN 'moves'
                        WHEN m.amname = 'zbtree' THEN 'stays' WHEN m.amname = 'btree' THEN 'zbtree' ELSE 'moves' END
              FROM found JOIN pg_class c ON c.oid = objid JOIN pg_am m ON m.oid = c.relam JOIN pg_index i ON i.indexrelid = c.oid
             ORDER BY 1;
            """).splitlines()]
        words = f"Changed columns: {', '.join(changed)}."
        if not indexes:
            self.notes.append(f"{words} They are in no index: zheap updates the rows in place.")
            return
        simple = {name: " (if its predicate is simple, see docs/limits.md)" if partial == "t" and method != "brin" else ""
                  for name, method, partial, _ in indexes}
        kinds = {kind: [name for name, _, _, its in indexes if its in kind.split()] for kind in ("moves zbtree", "stays", "zbtree")}
        words += f" They are in these indexes: {', '.join(f'{name} ({method})' for name, method, _, _ in indexes)}."
        if kinds["moves zbtree"]:
            words += (" An update that changes the row's entry in one of these moves the row, and every index gets an entry: "
                      f"{', '.join(kinds['moves zbtree'])}.")
        if kinds["stays"]:
            words += f" A change of columns of these alone leaves the row where it is: {', '.join(name + simple[name] for name in kinds['stays'])}."
        if kinds["zbtree"] and not self.zbtree and not self.extensions:
            words += (" With zbtree instead of btree that would also hold for these: "
                      f"{', '.join(name + simple[name] for name in kinds['zbtree'])}; --zbtree measures that.")
        self.notes.append(words)

    def measure(self, transactions):
        """Returns the function that measures the table on one engine."""
        def run(bench, engine):
            """Loads the table, runs the transactions beside an open one, and returns the figures."""
            options = self.load(bench, engine)
            scan = f"SELECT count(*), sum(hashtext(t::text)::bigint) FROM {self.name} t"
            figures = beside_transaction(bench, engine, f"{literal(self.name)}::regclass", scan, options, transactions)
            if engine.name != "heap" and not any(note.startswith(("Changed", "Which")) for note in self.notes):
                self.look_at_indexes(bench, engine)
            return figures
        return run

    def title(self):
        """Returns the title of the table on the page."""
        return f"a sample of {self.schema}.{self.relation} beside an open transaction"

    def what(self, transactions):
        """Returns a description of what was measured."""
        how = f"the script {os.path.basename(self.script)}" if self.script else "random updates of " + ", ".join(self.changed)
        indexes = "indexes (with zheap zbtree instead of btree where they are not unique)" if self.zbtree else "indexes"
        return (f"A sample of {self.rows:,} rows of your table, with its {indexes}, and {transactions:,} transactions: {how}, while another "
                "transaction stays open. Both sides run the same ones.")
