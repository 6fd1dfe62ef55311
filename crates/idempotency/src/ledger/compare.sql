-- What the records say of keys that Redis holds an answer for. $1 accounts, $2 keys, pairwise.
SELECT asked.place, record.status, record.fingerprint_version, record.request_hash, record.response_code, record.response_body,
       record.response_headers
  FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY AS asked (account_id, key, place)
  LEFT JOIN idempotency_records AS record ON record.account_id = asked.account_id AND record.key = asked.key
