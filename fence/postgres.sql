-- Fences in Postgres 13 or later: a table, and functions that are called in the transaction that writes, each in a statement of its own. Stamps are 32 hexadecimal digits. The owner of
-- the schema runs this, also again, which changes nothing. Writers need USAGE on the schema isotone.
--
-- A write that is refused aborts its transaction. That holds outside savepoints and blocks with EXCEPTION only: whoever catches the error and commits has written. And
-- ROLLBACK TO a savepoint from before the call takes the fence away from what was accepted.
--
-- SQLSTATE ISF01: the stamp is below the fence. ISF02: there is no fence of this name; SELECT isotone.fence_seal(name, stamp) begins one.

DO $schema$
BEGIN
PERFORM pg_advisory_xact_lock(hashtextextended('isotone.fence', 0)); -- two that run this at once would fail

CREATE SCHEMA IF NOT EXISTS isotone;

CREATE TABLE IF NOT EXISTS isotone.fences (
  name  text COLLATE "C" PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 255),
  stamp bytea NOT NULL CHECK (octet_length(stamp) = 16)
);

-- fence_stamp reads a stamp.
CREATE OR REPLACE FUNCTION isotone.fence_stamp(digits text) RETURNS bytea LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF digits COLLATE "C" ~ '^[0-9a-f]{32}$' THEN
    RETURN decode(digits, 'hex');
  END IF;
  RAISE EXCEPTION 'a stamp has 32 lower-case hexadecimal digits, not "%"', left(digits, 40) USING ERRCODE = 'invalid_parameter_value';
END $$;

-- fence_refuse ends the transaction of a write that is below the fence.
CREATE OR REPLACE FUNCTION isotone.fence_refuse(fence_name text, stamp bytea, fence bytea) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION 'fence "%" is at %, and the write is stamped %: it comes too late', fence_name, encode(fence, 'hex'), encode(stamp, 'hex')
    USING ERRCODE = 'ISF01', HINT = 'Whoever wrote under a lock does not hold it any more.';
END $$;

-- fence_durable has the transaction survive a crash of the server, as a fence that was told must: by default Postgres does so.
CREATE OR REPLACE FUNCTION isotone.fence_durable() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'local', true);
  END IF;
END $$;

-- fence_raise accepts a write under the token of a lock, and raises the fence to it. It locks the fence until the transaction ends: call it shortly
-- before COMMIT, and set idle_in_transaction_session_timeout, as a holder that is paused in between has the next one wait.
CREATE OR REPLACE FUNCTION isotone.fence_raise(fence_name text, token text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE at bytea;
BEGIN
  PERFORM isotone.fence_durable();
  INSERT INTO isotone.fences AS f VALUES (fence_name COLLATE "C", isotone.fence_stamp(token))
    ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp WHERE f.stamp <= excluded.stamp;
  IF NOT FOUND THEN
    SELECT f.stamp INTO at FROM isotone.fences f WHERE f.name = fence_name COLLATE "C";
    PERFORM isotone.fence_refuse(fence_name, isotone.fence_stamp(token), at);
  END IF;
END $$;

-- fence_check accepts a write of a group. Several transactions pass at once, and a seal waits for them: set
-- idle_in_transaction_session_timeout, as those that come later wait for the seal.
CREATE OR REPLACE FUNCTION isotone.fence_check(fence_name text, stamp text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE at bytea;
BEGIN
  PERFORM pg_advisory_xact_lock_shared(hashtextextended('isotone.fence ' || fence_name COLLATE "C", 0));
  IF current_setting('transaction_isolation') = 'read committed' THEN
    SELECT f.stamp INTO at FROM isotone.fences f WHERE f.name = fence_name COLLATE "C";
  ELSE
    -- The snapshot may be older than a seal. To lock a row that has changed since fails with a serialization error.
    SELECT f.stamp INTO at FROM isotone.fences f WHERE f.name = fence_name COLLATE "C" FOR SHARE;
  END IF;
  IF at IS NULL THEN
    RAISE EXCEPTION 'there is no fence "%", or it is newer than the snapshot of this transaction', fence_name
      USING ERRCODE = 'ISF02', HINT = 'Begin it with SELECT isotone.fence_seal(name, stamp). If there was one, this database has lost it.';
  END IF;
  IF isotone.fence_stamp(stamp) < at THEN
    PERFORM isotone.fence_refuse(fence_name, isotone.fence_stamp(stamp), at);
  END IF;
END $$;

-- fence_seal raises the fence to a stamp, unless it is above: writes below that are refused once the transaction has committed.
CREATE OR REPLACE FUNCTION isotone.fence_seal(fence_name text, stamp text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM isotone.fence_durable();
  PERFORM pg_advisory_xact_lock(hashtextextended('isotone.fence ' || fence_name COLLATE "C", 0));
  INSERT INTO isotone.fences AS f VALUES (fence_name COLLATE "C", isotone.fence_stamp(stamp))
    ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp WHERE f.stamp < excluded.stamp;
END $$;
END $schema$;
