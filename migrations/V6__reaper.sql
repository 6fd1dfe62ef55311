-- How far stored answers have been purged.
--
-- Answers are purged in the order of key_expires_at (the one index that records have) behind this mark, so that purging
-- needs no index of its own, which every order would pay for. What the mark passes over (a locked row, a changed
-- retention) is forgotten with its key; whether an answer is replayed is decided by the time, never by its presence.
CREATE TABLE reaper_state (
    one          boolean PRIMARY KEY DEFAULT true CONSTRAINT reaper_state_is_one_row CHECK (one),
    purged_until timestamptz NOT NULL DEFAULT '-infinity'
);
INSERT INTO reaper_state DEFAULT VALUES;
