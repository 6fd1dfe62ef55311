-- Read without an index: the one on idem_key could be what is broken.
SELECT idem_key FROM orders GROUP BY idem_key HAVING count(*) > 1
UNION ALL
SELECT idem_key FROM orders WHERE NOT starts_with(idem_key, account_id || ':')
LIMIT $1
