-- Who may call, and the scope of every idempotency key.
--
-- An account is a number everywhere but here: it stands in Redis names and in orders.idem_key, where a name could
-- imitate a separator. An API key is kept as the SHA-256 of its secret (256 random bits need no slow hash); the id in
-- front of the secret is what is looked up, so that the comparison of the secret itself can take constant time.
CREATE TABLE accounts (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text NOT NULL CONSTRAINT accounts_name_key UNIQUE,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT accounts_name_length CHECK (char_length(name) BETWEEN 1 AND 100)
);

CREATE TABLE api_keys (
    id          text PRIMARY KEY,
    account_id  bigint NOT NULL REFERENCES accounts (id),
    secret_hash bytea NOT NULL CONSTRAINT api_keys_hash_is_sha256 CHECK (octet_length(secret_hash) = 32),
    created_at  timestamptz NOT NULL DEFAULT now(),
    revoked_at  timestamptz
);
