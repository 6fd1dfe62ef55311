-- Payments and refunds, as far as the shop knows them; the gateway's ledger is the proof.
--
-- An order has at most one payment that is pending or succeeded: the index is the last word on charging twice. A row is written before
-- the gateway is called, with what it will be asked for, and holds the gateway's own id once it has answered.
CREATE TABLE payments (
    id           uuid PRIMARY KEY,
    account_id   bigint NOT NULL,
    order_id     uuid NOT NULL REFERENCES orders (id),
    status       text NOT NULL,
    amount       bigint NOT NULL CONSTRAINT payments_amount_not_negative CHECK (amount >= 0),
    currency     text NOT NULL,
    gateway_id   text CONSTRAINT payments_gateway_id_key UNIQUE,
    decline_code text,
    created_at   timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT payments_known_status CHECK (status IN ('pending', 'succeeded', 'declined', 'abandoned')),
    CONSTRAINT payments_succeeded_is_at_the_gateway CHECK ((status = 'succeeded') = (gateway_id IS NOT NULL))
);
CREATE UNIQUE INDEX payments_one_per_order ON payments (order_id) WHERE status IN ('pending', 'succeeded');

CREATE TABLE refunds (
    id         uuid PRIMARY KEY,
    account_id bigint NOT NULL,
    payment_id uuid NOT NULL REFERENCES payments (id),
    status     text NOT NULL,
    amount     bigint NOT NULL CONSTRAINT refunds_amount_positive CHECK (amount > 0),
    gateway_id text CONSTRAINT refunds_gateway_id_key UNIQUE,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT refunds_known_status CHECK (status IN ('pending', 'succeeded', 'refused', 'abandoned')),
    CONSTRAINT refunds_succeeded_is_at_the_gateway CHECK ((status = 'succeeded') = (gateway_id IS NOT NULL))
);
CREATE INDEX refunds_payment_id ON refunds (payment_id);
