"""A private PostgreSQL cluster that preloads zundo, and connections to it.

If the caller is root, the server runs as the user postgres. It is reachable only by
its socket.
"""

import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time

import psycopg2

SETTINGS = """
shared_preload_libraries = 'zundo'
listen_addresses = ''
max_connections = 60
max_worker_processes = 32
max_prepared_transactions = 20
autovacuum = off
jit = off
deadlock_timeout = 100ms
log_line_prefix = '%m [%p] %b %e %a '
log_checkpoints = off
"""

# Lines that must never be in a server log.
BAD_LOG = re.compile(
    r"PANIC:|TRAP:|terminated by signal (?:4|6|7|8|11)\b|inconsistent page found"
    r"| XX00[0-2] |could not find.*undo|invalid memory alloc"
)

# Assertions of the server that fail without zundo as well (README.md). A process that dies of one counts as one
# more crash, and not as a fault.
STOCK_ASSERTION = re.compile(
    r'TRAP: .*(?:HEAP_XMAX_IS_LOCKED_ONLY\(infomask_lock_old_tuple\).*"heapam\.c"|IsTransactionOrTransactionBlock).*PID: (\d+)'
)
# one that heap fails only for a row that a prepared transaction has locked before a crash
STOCK_AFTER_CRASH = re.compile(r'TRAP: .*context->tmfd\.traversed.*"nodeModifyTable\.c".*PID: (\d+)')
RECOVERED = "recovering prepared transaction"


class ClusterError(Exception):
    """A program of the server failed."""


def connect(dsn):
    """Returns a connection that commits each statement. Raises psycopg2.Error."""
    conn = psycopg2.connect(dsn)
    conn.autocommit = True
    return conn


class Cluster:
    """A new cluster: one data directory and its server, which start() starts."""

    def __init__(self, bindir, settings="", initdb=(), cores=False):
        """Makes the cluster. With cores, a process that a signal ends leaves a core file in the data directory."""
        self.bindir = bindir
        self.cores = cores
        self.user = "postgres" if os.getuid() == 0 else None
        self.root = tempfile.mkdtemp(prefix="zundo-random.")
        os.chmod(self.root, 0o755)
        if self.user:
            entry = pwd.getpwnam(self.user)
            os.chown(self.root, entry.pw_uid, entry.pw_gid)
        self.data = os.path.join(self.root, "data")
        self.log = os.path.join(self.root, "server.log")
        self.log_read = 0
        self.stock_assertions = 0       # processes that died of a STOCK_ASSERTION, in the log up to log_read
        self.run("initdb", "-D", self.data, "-A", "trust", "-U", "postgres", "-N", "-E", "UTF8", "--locale=C", *initdb)
        extra = SETTINGS + f"unix_socket_directories = '{self.root}'\n" + settings
        with open(os.path.join(self.data, "postgresql.conf"), "a", encoding="utf-8") as conf:
            conf.write(extra)

    def run(self, program, *args, check=True):
        """Runs a program of the server; returns its output. With check, raises ClusterError if it fails."""
        command = [os.path.join(self.bindir, program), *args]
        environment = dict(os.environ)
        libdir = os.path.join(os.path.dirname(self.bindir.rstrip("/")), "lib")
        if not self.bindir.startswith("/usr/"):
            environment["LD_LIBRARY_PATH"] = libdir
        if self.user:
            command = ["runuser", "-u", self.user, "--", "env", f"LD_LIBRARY_PATH={environment.get('LD_LIBRARY_PATH', '')}", *command]
        done = subprocess.run(
            command, cwd="/", env=environment, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )
        if check and done.returncode != 0:
            raise ClusterError(f"{program} failed:\n{done.stdout}\n{self.log_tail()}")
        return done.stdout

    def start(self, timeout=300):
        """Starts the server and waits until it accepts connections; raises ClusterError if it does not."""
        self.run("pg_ctl", "-s", "-w", *(["-c"] if self.cores else []), "-t", str(timeout), "-D", self.data, "-l", self.log, "start")

    def stop(self, mode="fast", data=None):
        """Stops the server, or that of another data directory, if it is running; raises ClusterError if it keeps running."""
        data = data or self.data
        said = self.run("pg_ctl", "-s", "-w", "-D", data, "-m", mode, "stop", check=False)
        pid = postmaster_of(data)
        if pid is not None and is_alive(pid):
            raise ClusterError(f"a {mode} stop does not end: {said}\n{where_processes_are(pid)}\n{self.log_tail()}")

    def set(self, **settings):
        """Adds settings to postgresql.conf, for the next start or reload. In names "__" stands for a dot."""
        with open(os.path.join(self.data, "postgresql.conf"), "a", encoding="utf-8") as conf:
            for name, value in settings.items():
                conf.write(f"{name.replace('__', '.')} = '{value}'\n")

    def postmaster(self):
        """Returns the process id of the postmaster, or None."""
        return postmaster_of(self.data)

    def kill(self):
        """Kills the postmaster and its children, as a power failure would. On return none exists any more."""
        kill_server(self.data, os.path.join(self.root, ".s.PGSQL.5432"))

    def dsn(self, database="postgres"):
        """Returns the connection string of a database."""
        return f"host={self.root} port=5432 user=postgres dbname={database}"

    def connect(self, database="postgres"):
        """Returns a connection that commits each statement. Raises psycopg2.Error."""
        return connect(self.dsn(database))

    def log_tail(self, lines=40):
        """Returns the end of the server log, and before it the first lines that report a crash or corruption."""
        try:
            with open(self.log, encoding="utf-8", errors="replace") as log:
                text = log.readlines()
                return "".join([line for line in text[:-lines] if BAD_LOG.search(line)][:5] + text[-lines:])
        except OSError:
            return ""

    def new_faults(self):
        """Returns the lines of the log since the last call that report a crash or corruption.

        Those about a STOCK_ASSERTION are left out; stock_assertions counts them.
        """
        try:
            with open(self.log, "rb") as log:
                text = log.read()
        except OSError:
            return []
        new = text[self.log_read:].decode("utf-8", "replace")
        self.log_read = len(text)
        lines, own = without_stock_assertions(new.splitlines(), RECOVERED.encode() in text)
        self.stock_assertions += own
        return [line for line in lines if BAD_LOG.search(line)]

    def wait_until_up(self, timeout=300):
        """Waits until the server accepts connections, after a crash from which the postmaster recovers by itself."""
        deadline = time.time() + timeout
        while "accepting connections" not in self.run("pg_isready", "-h", self.root, "-p", "5432", check=False):
            if time.time() > deadline:
                raise ClusterError(f"the server does not accept connections:\n{self.log_tail()}")
            time.sleep(0.1)

    def remove(self, keep=False):
        """Kills the server and removes its directory, unless keep is true."""
        self.kill()
        if not keep:
            shutil.rmtree(self.root, ignore_errors=True)


