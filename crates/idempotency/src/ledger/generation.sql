-- Which database answers: its oid and the start of its server, in microseconds since 1970.
SELECT (SELECT oid FROM pg_database WHERE datname = current_database())::int8,
       (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::int8
