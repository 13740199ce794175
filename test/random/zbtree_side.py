"""Lets the random testers create zbtree indexes on zheap tables where they create btree indexes on heap tables."""

import re

MODES = ("mixed", "always", "never")
CREATE = re.compile(r"\bCREATE (UNIQUE )?INDEX((?: CONCURRENTLY)?(?: \w+)?) ON ([\w.]+) \(")
unique = False                          # whether zbtree indexes may be unique: set by allow_unique

# Functions that run a query with one kind of scan alone, under the snapshot of the caller.
WAYS = {
    "index": "SET enable_seqscan = off SET enable_bitmapscan = off SET enable_indexonlyscan = off SET enable_sort = off",
    "index_only": "SET enable_seqscan = off SET enable_bitmapscan = off SET enable_indexonlyscan = on SET enable_sort = off",
    "bitmap": "SET enable_seqscan = off SET enable_indexscan = off SET enable_indexonlyscan = off",
    "seq": "SET enable_indexscan = off SET enable_indexonlyscan = off SET enable_bitmapscan = off",
}
HELPERS = "".join(f"""
CREATE OR REPLACE FUNCTION public.by_{way}(query text) RETURNS text LANGUAGE plpgsql STABLE {settings} AS
$$ DECLARE found text; BEGIN EXECUTE 'SELECT string_agg(q::text, '';'') FROM (' || query || ') q' INTO found; RETURN found; END $$;
""" for way, settings in WAYS.items())

# What zundo.check_index finds in the valid zbtree indexes that this session can access.
FAULTS = """SELECT i.indexrelid::regclass::text, c.* FROM pg_index i JOIN pg_class k ON k.oid = i.indexrelid AND k.relkind = 'i'
    JOIN pg_am a ON a.oid = k.relam AND a.amname = 'zbtree', LATERAL zundo.check_index(i.indexrelid) c
    WHERE i.indisvalid AND NOT pg_is_other_temp_schema(k.relnamespace) AND (k.relpersistence <> 'u' OR NOT pg_is_in_recovery())"""


def chosen(mode, seed):
    """Returns whether zheap tables have zbtree indexes with this --zbtree mode and seed."""
    return mode == "always" or (mode == "mixed" and seed % 2 == 1)


def allow_unique(version):
    """Makes unique indexes zbtree too, if this major version of the server can have them."""
    global unique
    unique = version >= 18


def with_zbtree(sql):
    """Returns the statement with USING zbtree, if it is a CREATE INDEX for which zbtree can be used in place of btree."""
    return CREATE.sub(lambda m: m[0] if m[1] and not unique else f"CREATE {m[1] or ''}INDEX{m[2]} ON {m[3]} USING zbtree (", sql)
