-- The truth about a key: one row, committed with the work that it stands for.
--
-- The row is inserted last and finished, in the transaction of the business rows: inside one transaction nobody else
-- can see IN_PROGRESS (that state belongs to work that spans transactions). The answer is bytes, since jsonb re-formats
-- and a replay must be the first answer byte for byte. No key constraint is deferrable: COMMIT is already queued behind
-- the INSERT, and the INSERT must be the check.
--
-- Two horizons: until result_expires_at the answer is replayed; until key_expires_at the key stays used.
CREATE TABLE idempotency_records (
    account_id          bigint NOT NULL,
    key                 text COLLATE "C" NOT NULL,
    request_path        text NOT NULL,
    request_hash        bytea NOT NULL,
    fingerprint_version smallint NOT NULL,
    request_id          uuid NOT NULL,
    status              text NOT NULL,
    response_code       smallint,
    response_headers    text[],
    response_body       bytea,
    created_at          timestamptz NOT NULL DEFAULT now(),
    updated_at          timestamptz NOT NULL DEFAULT now(),
    result_expires_at   timestamptz,
    key_expires_at      timestamptz,
    PRIMARY KEY (account_id, key),
    CONSTRAINT idempotency_records_hash_is_sha256 CHECK (octet_length(request_hash) = 32),
    CONSTRAINT idempotency_records_known_status CHECK (status IN ('IN_PROGRESS', 'COMPLETED', 'FAILED')),
    CONSTRAINT idempotency_records_finished_has_answer
        CHECK ((status = 'IN_PROGRESS') = (response_code IS NULL)),
    CONSTRAINT idempotency_records_finished_expires
        CHECK (status = 'IN_PROGRESS' OR (result_expires_at IS NOT NULL AND key_expires_at IS NOT NULL)),
    CONSTRAINT idempotency_records_result_within_key CHECK (result_expires_at <= key_expires_at)
);

-- For forgetting in batches; it grows at its right edge only.
CREATE INDEX idempotency_records_key_expires_at ON idempotency_records (key_expires_at);
