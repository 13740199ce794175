"""./zundo compare --shared-lines: counts the lines of shared memory that sessions take from each other.

Eight clients of pgbench load test/stores.c, which writes down the place of each store. Counted
are, per transaction, the lines (of the processor's cache, 64 bytes) of shared memory
that it stores to and that another client stores to, too, pages of WAL left out. That
needs no cores: what counts is which lines are stored to, not when.
"""

import array
import collections
import glob
import os
import subprocess

from callgrind import StoppedWorkers
from scaling import LOADS
from server import BenchError, PrivateServer
from workloads import create_databases, load_pgbench, open_snapshot

MARK = "./zundo compare --shared-lines"
CLIENTS, TRANSACTIONS, BRANCHES, ROWS, LINE = 8, 60, 20, 100000, 64
WARM_UP = 40                    # transactions of a session before it is traced
EARLIER = 150                   # transactions before each that is counted, so that pages have changed before
RATE = 60                       # transactions a second, so that they seldom wait for each other

# What names in pg_shmem_allocations begin with; what has no name belongs to the name before
LABELS = (("Buffer Blocks", "pages"), ("Buffer Descriptors", "headers of buffers"), ("zundo", "zundo's"))
OTHER, ALL = "locks, processes, WAL, clog, statistics", "all"


