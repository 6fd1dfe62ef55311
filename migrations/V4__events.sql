-- What happened, written in the transaction that made it true (the outbox). Delivery reads it later.
CREATE TABLE events (
    id         uuid PRIMARY KEY,
    account_id bigint NOT NULL,
    type       text NOT NULL,
    data       jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
