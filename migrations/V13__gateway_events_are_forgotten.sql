-- What the gateway told is forgotten after EVENTS_RETENTION, the oldest first, in bounded batches.
CREATE INDEX gateway_events_received_at ON gateway_events (received_at);
