-- Deliveries of events: one row for each event and each of its account's subscribers, written by the statement that
-- writes the event, so that there is no event without its deliveries and none for what was rolled back.
--
-- event_subscribers is what the framework's relay knows of a subscriber: who it is, whose events it gets, and who works
-- for it until when. That a subscriber is a webhook endpoint is this service's affair: the view says so, and the planner
-- sees through it. (It has no foreign key: the check would lock the endpoint's row for every order. What is left behind
-- by an endpoint that is deleted is forgotten by the relay.)
--
-- not_before orders and protects at once: while a relay works for a subscriber it is the end of its lease, after a failed
-- try it is the end of the pause.
ALTER TABLE webhook_endpoints
    ADD COLUMN not_before timestamptz NOT NULL DEFAULT '-infinity',
    ADD COLUMN claim uuid,
    ADD COLUMN previous_secret text,
    ADD COLUMN previous_secret_until timestamptz,
    ADD CONSTRAINT webhook_endpoints_previous_secret_ends
        CHECK ((previous_secret IS NULL) = (previous_secret_until IS NULL));

CREATE VIEW event_subscribers AS SELECT id, account_id, not_before, claim FROM webhook_endpoints;

CREATE TABLE event_deliveries (
    subscriber_id uuid NOT NULL,
    event_id      uuid NOT NULL,
    state         text NOT NULL DEFAULT 'pending',
    attempts      smallint NOT NULL DEFAULT 0,
    waiting_since timestamptz NOT NULL DEFAULT now(),
    due_at        timestamptz NOT NULL DEFAULT now(),
    last_error    text,
    settled_at    timestamptz,
    PRIMARY KEY (subscriber_id, event_id),
    CONSTRAINT event_deliveries_known_state CHECK (state IN ('pending', 'delivered', 'dead')),
    CONSTRAINT event_deliveries_settled_has_time CHECK ((state = 'pending') = (settled_at IS NULL))
);
-- The line of each subscriber, in order. Nearly empty as long as deliveries succeed.
CREATE INDEX event_deliveries_pending ON event_deliveries (subscriber_id, due_at, event_id) WHERE state = 'pending';
-- For forgetting what is settled, in batches, and for showing what is dead.
CREATE INDEX event_deliveries_settled ON event_deliveries (settled_at) WHERE state <> 'pending';
CREATE INDEX event_deliveries_dead ON event_deliveries (settled_at) WHERE state = 'dead';
