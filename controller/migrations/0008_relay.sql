-- Calls that accounts sign and the operator pays for, and answers to accusations. They are sent from the outbox like
-- everything else; SQLite cannot change a check in place, so both of its tables are written again with two kinds more.
create table outbox_next (
    seq          integer primary key autoincrement,
    signer       blob not null check (length(signer) = 20),
    kind         text not null check (kind in ('anchor', 'claim', 'register', 'renew', 'relay', 'answer')),
    -- What it is about, so that a newer one can overtake it: log size, claim digest, endpoint, case. Relayed calls are never
    -- overtaken; theirs names the request.
    subject      text not null,
    target       blob not null check (length(target) = 20),
    calldata     blob not null,
    created_ms   integer not null,
    status       text not null default 'queued'
                 check (status in ('queued', 'signed', 'mined', 'final', 'failed', 'dropped')),
    nonce        integer check (nonce >= 0),
    gas_limit    integer,
    tx_hash      blob check (length(tx_hash) = 32),
    block_number integer,
    block_hash   blob check (length(block_hash) = 32),
    -- Why it failed or was dropped.
    reason       text,
    check ((status in ('queued', 'dropped')) = (nonce is null) or status = 'failed'),
    check ((status in ('mined', 'final')) <= (block_number is not null and tx_hash is not null))
) strict;
create table outbox_try_next (
    hash        blob primary key check (length(hash) = 32),
    seq         integer not null references outbox_next (seq),
    raw         blob not null,
    max_fee     blob not null check (length(max_fee) = 16),
    priority_fee blob not null check (length(priority_fee) = 16),
    signed_ms   integer not null,
    -- When a node last took it; null until then.
    sent_ms     integer
) strict, without rowid;

insert into outbox_next (seq, signer, kind, subject, target, calldata, created_ms, status, nonce, gas_limit, tx_hash,
                         block_number, block_hash, reason)
select seq, signer, kind, subject, target, calldata, created_ms, status, nonce, gas_limit, tx_hash, block_number,
       block_hash, reason
from outbox;
insert into outbox_try_next (hash, seq, raw, max_fee, priority_fee, signed_ms, sent_ms)
select hash, seq, raw, max_fee, priority_fee, signed_ms, sent_ms from outbox_try;
drop table outbox_try;
drop table outbox;
alter table outbox_next rename to outbox;
alter table outbox_try_next rename to outbox_try;

-- A nonce of a key belongs to one transaction.
create unique index outbox_nonce on outbox (signer, nonce) where nonce is not null;
create index outbox_live on outbox (signer, seq) where status in ('queued', 'signed', 'mined');
create index outbox_try_seq on outbox_try (seq, signed_ms);

-- The request behind an outbox row of kind `relay`.
create table relay (
    seq        integer primary key references outbox (seq),
    account    blob not null check (length(account) = 20),
    -- Of the account at the forwarder.
    nonce      integer not null check (nonce >= 0),
    -- What the account signed: equal requests have equal digests.
    digest     blob not null check (length(digest) = 32),
    -- Name of the function.
    call       text not null,
    -- Network address that brought it, for its allowance; empty if the server was not told.
    peer       text not null,
    created_ms integer not null
) strict;
create index relay_request on relay (account, nonce);
create index relay_time on relay (created_ms);