class StoresServer(PrivateServer):
    """A private server with stores.c and reads.c."""

    compiled = False

    def settings(self):
        return super().settings() + "huge_pages = off\nautovacuum = off\nbgwriter_lru_maxpages = 0\n"

    def environment(self):
        return dict(super().environment(), **({"LD_PRELOAD": self.server_file("reads.so")} if self.compiled else {}))

    def compile(self, name):
        """Compiles a file of test/ to a library."""
        source = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "test", f"{name}.c")
        headers = subprocess.run([self.tool("pg_config"), "--includedir-server"], capture_output=True, text=True, check=False)
        done = subprocess.run(["cc", "-O2", "-D_GNU_SOURCE", f"-DWARM_UP={WARM_UP}", "-fPIC", "-shared", "-I", headers.stdout.strip(), "-o",
                               self.server_file(f"{name}.so"), source], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BenchError(f"{name}.c cannot be compiled: {done.stderr}")
        os.chmod(self.server_file(f"{name}.so"), 0o755)

    def prepare(self):
        """Restarts the server with reads.c; learns the parts of shared memory."""
        self.compile("stores")
        self.compile("reads")
        self.compiled = True
        self.restart({"shared_buffers": "256MB"})
        rows = [line.split("|") for line in self.run_sql(
            "postgres", "SELECT name, off, size FROM pg_shmem_allocations WHERE off IS NOT NULL ORDER BY off;").splitlines()]
        self.parts = [(int(off), int(size), name) for name, off, size in rows]
        self.wal = 8192 * int(self.run_sql("postgres", "SELECT setting FROM pg_settings WHERE name = 'wal_buffers';"))

    def load(self, side, options):
        """Runs pgbench with stores.c; returns the contents of the sessions' files."""
        done = subprocess.run([self.tool("pgbench")] + options + [self.conninfo(side.database)], capture_output=True, text=True, check=False,
                              env=dict(self.environment(), PGOPTIONS=f"-c session_preload_libraries={self.server_file('stores.so')}"))
        if done.returncode != 0:
            raise BenchError("pgbench: " + done.stderr)
        contents = []
        for path in glob.glob(os.path.join(self.directory, "data", "stores.*")):
            with open(path, "rb") as file:
                contents.append(file.read())
            os.unlink(path)
        return contents

    def part(self, line, begin):
        """Returns the label of the part of shared memory, which begins at a line, to which a line belongs; None for pages of WAL."""
        at = (line - begin) * LINE
        start, size, name = max((part for part in self.parts if part[0] < at + LINE), default=(0, 0, ""))
        # XLOGShmemSize has a page more than wal_buffers, for the alignment of the first one
        if name == "XLOG Ctl" and start + size - self.wal - 8192 <= at < start + size:
            return None
        return next((label for first_words, label in LABELS if name.startswith(first_words)), OTHER)


def transactions_of(content):
    """Returns the line where shared memory begins, and the lists of stores (line, instruction) of a session's transactions."""
    words = array.array("Q", content)
    begin, lists = words[0] // LINE, [[]]
    for at, instruction in zip(words[2::2], words[3::2]):
        if at:
            lists[-1].append((at // LINE, instruction))
        else:
            lists.append([])
    return begin, lists[1:-1]


def named(text):
    """Returns the loads of a comma-separated list; raises ValueError if one is unknown."""
    loads = text.split(",")
    if set(loads) - set(LOADS):
        raise ValueError
    return loads


def count_lines(server, contents, transactions):
    """Returns {label: lines per transaction} of the clients among the sessions whose files have these contents."""
    read = [transactions_of(content) for content in contents]
    clients = [lists[:transactions] for _, lists in read if len(lists) >= transactions]
    if len(clients) != CLIENTS:
        raise BenchError(f"traces of {len(clients)} clients, not of {CLIENTS}")
    begin = read[0][0]
    clients = [[{line for line, _ in stores} for stores in lists] for lists in clients]
    users = collections.Counter(line for sets in clients for line in set().union(*sets))
    used = collections.Counter(line for sets in clients for lines in sets for line in lines if users[line] > 1)
    labels = collections.Counter()
    for line, times in used.items():
        labels[server.part(line, begin)] += times / CLIENTS / transactions
    del labels[None]
    return labels


def script(server, load):
    """Returns pgbench's options for a load: its own script, but with rows as many as there are."""
    words = LOADS[load][2]
    name = {"-N": "simple-update", "-S": "select-only"}.get(words[0], words[-1])
    done = subprocess.run([server.tool("pgbench"), f"--show-script={name}"], capture_output=True, text=True, check=False)
    path = server.server_file(f"{name}.sql")
    with open(path, "w", encoding="utf-8") as file:
        file.write(done.stderr.replace("100000 * :scale", ":rows") + done.stdout.replace("100000 * :scale", ":rows"))
    return ["-n", "-M", "prepared", "-f", path, "--random-seed=31", "-D", f"scale={BRANCHES}", "-D", f"rows={ROWS}"]


def prepare(bench, side, transactions):
    """Makes pgbench's tables, with more branches than their scale has, and changes them for a while."""
    load_pgbench(bench, side)
    bench.server.run_sql(side.database, f"""
        INSERT INTO pgbench_branches SELECT i, 0, '' FROM generate_series(2, {BRANCHES}) i;
        INSERT INTO pgbench_tellers SELECT i, 1 + (i - 1) / 10, 0, '' FROM generate_series(11, {10 * BRANCHES}) i;
        VACUUM ANALYZE pgbench_branches, pgbench_tellers;
        SELECT count((SELECT abalance FROM pgbench_accounts WHERE aid = i)) FROM generate_series(1, {ROWS}, 50) i;
        """)
    bench.server.pgbench(side.database, script(bench.server, "FK") + ["-c", "4", "-t", str(EARLIER * transactions // 4)])


def measure(bench, side, load, transactions):
    """Runs a load; returns {label: lines per transaction}."""
    server, watcher, holder = bench.server, bench.session(side), bench.session(side)
    if "--foreign-keys" in LOADS[load][3]:
        for table, column in (("tellers", "bid"), ("accounts", "bid"), ("history", "bid"), ("history", "tid"), ("history", "aid")):
            target = {"b": "branches", "t": "tellers", "a": "accounts"}[column[0]]
            watcher.query(f"ALTER TABLE pgbench_{table} ADD FOREIGN KEY ({column}) REFERENCES pgbench_{target}")
    for table in ("accounts", "branches", "tellers") if load in ("select", "FK") else ():
        watcher.query(f"VACUUM ANALYZE pgbench_{table}")
    if LOADS[load][4]:
        open_snapshot(holder, "SELECT count(*) FROM pgbench_branches")
    clients = script(server, load) + ["-c", str(CLIENTS), "-t"]
    server.pgbench(side.database, clients + ["100"])            # else there may be no worker that could be stopped
    with StoppedWorkers(watcher):
        contents = server.load(side, clients + [str(transactions + WARM_UP + 5), f"--rate={RATE}"])
    holder.close()
    watcher.close()
    return count_lines(server, contents, transactions)


def measure_all(bench, sides, loads, transactions, say):
    """Returns {(label, load): (heap's lines, zheap's)}. Needs a StoresServer that has been started."""
    bench.server.prepare()
    create_databases(bench, sides)
    bench.scale = 1
    for side in sides:
        prepare(bench, side, transactions)
    table = {}
    # select-only first, while the tables are as VACUUM has left them
    for load in sorted(loads, key=lambda load: load != "select"):
        say(f"counting lines: {LOADS[load][0]}")
        heap, zheap = (measure(bench, side, load, transactions) for side in sides)
        for label in set(heap) | set(zheap):
            table[(label, load)] = (heap.get(label, 0), zheap.get(label, 0))
        table[(ALL, load)] = (sum(heap.values()), sum(zheap.values()))
    return table


def markdown(table, loads, version):
    """Returns the table for docs/scaling.md."""
    lines = [f"PostgreSQL {version}; shared lines stored to per transaction, heap / zheap:", "",
             "| | " + " | ".join(LOADS[load][0] for load in loads) + " |", "|---" * (len(loads) + 1) + "|"]
    for label in dict.fromkeys([label for _, label in LABELS] + [OTHER, ALL]):
        cells = [table.get((label, load), (0, 0)) for load in loads]
        lines.append(f"| {label} | " + " | ".join("–" if pair == (0, 0) else "%.1f / %.1f" % pair for pair in cells) + " |")
    return "\n".join(lines)
