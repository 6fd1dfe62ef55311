-- Work that spans transactions: a record that is IN_PROGRESS, who runs it, and how far it has come.
--
-- The record is committed with its request before the first step, so that whoever finds its lease run out can go on. Every
-- change of state compares lease_token: an executor that was paused past its lease has lost, whatever it still believes.
-- updated_at is the last progress (a journaled step); the heartbeat moves lease_expires_at only, which no index holds.
--
-- A command's row has none of these columns set, and the indexes are partial: an order pays for nothing here.
ALTER TABLE idempotency_records
    ADD COLUMN command          text,
    ADD COLUMN request_body     bytea,
    ADD COLUMN lease_token      uuid,
    ADD COLUMN lease_expires_at timestamptz,
    ADD COLUMN attempts         integer,
    ADD COLUMN serial           text,
    ADD COLUMN background       boolean,
    ADD COLUMN unknown_since    timestamptz,
    ADD COLUMN trouble          text,
    ADD CONSTRAINT idempotency_records_running_can_be_resumed CHECK (status <> 'IN_PROGRESS' OR
        (command IS NOT NULL AND request_body IS NOT NULL AND lease_token IS NOT NULL AND lease_expires_at IS NOT NULL
         AND attempts IS NOT NULL)),
    ADD CONSTRAINT idempotency_records_finished_holds_nothing CHECK (status = 'IN_PROGRESS' OR
        (request_body IS NULL AND lease_token IS NULL AND lease_expires_at IS NULL AND serial IS NULL
         AND unknown_since IS NULL)),
    ADD CONSTRAINT idempotency_records_running_does_not_expire CHECK (status <> 'IN_PROGRESS' OR key_expires_at IS NULL);

-- What the completer looks through.
CREATE INDEX idempotency_records_running ON idempotency_records (created_at) WHERE status = 'IN_PROGRESS';
-- The id of an operation is that of the request that began it.
CREATE UNIQUE INDEX idempotency_records_operation ON idempotency_records (request_id) WHERE command IS NOT NULL;
-- One serialised workflow of a kind runs for each account: an advisory lock would end with each of its transactions.
CREATE UNIQUE INDEX idempotency_records_serial ON idempotency_records (account_id, serial)
    WHERE status = 'IN_PROGRESS' AND serial IS NOT NULL;

-- The journal. An atomic step stands here if and only if its transaction was committed. A foreign call stands here as begun
-- before it is made: without that nobody could tell a call that was never made from one whose outcome is unknown.
CREATE TABLE workflow_steps (
    account_id  bigint NOT NULL,
    key         text COLLATE "C" NOT NULL,
    position    integer NOT NULL,
    name        text NOT NULL,
    kind        text NOT NULL CONSTRAINT workflow_steps_known_kind CHECK (kind IN ('atomic', 'foreign')),
    state       text NOT NULL CONSTRAINT workflow_steps_known_state CHECK (state IN ('begun', 'done')),
    derived_key text,
    result      bytea,
    begun_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    done_at     timestamptz,
    PRIMARY KEY (account_id, key, position),
    FOREIGN KEY (account_id, key) REFERENCES idempotency_records (account_id, key) ON DELETE CASCADE,
    CONSTRAINT workflow_steps_only_calls_are_begun CHECK (state = 'done' OR kind = 'foreign'),
    CONSTRAINT workflow_steps_calls_have_a_key CHECK ((kind = 'foreign') = (derived_key IS NOT NULL)),
    CONSTRAINT workflow_steps_done_has_a_result CHECK ((state = 'done') = (result IS NOT NULL AND done_at IS NOT NULL))
);

-- What operators decided about outcomes that nobody knew. Outlives the record.
CREATE TABLE key_resolutions (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_id  bigint NOT NULL,
    key         text COLLATE "C" NOT NULL,
    operation   uuid NOT NULL,
    step        text NOT NULL,
    derived_key text,
    decision    text NOT NULL CONSTRAINT key_resolutions_known_decision CHECK (decision IN ('done', 'absent')),
    reason      text NOT NULL CONSTRAINT key_resolutions_has_a_reason CHECK (reason <> ''),
    result      bytea,
    decided_by  text NOT NULL DEFAULT current_user,
    decided_at  timestamptz NOT NULL DEFAULT now()
);
