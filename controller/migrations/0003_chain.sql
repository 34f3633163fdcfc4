-- The chain as the mirror sees it, what is signed for it, and what is sent to it.
-- Hashes, addresses and raw bytes are blobs. Amounts are 8 bytes, big-endian: they compare as numbers and use all of
-- u64. Times are milliseconds UTC.

-- Blocks from the last final one up to the head, and older ones that hold events of the pool. What is not final may
-- still leave the chain: readers mark it `unconfirmed`, and the log never sees it.
create table block (
    number integer primary key check (number >= 0),
    hash   blob not null unique check (length(hash) = 32),
    parent blob not null check (length(parent) = 32),
    final  integer not null check (final in (0, 1))
) strict;

-- A block that was final is never replaced.
create trigger block_final_stays before update on block
when old.final = 1 and (new.final = 0 or new.hash <> old.hash)
begin
    select raise(abort, 'a final block cannot change');
end;

-- Events of the pool in a block, by their place in it; `body` is the canonical encoding.
create table chain_event (
    number integer not null references block (number) on delete cascade,
    place  integer not null check (place >= 0),
    body   blob not null,
    primary key (number, place)
) strict, without rowid;

-- The newest voucher of each pair with both signatures.
create table signed_voucher (
    renter              blob not null check (length(renter) = 20),
    provider            blob not null check (length(provider) = 20),
    cumulative          blob not null check (length(cumulative) = 8),
    used_through        integer not null check (used_through >= 0),
    epoch               integer not null check (epoch >= 0),
    log_size            integer not null check (log_size >= 0),
    renter_signature    blob not null check (length(renter_signature) = 65),
    authority_signature blob not null check (length(authority_signature) = 65),
    -- Highest total that the provider's agent stored.
    delivered           blob not null default x'0000000000000000' check (length(delivered) = 8),
    -- Highest total that is claimed on chain and final.
    claimed             blob not null default x'0000000000000000' check (length(claimed) = 8),
    -- Since when some of the total is signed and not claimed; null if all is claimed.
    unclaimed_since     integer,
    primary key (renter, provider)
) strict, without rowid;
create index signed_voucher_provider on signed_voucher (provider, renter);

-- A pair's signed total never falls.
create trigger signed_voucher_rises before update on signed_voucher
when new.cumulative < old.cumulative or new.epoch < old.epoch
begin
    select raise(abort, 'the total of a pair of voucher parties cannot fall');
end;

-- Transactions to be sent, in the order of `seq`. A row is `queued`, then `signed` (it has a nonce and at least one
-- signed transaction in outbox_try, written before anything is sent), then `mined`, and at last one of `final`,
-- `failed` (reverted, or refused before it was signed) and `dropped` (overtaken by a newer one before it was signed).
create table outbox (
    seq          integer primary key autoincrement,
    signer       blob not null check (length(signer) = 20),
    kind         text not null check (kind in ('anchor', 'claim', 'register')),
    -- What it is about, so that a newer one can overtake it: log size, claim digest, endpoint.
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

-- A nonce of a key belongs to one transaction.
create unique index outbox_nonce on outbox (signer, nonce) where nonce is not null;
create index outbox_live on outbox (signer, seq) where status in ('queued', 'signed', 'mined');

-- Signed forms of a row: the first one, and dearer ones with the same nonce that replaced it. Any of them may be mined.
create table outbox_try (
    hash        blob primary key check (length(hash) = 32),
    seq         integer not null references outbox (seq),
    raw         blob not null,
    max_fee     blob not null check (length(max_fee) = 16),
    priority_fee blob not null check (length(priority_fee) = 16),
    signed_ms   integer not null,
    -- When a node last took it; null until then.
    sent_ms     integer
) strict, without rowid;
create index outbox_try_seq on outbox_try (seq, signed_ms);
