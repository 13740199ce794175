"""A server whose instructions are counted, by valgrind's callgrind.

Time depends on the machine and its other load, but the number of a backend's
instructions hardly does. It differs by about one per cent between runs, since only
one backend works at a time and the undo worker is stopped meanwhile.

The tables are loaded without callgrind. Then the server is restarted under
callgrind, which makes it about 50 times slower. At each call of pg_backend_pid()
callgrind writes a profile of what has run since the last call, so each operation is
enclosed in two such calls.
"""

import glob
import os
import re
import shutil
import signal
import time

from server import BenchError, PrivateServer

REST_PATIENCE = 120.0           # seconds that we wait for the undo workers to be idle


class CallgrindServer(PrivateServer):
    """A private server that can be restarted under callgrind."""

    counting = False

    def settings(self):
        return super().settings() + "\n".join((
            "shared_buffers = 64MB", "fsync = off", "autovacuum = off", "jit = off",
            "max_parallel_workers = 0", "max_parallel_maintenance_workers = 0", "max_parallel_workers_per_gather = 0",
            "bgwriter_lru_maxpages = 0", "min_wal_size = 80MB")) + "\n"

    def environment(self):
        return dict(super().environment(), PGCONNECT_TIMEOUT="300")

    def count_instructions(self):
        """Restarts the server under callgrind."""
        self.disconnect()
        data = os.path.join(self.directory, "data")
        self._as_owner([self.tool("pg_ctl"), "-s", "-w", "-D", data, "-m", "fast", "stop"])
        wrapper = self.server_file("postgres-under-callgrind")
        with open(wrapper, "w", encoding="utf-8") as script:
            script.write("#!/bin/sh\nexec valgrind --quiet --tool=callgrind --dump-before=pg_backend_pid"
                         f" --callgrind-out-file='{self.server_file('counts')}.%p' '{self.tool('postgres')}' \"$@\"\n")
        os.chmod(wrapper, 0o755)
        log = self.server_file("log")
        done = self._as_owner([self.tool("pg_ctl"), "-s", "-w", "-t", "600", "-D", data, "-l", log, "-p", wrapper, "start"])
        if done.returncode != 0:
            raise BenchError("the server did not start under callgrind: " + self.last_log_line())
        self.counting = True

    def stop(self):
        """Stops and removes the server; waits for the postmaster, which writes a profile at its end."""
        directory, postmaster = self.directory, None
        if directory and self.counting:
            try:
                with open(os.path.join(directory, "data", "postmaster.pid"), encoding="utf-8") as pidfile:
                    postmaster = pidfile.readline().strip()
            except OSError:
                pass
        super().stop()
        start = time.monotonic()
        while postmaster and os.path.exists(f"/proc/{postmaster}") and time.monotonic() - start < REST_PATIENCE:
            time.sleep(0.1)
        if directory:
            shutil.rmtree(directory, ignore_errors=True)

    def mark(self, session):
        """Ends one profile of the session's backend and begins the next; returns the path of the ended one."""
        pid = int(session.value("SELECT pg_backend_pid()"))
        files = glob.glob(self.server_file(f"counts.{pid}.*"))
        if not files:
            raise BenchError("callgrind wrote no profile: is valgrind completely installed?")
        return max(files, key=lambda path: int(path.rpartition(".")[2]))

    def forget_profiles(self):
        """Removes all profiles."""
        for path in glob.glob(self.server_file("counts.*")):
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass


class StoppedWorkers:
    """A context during which zundo's background processes are stopped (SIGSTOP).

    They are stopped while they wait for their next cycle, when they hold no lock. A
    worker may exit if nothing is left to do, but since the launcher is stopped, too,
    no new one starts.
    """

    def __init__(self, session):
        """session must not be the one whose work is measured."""
        self.session, self.pids = session, []

    def look(self):
        """Returns {pid: whether it waits for its next cycle}."""
        rows = self.session.query("SELECT pid, wait_event_type = 'Extension' AND wait_event IS NOT NULL FROM pg_stat_activity"
                             " WHERE backend_type IN ('zundo undo worker', 'zundo undo launcher')")
        return {int(pid): waits == "t" for pid, waits in rows}

    def stop(self):
        """Stops the processes that wait; returns whether these are all of them and still wait."""
        self.pids = [pid for pid, waits in self.look().items() if waits]
        for pid in self.pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(0.02)
        found = self.look()
        return set(found) == set(self.pids) and all(found.values())

    def resume(self):
        """Lets the stopped processes continue."""
        for pid in self.pids:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass
        self.pids = []

    def __enter__(self):
        """Stops the undo workers when all of them wait. Raises BenchError if they stay busy."""
        start = time.monotonic()
        try:
            while not self.stop():
                self.resume()
                if time.monotonic() - start > REST_PATIENCE:
                    raise BenchError("the undo workers do not become idle")
                time.sleep(0.05)
        except BaseException:
            self.resume()
            raise
        return self

    def __exit__(self, *_):
        self.resume()


def instructions(path):
    """Returns the number of instructions in a profile."""
    with open(path, encoding="utf-8", errors="replace") as profile:
        for line in profile:
            match = re.match(r"(?:summary|totals): (\d+)", line)
            if match:
                return int(match.group(1))
    raise BenchError(f"{path} is no profile")


def calls(path):
    """Returns {(caller, called function): number of calls} of a profile."""
    names, counts, caller, called = {}, {}, None, None

    def name_of(text):
        """Returns the name behind callgrind's (id) with or without a name."""
        match = re.match(r"(\(\d+\))(?: (.*))?", text)
        if not match:
            return text
        if match.group(2):
            # a recursive function has a name for each depth: f'2
            names[match.group(1)] = re.sub(r"'\d+$", "", match.group(2))
        return names[match.group(1)]

    with open(path, encoding="utf-8", errors="replace") as profile:
        for line in profile:
            if line.startswith("fn="):
                caller = name_of(line[3:].strip())
            elif line.startswith("cfn="):
                called = name_of(line[4:].strip())
            elif line.startswith("calls="):
                key = (caller, called)
                counts[key] = counts.get(key, 0) + int(line[6:].split()[0])
    return counts
