"""For each workload: the question that it answers, the published figures, and the measured ones to compare with."""


class Question:
    """asked: what the workload does and why; source: where it comes from; published: {figure: what was published}.

    The summary of a page shows the figures of published, in this order.
    """

    def __init__(self, asked, source, published):
        self.asked, self.source, self.published = asked, source, published


NONE, OURS = "none", "ours"
MANY = ("A table has six indexes, and each transaction changes the column of one. With heap and btree all six get a new entry; "
        "zbtree adds an entry to one, and the row stays where it is.")
WARM = "WARM, a patch for PostgreSQL of 2016 (scale 700, 16 clients, 16 hours)"
GONE = "The table and the other indexes must not grow."
FROM_MEMORY = ("The data are larger than shared_buffers, and checkpoints come every minute, so that page images and reads count as on a "
               "server that is in use. The file cache of the kernel holds the data.")
CHURN = ("A transaction changes one row and reads two, by gaussian keys; an index includes the changed column. A snapshot stays open all "
         "the time, so that heap cannot clean up. " + GONE)
JSON = ("The row's jsonb is rewritten, but the indexed expression of it keeps its value. Heap makes new entries in all indexes. " + GONE)
JSON_SOURCE = "a change of PostgreSQL 11 that was withdrawn before its release (2018, 6 clients, 120 s)"
QUEUE = ("800 jobs come in a second and are claimed at once, the oldest first. Claimed jobs leave entries in the index (status, id) that "
         "each claim has to pass. ")

# Workloads whose growth the top of the page tells, in this order.
FIRST = ("W0", "D", "DQ")

QUESTIONS = {
    "W0": Question("A small table is updated many times while another transaction stays open, as a report, a backup or a forgotten "
                   "session does. The number of updates is fixed and both sides run the same ones, so that growth does not depend on the "
                   "machine.", OURS, {"table_times": NONE, "index_times": NONE, "wal_without_images": NONE}),
    "D": Question("Documents of 10 kB lie out of line, in the TOAST table. Each transaction changes one key of one of them, at random, "
                  "while another transaction stays open. The whole document is stored again, and the old one must stay readable. On both "
                  "sides the index of the TOAST table gets an entry for each chunk of 2 kB, and keeps them until VACUUM may remove them.",
                  OURS, {"toast_times": NONE, "toast_index": NONE, "undo_back": NONE, "wal_without_images": NONE}),
    "DQ": Question("Each transaction adds ten jobs to a queue and deletes the ten oldest ones, while another transaction stays open. "
                   "The queue itself does not get longer: what grows is what the deleted jobs leave behind, which on both sides "
                   "includes their index entries.", OURS,
                   {"table_times": NONE, "index_times": NONE, "undo_peak": NONE, "wal_without_images": NONE}),
    "W1": Question("pgbench's simple-update runs while another transaction keeps its snapshot from 10 % to 70 % of the time: the case in "
                   "which heap's tables bloat.", "the announcement of zheap, 2018 (scale 1000, 8 and 64 clients, 25 to 70 minutes)",
                   {"table_growth": "heap +23 to +130 %, zheap 0", "undo_back": "within seconds", "tps": "up to 1.45"}),
    "W2": Question(MANY, WARM, {"tps": "1.77", "wal_per_transaction": "0.53", "others_growth": NONE, "cpu_us": NONE}),
    "W2f": Question(MANY + " Pages are filled to 90 %, which helps heap.", WARM,
                    {"tps": "2.50", "wal_per_transaction": "0.29", "others_growth": NONE, "cpu_us": NONE}),
    "W2s": Question("A table has six btree indexes, on both sides, and the column of one changes: what an update costs on zheap where "
                    "the row has to move.", OURS, {"tps": NONE, "wal_without_images": NONE, "cpu_us": NONE}),
    "W4s": Question("An index includes the changed column, and all indexes are btree's on both sides, so that the rows of zheap move, "
                    "beside an open snapshot.", OURS, {"tps": NONE, "wal_without_images": NONE, "cpu_us": NONE}),
    "K": Question("Of two rows the unique keys are swapped, and that of a third is shifted, in a table with five more indexes: what "
                  "sorted lists and calendars do. On zheap the index is unique from PostgreSQL 18 on.", OURS,
                  {"wal_without_images": NONE, "others_growth": NONE, "cpu_us": NONE}),
    "W2L": Question(MANY + " " + FROM_MEMORY, WARM, {"tps": "1.77", "wal_per_transaction": "0.53", "others_growth": NONE}),
    "W2Lf": Question(MANY + " Pages are filled to 90 %, which helps heap. " + FROM_MEMORY, WARM,
                     {"tps": "2.50", "wal_per_transaction": "0.29", "others_growth": NONE}),
    "W3": Question("simple-update alone: what an update costs, in WAL above all.",
                   "a change of PostgreSQL 9.4 that shortened the WAL of updates (2014, scale 300, 1 to 32 clients)",
                   {"tps": "1.01 to 1.08", "wal_without_images": NONE}),
    "FK": Question("tpcb-like with foreign keys, so that each transaction locks rows of other tables: locks of all strengths on few rows.",
                   OURS, {"tps": NONE, "sums_equal": NONE}),
    "W4": Question(CHURN, "bottom-up deletion in PostgreSQL 14 (2020, scale 1500, 16 clients, 2 hours; heap before and after)",
                   {"tps": "1.71", "others_growth": "none (before: +88 %)", "wal_without_images": NONE}),
    "W4L": Question(CHURN + " " + FROM_MEMORY, "bottom-up deletion in PostgreSQL 14 (2020; heap before and after)",
                    {"tps": "1.71", "others_growth": "none (before: +88 %)", "wal_per_transaction": NONE}),
    "W5": Question(JSON, JSON_SOURCE, {"tps": "2.57", "table_growth": "25 times smaller"}),
    "W5s": Question(JSON + " Both sides have btree indexes.", JSON_SOURCE, {"tps": "2.57", "table_growth": "25 times smaller"}),
    "W7": Question(QUEUE + "Three queries beside it always overlap, each with a snapshot of its own. In a run of 900 s, as published, "
                   "a query takes 120 s; in a shorter one as much less.", "a public report on PostgreSQL 18 (2026, 15 minutes)",
                   {"backlog": "heap 155,000 jobs", "claim_latency_ms": "heap 300 ms, without queries 2 ms", "table_size": NONE}),
    "W7o": Question(QUEUE + "One transaction keeps its snapshot all the time.", "ours, after the same report",
                    {"backlog": NONE, "claim": NONE, "table_size": NONE}),
    "W6": Question("All clients update four rows while a snapshot is open, which then reads them: the longest chains of versions there "
                   "can be.", "ours; a third party measured 0.34 s for this read with the zheap of 2019", {"tps": NONE, "old_read": "0.34 s"}),
    "T": Question("The five transactions of TPC-C: orders, payments, deliveries and two that only read, first alone and then beside a "
                  "transaction that keeps its snapshot and does nothing.", OURS,
                  {"tps": NONE, "tps_beside": NONE, "growth_beside": NONE, "consistent": NONE}),
    "W8": Question("Bulk load, scans, DELETE and refill, a large ROLLBACK: what nobody should lose by choosing zheap.", OURS,
                   {"copy": NONE, "loaded_table": "0.80 (zheap of 2019)", "scan": NONE, "rollback": NONE}),
    "ops": Question("What single operations cost, in CPU of the backend: zheap should not take a tenth more than heap.", OURS, {}),
}
