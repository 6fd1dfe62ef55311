//! The tables that bench adds to the shop's, in a schema of their own.
//!
//! As the articles have them, faults included: `hybrid_records` has the client's key alone as its primary key, and both
//! answers are jsonb.

/// Run once, in the template database.
pub const DDL: &str = "
CREATE SCHEMA bench;
-- What the payment gateway did. It is the outside world: written by its own session in autocommit, it does not roll back.
CREATE TABLE bench.charges (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_id bigint NOT NULL,
    charged_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE bench.answers (
    account_id      bigint NOT NULL,
    idempotency_key text COLLATE \"C\" NOT NULL,
    request_hash    char(64) NOT NULL,
    response_code   smallint,
    response_body   jsonb,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (account_id, idempotency_key)
);
CREATE TABLE bench.hybrid_records (
    idempotency_key text COLLATE \"C\" PRIMARY KEY,
    user_id         bigint NOT NULL,
    request_path    text NOT NULL,
    request_hash    char(64) NOT NULL,
    status          text NOT NULL,
    response_code   smallint,
    response_body   jsonb,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX hybrid_records_by_user ON bench.hybrid_records (user_id, created_at DESC);
";
