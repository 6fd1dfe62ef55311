-- What the payment gateway told us of its own accord, each once, by the gateway's own id.
--
-- account_id is the account that the event's object names; an event that names none is nobody's.
CREATE TABLE gateway_events (
    id          text COLLATE "C" PRIMARY KEY,
    account_id  bigint,
    type        text NOT NULL,
    data        jsonb NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now()
);
