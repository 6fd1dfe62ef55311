-- What can be ordered. Prices are integer minor units: no float ever touches money.
--
-- initial_stock is kept beside stock so that an audit can prove that what is missing is in live orders.
-- The CHECK is the last word on overselling: no code path can take stock below zero.
CREATE TABLE products (
    sku           text COLLATE "C" PRIMARY KEY,
    name          text NOT NULL,
    unit_price    bigint NOT NULL CONSTRAINT products_price_not_negative CHECK (unit_price >= 0),
    currency      text NOT NULL CONSTRAINT products_currency_is_iso4217 CHECK (currency ~ '^[A-Z]{3}$'),
    initial_stock bigint NOT NULL,
    stock         bigint NOT NULL CONSTRAINT products_stock_not_negative CHECK (stock >= 0),
    CONSTRAINT products_stock_not_above_initial CHECK (stock <= initial_stock)
)
-- Every order updates a product in place: room on the page keeps those updates off the indexes (HOT).
WITH (fillfactor = 50);
