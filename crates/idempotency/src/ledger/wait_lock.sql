-- After a lost COMMIT: once this is granted (within lock_timeout), the record is there or the transaction is gone.
SELECT pg_advisory_xact_lock($1)
