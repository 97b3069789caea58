"""The tables and functions in which PostgreSQL keeps topics, as SQL.

    log_1, log_2 …      (partition, at) → key, value       a topic; `at` is the offset, dense in each partition
    partitions          (topic, partition) → next          its next offset
    positions           (consumer, topic, partition) → at
    table_1, table_2 …  key → n, or value                  n: an integer, which SQL can add to; value: all others

An offset must be in the order of commits, or a reader that has seen offset 7 would miss 6 when it commits later. So
a transaction takes its offsets by an update of `partitions`, which keeps that row locked until it has ended. It
takes locks in one order: positions, rows, partitions, each by its key. So two transactions do not wait for each
other, except for rows that a `get` locked.

`placed` runs when all those locks are held, and takes the transaction's place from a sequence. Whoever waits for
one of the locks gets a later place. So the places are the one order that all reads under locks agree with.

A function's statements are planned once a connection. So a small transaction commits in one round trip: one SELECT
calls what it needs, as `SELECT placed(moved(…) || change_1(…) || write_2(…))`.

Next: postgresql_store.py.
"""

CONFLICT = "PS001"
"""The error code of a position that is not what the transaction had read."""
NOTIFIED_MAX = 7000
"""Bytes of a notification, below PostgreSQL's limit; a longer one says nothing, and all partitions are read."""

BASE = f"""
CREATE TABLE topics (
  id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, name text UNIQUE, partitions bigint,
  followed bool DEFAULT false);
CREATE TABLE tables (id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, name text UNIQUE);
CREATE TABLE partitions (topic bigint, partition bigint, next bigint DEFAULT 0, PRIMARY KEY (topic, partition))
  WITH (fillfactor = 50);
CREATE TABLE positions (consumer text, topic bigint, partition bigint, at bigint,
  PRIMARY KEY (consumer, topic, partition)) WITH (fillfactor = 50);
CREATE SEQUENCE places;

CREATE FUNCTION moved(who text, topics bigint[], partitions bigint[], froms bigint[], tos bigint[])
RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 1 .. cardinality(topics) LOOP
    UPDATE positions p SET at = tos[i]
      WHERE p.consumer = who AND p.topic = topics[i] AND p.partition = partitions[i] AND p.at = froms[i];
    IF NOT FOUND THEN
      IF froms[i] = 0 THEN
        INSERT INTO positions VALUES (who, topics[i], partitions[i], tos[i]) ON CONFLICT DO NOTHING;
      END IF;
      IF NOT FOUND THEN
        RAISE EXCEPTION 'the position is not what was read' USING ERRCODE = '{CONFLICT}';
      END IF;
    END IF;
  END LOOP;
  RETURN '{{}}';
END $$;

CREATE FUNCTION reserve(of_topic bigint, targets bigint[], counts bigint[])
RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
  bases bigint[] := '{{}}';
  base bigint;
  named text;
BEGIN
  FOR i IN 1 .. cardinality(targets) LOOP
    UPDATE partitions p SET next = next + counts[i] WHERE p.topic = of_topic AND p.partition = targets[i]
      RETURNING next - counts[i] INTO STRICT base;
    bases := bases || base;
  END LOOP;
  IF (SELECT followed FROM topics t WHERE t.id = of_topic) THEN
    named := array_to_string(targets, ',');
    PERFORM pg_notify(current_schema() || '_' || of_topic,
      CASE WHEN length(named) > {NOTIFIED_MAX} THEN '' ELSE named END);
  END IF;
  RETURN bases;
END $$;

CREATE FUNCTION placed(bases bigint[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
  RETURN nextval('places') || bases;
END $$;
"""


def topic(n: int) -> str:
    """Returns the SQL that makes what topic `n` needs; what exists stays. Values are never compressed."""
    return f"""
CREATE TABLE IF NOT EXISTS log_{n} (partition bigint, at bigint, key bytea, value bytea,
  PRIMARY KEY (partition, at));
ALTER TABLE log_{n} ALTER COLUMN value SET STORAGE EXTERNAL;
CREATE OR REPLACE FUNCTION write_{n}(targets bigint[], counts bigint[], keys bytea[], vals bytea[])
RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
  bases bigint[] := reserve({n}, targets, counts);
  first bigint := 1;
BEGIN
  FOR i IN 1 .. cardinality(targets) LOOP
    IF counts[i] = 1 THEN
      INSERT INTO log_{n} VALUES (targets[i], bases[i], keys[first], vals[first]);
    ELSE
      INSERT INTO log_{n} SELECT targets[i], bases[i] + nth - 1, key, val
        FROM unnest(keys[first : first + counts[i] - 1], vals[first : first + counts[i] - 1])
        WITH ORDINALITY AS one(key, val, nth);
    END IF;
    first := first + counts[i];
  END LOOP;
  RETURN bases;
END $$;
"""


def table(n: int) -> str:
    """Returns the SQL that makes what table `n` needs; what exists stays.

    `locked_n` returns a row and locks it. One that does not exist is made, without a value, since there is nothing
    else to lock.
    """
    return f"""
CREATE TABLE IF NOT EXISTS table_{n} (key text PRIMARY KEY, n bigint, value bytea) WITH (fillfactor = 50);
CREATE OR REPLACE FUNCTION change_{n}(names text[], puts bool[], ns bigint[], vals bytea[])
RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 1 .. cardinality(names) LOOP
    IF puts[i] THEN
      INSERT INTO table_{n} VALUES (names[i], CASE WHEN vals[i] = '' THEN ns[i] END, nullif(vals[i], ''))
        ON CONFLICT (key) DO UPDATE SET n = excluded.n, value = excluded.value;
    ELSE
      INSERT INTO table_{n} AS t VALUES (names[i], ns[i])
        ON CONFLICT (key) DO UPDATE SET n = coalesce(t.n, 0) + excluded.n;
    END IF;
  END LOOP;
  RETURN '{{}}';
END $$;
CREATE OR REPLACE FUNCTION locked_{n}(name text, OUT n bigint, OUT value bytea) LANGUAGE plpgsql AS $$
BEGIN
  LOOP
    SELECT t.n, t.value INTO n, value FROM table_{n} t WHERE t.key = name FOR UPDATE;
    IF FOUND THEN
      RETURN;
    END IF;
    INSERT INTO table_{n} (key) VALUES (name) ON CONFLICT DO NOTHING;
  END LOOP;
END $$;
"""
