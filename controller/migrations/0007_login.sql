-- Logging in. Secrets stand here by their SHA-256 only.

-- Nonces carry their own proof, so only those that were used are kept, until they lapse: each counts once.
drop table auth_nonce;
create table spent_nonce (
    nonce      text    primary key check (length(nonce) between 8 and 200),
    expires_ms integer not null check (expires_ms > 0)
) strict, without rowid;
create index spent_nonce_expires on spent_nonce (expires_ms);

-- What a signature or the approval of a device opened: a chain of refresh tokens. An ended one stays until its time is
-- over, so that its last access tokens can be refused.
create table session (
    id         integer primary key autoincrement,
    account    blob    not null check (length(account) = 20),
    scopes     text    not null,
    name       text    not null check (length(name) <= 200),
    created_ms integer not null check (created_ms >= 0),
    expires_ms integer not null check (expires_ms > created_ms),
    ended_ms   integer check (ended_ms >= created_ms)
) strict;
create index session_account on session (account, id);
create index session_expires on session (expires_ms);

-- Each is good for one use; a second use means that somebody else has it too.
create table refresh_token (
    hash    blob    primary key check (length(hash) = 32),
    session integer not null references session (id) on delete cascade,
    used_ms integer
) strict, without rowid;
create index refresh_token_session on refresh_token (session);
-- A session has one refresh token to go on with.
create unique index refresh_token_unused on refresh_token (session) where used_ms is null;

-- Tokens of an account that name a lower epoch are over.
create table token_epoch (
    account blob    primary key check (length(account) = 20),
    epoch   integer not null check (epoch > 0)
) strict, without rowid;

-- A device that asks to be let in. Deleted once it was, or was denied.
create table device (
    hash       blob    primary key check (length(hash) = 32),
    user_code  text    not null unique check (length(user_code) = 8),
    name       text    not null check (length(name) <= 64),
    origin     text    not null check (length(origin) <= 64),
    -- What its address counts as.
    network    text    not null check (length(network) <= 64),
    created_ms integer not null check (created_ms >= 0),
    expires_ms integer not null check (expires_ms > created_ms),
    -- Least milliseconds between two questions, and when it last asked.
    pace_ms    integer not null check (pace_ms > 0),
    polled_ms  integer,
    -- Whose it is once approved.
    account    blob    check (length(account) = 20),
    denied_ms  integer,
    check (account is null or denied_ms is null)
) strict, without rowid;
create index device_expires on device (expires_ms);
create index device_network on device (network, expires_ms);

-- Keys of before could do everything but manage logins.
alter table api_key add column scopes text not null
    default 'lease:read lease:write data:read data:write money:read node:write';
alter table api_key add column expires_ms integer;
alter table api_key add column used_ms integer;
