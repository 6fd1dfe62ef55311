-- The orders, and the last layer of defence.
--
-- orders.idem_key is account and client key in one text ("42:8e03…") and UNIQUE: when Redis has forgotten and even the
-- record is gone, this index still refuses a second order. It is never dropped and never deferrable.
-- account_id has no foreign key: accounts are never deleted, and the check would lock the account's row for every order.
CREATE TABLE orders (
    id           uuid PRIMARY KEY,
    account_id   bigint NOT NULL,
    idem_key     text COLLATE "C" NOT NULL,
    status       text NOT NULL,
    total_amount bigint NOT NULL,
    currency     text NOT NULL,
    note         text,
    created_at   timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT orders_known_status CHECK (status IN ('pending_payment', 'paying', 'paid', 'cancelled', 'refunded')),
    CONSTRAINT orders_total_not_negative CHECK (total_amount >= 0)
);
CREATE UNIQUE INDEX orders_idem_key ON orders (idem_key);
-- Lists walk an account's orders by id; ids are UUIDv7, so that is by time.
CREATE INDEX orders_account_id ON orders (account_id, id);

CREATE TABLE order_items (
    order_id   uuid NOT NULL REFERENCES orders (id),
    position   smallint NOT NULL,
    sku        text COLLATE "C" NOT NULL,
    name       text NOT NULL,
    quantity   integer NOT NULL CONSTRAINT order_items_quantity_positive CHECK (quantity > 0),
    unit_price bigint NOT NULL,
    PRIMARY KEY (order_id, position)
);
