-- Tables of the REST surface. None of them is a fold of the log: they hold what is private to accounts.

-- A text that an account was asked to sign. Taken by deleting it, so that it counts once.
create table auth_nonce (
    nonce      blob    primary key check (length(nonce) = 32),
    account    blob    not null check (length(account) = 20),
    expires_ms integer not null check (expires_ms > 0)
) strict, without rowid;
create index auth_nonce_expires on auth_nonce (expires_ms);

-- An API key: its SHA-256 only. A revoked key stays, so that its id is never given again.
create table api_key (
    id         integer primary key autoincrement,
    account    blob    not null check (length(account) = 20),
    hash       blob    not null unique check (length(hash) = 32),
    name       text    not null check (length(name) <= 200),
    created_ms integer not null check (created_ms >= 0),
    revoked_ms integer check (revoked_ms >= created_ms)
) strict;
create index api_key_account on api_key (account, id);

-- A dataset that an account added. The CID stands here and nowhere in the log.
create table dataset (
    account  blob    not null check (length(account) = 20),
    cid      text    not null check (length(cid) between 1 and 200),
    tag      blob    not null check (length(tag) = 32),
    name     text    not null check (length(name) <= 200),
    bytes    integer not null check (bytes >= 0),
    blocks   integer not null check (blocks > 0),
    added_ms integer not null check (added_ms >= 0),
    primary key (account, cid)
) strict, without rowid;
create index dataset_added on dataset (account, added_ms desc, cid);
