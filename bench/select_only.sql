\set aid random(1, :rows)
SELECT abalance FROM bulk WHERE aid = :aid;
