-- The proof of who runs: held exactly as long as the transaction, and never waited for.
SELECT pg_try_advisory_xact_lock($1)