def without_stock_assertions(lines, after_crash):
    """Returns (lines, count): the lines of a server log without those about processes that died of a STOCK_ASSERTION,
    or after a crash that prepared transactions survived of STOCK_AFTER_CRASH, and the number of these processes."""
    stock = (STOCK_ASSERTION, STOCK_AFTER_CRASH) if after_crash else (STOCK_ASSERTION,)
    dead = {found.group(1) for pattern in stock for found in map(pattern.search, lines) if found}
    ends = re.compile(r"PID:? (?:" + "|".join(dead) + r")\b") if dead else None
    return [line for line in lines if not (ends and ends.search(line))], len(dead)


def postmaster_of(data):
    """Returns the process id of the postmaster of a data directory, or None."""
    try:
        with open(os.path.join(data, "postmaster.pid"), encoding="utf-8") as pidfile:
            return int(pidfile.readline())
    except (OSError, ValueError):
        return None


def where_processes_are(pid):
    """Returns, for a postmaster and each of its children, what ps shows of it, and its stack if gdb is installed."""
    report = ""
    for process in [pid] + children_of(pid):
        for command in (["ps", "-o", "pid,stat,wchan:20,etime,args", "-p", str(process)],
                        ["gdb", "-p", str(process), "-batch", "-ex", "bt 25"]):
            if shutil.which(command[0]):
                done = subprocess.run(command, text=True, check=False, stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
                report += "".join(line + "\n" for line in done.stdout.splitlines() if command[0] == "ps" or line.startswith("#"))
    return report


def kill_server(data, socket):
    """Kills all processes of a server. On return none exists any more."""
    pid = postmaster_of(data)
    if pid is None:
        return
    # Stop the postmaster first: a child that notices its death exits in an orderly way, unlike at a power failure.
    try:
        os.kill(pid, signal.SIGSTOP)
    except ProcessLookupError:
        pass
    victims = children_of(pid) + [pid]
    for victim in victims:
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            pass
    deadline = time.time() + 30
    while time.time() < deadline and any(is_alive(victim) for victim in victims):
        time.sleep(0.02)
    time.sleep(0.2)
    # A postmaster that is a zombie would still look alive to the next one.
    for lock in (os.path.join(data, "postmaster.pid"), socket + ".lock", socket):
        try:
            os.unlink(lock)
        except OSError:
            pass


def children_of(pid):
    """Returns the process ids of the children of a process."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as stat:
                fields = stat.read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(name))
    return found


def is_alive(pid):
    """Returns whether the process exists and is no zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False
