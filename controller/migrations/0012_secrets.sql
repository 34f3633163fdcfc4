-- What is private is encrypted at rest: by which key, and what came for leases that wait for their secrets. None of these
-- is a fold of the log.

create table at_rest (
    one    integer primary key check (one = 1),
    -- Names the key and does not tell it.
    key_id blob    not null check (length(key_id) = 32)
) strict;

-- What a renter's client sealed to the node of a member: ciphertext that is passed on as it is. Of the newest run only.
create table sealed_secret (
    lease   text    not null check (length(lease) between 9 and 40),
    member  integer not null check (member >= 0),
    attempt integer not null check (attempt >= 0),
    node    blob    not null check (length(node) = 20),
    body    blob    not null,
    primary key (lease, member)
) strict, without rowid;

-- Secrets that the renter said the pool may keep, encrypted by the key above.
create table kept_secret (
    lease text primary key check (length(lease) between 9 and 40),
    body  blob not null
) strict, without rowid;
