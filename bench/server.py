"""Servers, sessions and load generators for the benchmark.

All SQL is run by PostgreSQL's client programs psql and pgbench, so that nothing
beyond the server's packages is needed. If the caller is root, the private server
runs as the user postgres.
"""

import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.parse


class BenchError(Exception):
    """An error whose text is one line for the user. compare.py exits with status 2."""


MB = 1024 * 1024


def one_line(text):
    """Returns the first line of a client program's error output, without its prefix."""
    for line in text.splitlines():
        line = line.strip()
        if line:
            return re.sub(r"^(psql:<stdin>:\d+: |psql: |pgbench: |initdb: |pg_ctl: )?(error: |ERROR: +)?", "", line)
    return "no message"


def connection_value(text):
    """Returns a value of a connection string."""
    return "'" + re.sub(r"(['\\])", r"\\\1", text) + "'"


class Session:
    """A connection: a psql that gets its commands through a pipe."""

    MARK = "zundo-bench-done"

    def __init__(self, server, database):
        self.process = subprocess.Popen(
            [server.tool("psql"), "-X", "-q", "-A", "-t", "-F", "\t", "-d", server.conninfo(database)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, bufsize=1, env=server.environment())
        server.sessions.append(self)

    def query(self, sql):
        """Runs one command; returns its rows as lists of strings. Raises BenchError if it fails."""
        try:
            end = "" if sql.startswith("\\") else ";"
            self.process.stdin.write(f"{sql}{end}\n\\echo {self.MARK} :ERROR :LAST_ERROR_MESSAGE\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise BenchError("the server closed the connection") from None
        rows = []
        while True:
            line = self.process.stdout.readline()
            if line == "":
                raise BenchError(f"the server closed the connection during: {sql}")
            line = line.rstrip("\n")
            if line.startswith(self.MARK):
                if line.startswith(self.MARK + " true"):
                    raise BenchError(f"{line[len(self.MARK) + 6:]} (in: {' '.join(sql.split())})")
                return rows
            rows.append(line.split("\t"))

    def value(self, sql):
        """Runs one command; returns the first column of the first row, or None."""
        rows = self.query(sql)
        return rows[0][0] if rows else None

    def timed(self, sql):
        """Runs one command; returns (seconds, rows)."""
        start = time.monotonic()
        rows = self.query(sql)
        return time.monotonic() - start, rows

    def close(self):
        """Ends the connection; an open transaction is rolled back."""
        try:
            self.process.stdin.close()
        except OSError:
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def kill(self):
        """Kills psql."""
        self.process.kill()


def percentiles(sample, prefix=""):
    """Returns p50_ms, p95_ms and p99_ms of a list of latencies; nothing if there are fewer than 100."""
    ordered = sorted(sample)
    if len(ordered) < 100:
        return {}
    return {f"{prefix}p{p}_ms": ordered[len(ordered) * p // 100] for p in (50, 95, 99)}


def speed(result):
    """Returns the figures of a load that most workloads report; result is that of Load.finish."""
    return {"tps": result["tps"], "latency_ms": result["latency_ms"], "transactions": result["transactions"],
            **percentiles(result["sample"])}


class Load:
    """A run of pgbench in the background, for some seconds, or, if seconds is None, for the number that options name."""

    SAMPLED = 0.1                       # share of the transactions whose latency is logged

    def __init__(self, server, database, options, seconds, clients):
        self.began = time.monotonic()
        self.folder = tempfile.TemporaryDirectory(prefix="zundo-compare.")
        self.progress = []              # (seconds since the start, tps)
        self.errors = []
        self.process = subprocess.Popen(
            [server.tool("pgbench"), "-n", "-M", "prepared", "-P", "1", *([] if seconds is None else ["-T", str(seconds)]),
             "-c", str(clients), "-j", str(min(clients, os.cpu_count() or 1)),
             "-l", f"--sampling-rate={self.SAMPLED}", "--log-prefix=" + os.path.join(self.folder.name, "log")] + options
            + [server.conninfo(database)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=dict(server.environment(), PGAPPNAME="pgbench"))
        server.loads.append(self)
        self.reader = threading.Thread(target=self._read_progress, daemon=True)
        self.reader.start()

    def _read_progress(self):
        """Collects the lines of progress and the errors that pgbench prints."""
        for line in self.process.stderr:
            match = re.match(r"progress: ([\d.]+) s, ([\d.]+) tps", line)
            if match:
                self.progress.append((float(match.group(1)), float(match.group(2))))
            elif "error" in line or "fatal" in line:
                self.errors.append(line.strip())

    def running(self):
        return self.process.poll() is None

    def finish(self):
        """Waits for the end; returns transactions, tps, average latency in ms, and the sample of latencies.

        Raises BenchError if pgbench has failed.
        """
        output = self.process.stdout.read()
        self.process.wait()
        self.reader.join(5)
        if self.process.returncode != 0 or self.errors:
            raise BenchError("pgbench failed: " + (self.errors[0] if self.errors else f"status {self.process.returncode}"))
        count = int(re.search(r"transactions actually processed: (\d+)", output).group(1))
        tps = float(re.search(r"tps = ([\d.]+)", output).group(1))
        latency = float(re.search(r"latency average = ([\d.]+)", output).group(1))
        return {"transactions": count, "tps": tps, "latency_ms": latency, "sample": self._latencies()}

    def _latencies(self):
        """Returns the latencies that pgbench has logged, in ms, and removes its logs."""
        found = []
        for name in os.listdir(self.folder.name):
            with open(os.path.join(self.folder.name, name), encoding="utf-8") as log:
                found += [int(line.split()[2]) / 1000 for line in log if line.split()[2].isdigit()]
        self.folder.cleanup()
        return found

    def kill(self):
        if self.running():
            self.process.kill()


class Server:
    """What private and existing servers have in common."""

    private = False
    keeps_pg_environment = False        # are PGHOST and the like passed to client programs?

    def __init__(self, bindir):
        self.bindir = bindir
        self.sessions = []
        self.loads = []

    def tool(self, name):
        """Returns the path of a client program; raises BenchError if it is missing."""
        if self.bindir:
            return os.path.join(self.bindir, name)
        path = shutil.which(name)
        if not path:
            raise BenchError(f"{name} is not in PATH; install postgresql-client and postgresql-15, or use --bindir")
        return path

    def environment(self):
        """Returns the environment of client programs."""
        env = {k: v for k, v in os.environ.items() if not k.startswith("PG") or self.keeps_pg_environment}
        env["LC_ALL"] = "C"
        env["PGAPPNAME"] = "zundo compare"
        env["PGCONNECT_TIMEOUT"] = "10"
        return env

    def run_sql(self, database, sql):
        """Runs commands, each as one transaction; returns the output. Raises BenchError if one fails."""
        done = subprocess.run(
            [self.tool("psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", self.conninfo(database)],
            input=sql, capture_output=True, text=True, env=self.environment())
        if done.returncode != 0:
            raise BenchError(one_line(done.stderr))
        return done.stdout.strip()

    def pgbench(self, database, options):
        """Runs pgbench to its end; raises BenchError if it fails."""
        done = subprocess.run([self.tool("pgbench")] + options + [self.conninfo(database)],
                              capture_output=True, text=True, env=self.environment())
        if done.returncode != 0:
            raise BenchError("pgbench: " + one_line(done.stderr))

    def disconnect(self):
        """Kills all client programs that are still connected."""
        for item in self.loads + self.sessions:
            item.kill()
        self.loads, self.sessions = [], []

    def describe(self):
        """Returns the version, and the settings that differ from the defaults."""
        session = Session(self, self.admin_database)
        try:
            version = session.value("SELECT version()")
            settings = session.query(
                "SELECT name, current_setting(name) FROM pg_settings WHERE source NOT IN ('default', 'client', 'override')"
                " AND name !~ '(^lc_|_directory$|_directories$|_file$|^log_|^port|^cluster_name|TimeZone|text_search|password)'"
                " OR name IN ('full_page_writes', 'autovacuum', 'fsync', 'wal_level', 'debug_assertions', 'wal_compression')"
                " ORDER BY 1")
        finally:
            session.close()
        return {"version": version, "settings": dict(row[:2] for row in settings if len(row) >= 2)}


class PrivateServer(Server):
    """A cluster in a new directory, which stop() removes."""

    private = True
    admin_database = "postgres"

    def __init__(self, bindir, preload):
        super().__init__(bindir)
        self.directory = None
        self.preload = preload
        self.chosen = {}                # settings that the user has asked for
        self.extra = {}                 # settings of the present workload

    def _as_owner(self, command):
        """Runs a command as the user that owns the cluster."""
        if os.geteuid() == 0:
            command = ["runuser", "-u", "postgres", "--"] + command
        return subprocess.run(command, capture_output=True, text=True, env=self.environment(),
                              cwd=self.directory or "/", start_new_session=True)

    def settings(self):
        """Returns the lines that are added to postgresql.conf."""
        memory = machine()["memory_mb"]
        lines = [
            "listen_addresses = ''",
            f"unix_socket_directories = '{self.directory}'",
            f"shared_buffers = {max(128, min(2048, memory // 4))}MB",
            "synchronous_commit = off",
            "max_wal_size = 16GB",
            "min_wal_size = 4GB",
            "checkpoint_timeout = 1h",
            f"max_connections = {max(100, 4 * (os.cpu_count() or 1) + 50)}",
            "maintenance_work_mem = 256MB",
            "log_checkpoints = off",
        ]
        lines += [f"{name} = '{value}'" for name, value in self.chosen.items() if value]
        if self.preload:
            lines.append("shared_preload_libraries = 'zundo'")
        return "\n".join(lines) + "\n"

    def start(self):
        """Makes a cluster in a temporary folder and starts its server."""
        self.directory = tempfile.mkdtemp(prefix="zundo-compare.")
        if os.geteuid() == 0:
            shutil.chown(self.directory, "postgres")
        data = os.path.join(self.directory, "data")
        done = self._as_owner([self.tool("initdb"), "-D", data, "-A", "trust", "-U", "postgres", "-N", "-E", "UTF8",
                               "--locale=C"])
        if done.returncode != 0:
            raise BenchError("initdb failed: " + one_line(done.stderr))
        with open(os.path.join(data, "postgresql.conf"), "a", encoding="utf-8") as conf:
            conf.write(self.settings())
        done = self._as_owner([self.tool("pg_ctl"), "-s", "-w", "-t", "120", "-D", data, "-l",
                               os.path.join(self.directory, "log"), "start"])
        if done.returncode != 0:
            raise BenchError("the private server did not start: " + self.last_log_line())

    def restart(self, settings):
        """Restarts the server with these settings in addition to those of settings(); ends all sessions."""
        if settings == self.extra:
            return
        self.extra = settings
        self.disconnect()
        with open(os.path.join(self.directory, "data", "postgresql.auto.conf"), "w", encoding="utf-8") as conf:
            conf.write("".join(f"{name} = '{value}'\n" for name, value in settings.items()))
        done = self._as_owner([self.tool("pg_ctl"), "-s", "-w", "-t", "120", "-D", os.path.join(self.directory, "data"), "-l",
                               os.path.join(self.directory, "log"), "-m", "fast", "restart"])
        if done.returncode != 0:
            raise BenchError("the private server did not restart: " + self.last_log_line())

    def last_log_line(self):
        """Returns the last error in the server log."""
        try:
            with open(os.path.join(self.directory, "log"), encoding="utf-8", errors="replace") as log:
                lines = [line.strip() for line in log if re.search("FATAL|ERROR|PANIC|could not", line)]
        except OSError:
            lines = []
        return lines[-1] if lines else "no message in its log"

    def conninfo(self, database):
        """Returns the connection string of a database."""
        return f"host={connection_value(self.directory)} port=5432 user=postgres dbname={connection_value(database)}"

    def wal_without_images(self, start, end):
        """Returns the bytes of the WAL records between two positions, without their full-page images."""
        def segment(position, before):
            """Returns the name of the file with the byte at the position, or with the one before."""
            high, low = (int(part, 16) for part in position.split("/"))
            at = (high << 32) + low - before
            return f"00000001{at >> 32:08X}{(at & 0xFFFFFFFF) >> 24:08X}"

        # pg_waldump learns the size of files from one that is named, otherwise from any, which may not have been used yet
        done = self._as_owner([self.tool("pg_waldump"), "--stats", "-p", os.path.join(self.directory, "data", "pg_wal"),
                               "-s", start, "-e", end, segment(start, 0), segment(end, 1)])
        total = re.search(r"^Total +\d+ +(\d+) ", done.stdout, re.M)
        if total is None:
            raise BenchError(f"pg_waldump cannot read the WAL from {start} to {end}: {done.stderr.strip()}")
        return int(total[1])

    def server_file(self, name):
        """Returns the path of a file that the server's processes may write and read."""
        return os.path.join(self.directory, name)

    def cpu_seconds(self):
        """Returns the CPU seconds of all processes of the server, ended ones included; None if it does not run."""
        try:
            with open(os.path.join(self.directory, "data", "postmaster.pid"), encoding="utf-8") as pidfile:
                root = int(pidfile.readline())
            # A process that ends between two readings would be counted twice or not at all: read again
            # until nothing has changed meanwhile.
            for _ in range(40):
                ended, before = cpu_ticks(root, True), children_of(root)
                if before.keys() == children_of(root).keys() and waited_for(root) == ended - cpu_ticks(root, False):
                    break
                time.sleep(0.05)
            return (ended + sum(before.values())) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError):
            return None

    def stop(self):
        """Stops the server and removes its directory, if there is one."""
        self.disconnect()
        if not self.directory:
            return
        data = os.path.join(self.directory, "data")
        if os.path.exists(os.path.join(data, "postmaster.pid")):
            self._as_owner([self.tool("pg_ctl"), "-s", "-w", "-D", data, "-m", "immediate", "stop"])
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory = None


class ExistingServer(Server):
    """A server of the user. Only the benchmark's databases are created, and stop() drops them."""

    keeps_pg_environment = True

    def __init__(self, bindir, conninfo):
        super().__init__(bindir)
        self.base = conninfo
        self.databases = []

    def start(self):
        """Checks that the server can be reached."""
        done = subprocess.run([self.tool("psql"), "-X", "-q", "-A", "-t", "-d", self.base, "-c",
                               "SELECT current_database()"],
                              capture_output=True, text=True, env=self.environment())
        if done.returncode != 0:
            raise BenchError(f"cannot reach the server: {one_line(done.stderr)}")
        self.admin_database = done.stdout.rstrip("\n")

    def conninfo(self, database):
        """Returns the user's connection string, with another database."""
        uri = re.match(r"(postgres(?:ql)?://(?:[^/@]*@)?[^/?]*)[^?]*\??(.*)$", self.base)
        if uri:
            options = [option for option in uri[2].split("&") if option and not option.startswith("dbname=")]
            return f"{uri[1]}/{urllib.parse.quote(database, safe='')}" + ("?" + "&".join(options) if options else "")
        return (f"{self.base} " if "=" in self.base else "") + f"dbname={connection_value(database)}"

    def cpu_seconds(self):
        return None

    def stop(self):
        """Drops the databases that were created in the server."""
        self.disconnect()
        for database in self.databases:
            try:
                self.run_sql(self.admin_database, f"DROP DATABASE IF EXISTS {database} WITH (FORCE);\n")
            except BenchError:
                pass
        self.databases = []


def stat_fields(pid):
    """Returns the fields of /proc/PID/stat after the name: 1 is the parent, 11 and 12 are the CPU times of the
    process, 13 and 14 those of its children that have ended."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
        return stat.read().rpartition(")")[2].split()


def cpu_ticks(pid, with_ended_children):
    """Returns the CPU time of a process in clock ticks."""
    return sum(int(x) for x in stat_fields(pid)[11:15 if with_ended_children else 13])


def waited_for(pid):
    """Returns the CPU time, in clock ticks, of the process's children that have ended."""
    return sum(int(x) for x in stat_fields(pid)[13:15])


def children_of(parent):
    """Returns {pid: CPU time in clock ticks} of the children of a process."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = stat_fields(entry)
            except OSError:
                continue
            if int(fields[1]) == parent:
                children[int(entry)] = sum(int(x) for x in fields[11:13])
    return children


def process_cpu_seconds(pid):
    """Returns the CPU seconds of one process, exact to the nanosecond."""
    with open(f"/proc/{pid}/schedstat", encoding="utf-8") as stat:
        return int(stat.read().split()[0]) / 1e9


def machine_busy_seconds():
    """Returns the CPU seconds of all processes since the machine started, or None."""
    try:
        with open("/proc/stat", encoding="utf-8") as stat:
            fields = [int(x) for x in stat.readline().split()[1:9]]
    except (OSError, ValueError):
        return None
    # without the columns idle, iowait and steal
    return (sum(fields) - fields[3] - fields[4] - fields[7]) / os.sysconf("SC_CLK_TCK")


def load_average():
    """Returns the load average of the last minute, or None."""
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None


def machine():
    """Returns facts about the machine: cores, CPU, memory, kernel."""
    facts = {"cores": os.cpu_count(), "cpu": "unknown", "memory_mb": 2048, "kernel": os.uname().release}
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            match = re.search(r"^model name\s*: (.*)$", info.read(), re.M)
            if match:
                facts["cpu"] = match.group(1)
        with open("/proc/meminfo", encoding="utf-8") as info:
            facts["memory_mb"] = int(re.search(r"MemTotal:\s+(\d+)", info.read()).group(1)) // 1024
    except OSError:
        pass
    return facts
