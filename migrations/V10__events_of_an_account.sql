-- GET /v1/events walks an account's events by id; ids are UUIDv7, so that is by time.
CREATE INDEX events_account_id ON events (account_id, id);
