-- Where an account's events go. The secret signs deliveries, so it is kept; it is shown once, when the endpoint is made.
CREATE TABLE webhook_endpoints (
    id         uuid PRIMARY KEY,
    account_id bigint NOT NULL,
    url        text NOT NULL,
    secret     text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX webhook_endpoints_account_id ON webhook_endpoints (account_id, id);
