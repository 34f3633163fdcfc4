-- The log. Nothing here is ever updated or deleted.
create table entry (
    seq     integer primary key check (seq >= 0),
    bytes   blob not null,                              -- canonical entry
    leaf    blob not null check (length(leaf) = 32),    -- RFC 6962 leaf hash
    effects blob not null                               -- canonical list of effect leaves
) strict;

-- Heads, each signed after the commit of the entries that it covers.
create table head (
    size  integer primary key check (size > 0),
    bytes blob not null                                 -- canonical SignedHead
) strict;

-- Who may write: raised at every start. A commit under another fence is refused.
create table fence (
    one   integer primary key check (one = 1),
    epoch integer not null check (epoch >= 0),
    term  integer not null check (term >= 0)
) strict;

-- A cache of State after `size` entries; dropped whenever it does not match the head of that size.
create table snapshot (
    one   integer primary key check (one = 1),
    size  integer not null,
    state blob not null,
    tree  blob not null
) strict;

-- Rows: a fold of the log. Delete them all and the next start writes them again, byte for byte.
create table lease (
    id     text primary key,
    seq    integer not null,
    idx    integer not null,
    renter blob not null check (length(renter) = 20),
    state  text not null,
    body   text not null
) strict;
create index lease_by_renter on lease (renter, seq desc, idx desc);

create table lease_event (
    lease text not null,
    entry integer not null,
    idx   integer not null,
    body  text not null,
    primary key (lease, entry, idx)
) strict, without rowid;

create table first_answer (
    idem  blob primary key check (length(idem) = 32),
    body  text not null
) strict;

create table node (
    id       blob primary key check (length(id) = 20),
    provider blob,
    body     text not null
) strict;

create table account (
    id   blob primary key check (length(id) = 20),
    body text not null
) strict;

create table registry (
    one  integer primary key check (one = 1),
    body text not null
) strict;

create table bill (
    entry    integer not null,
    idx      integer not null,
    renter   blob not null,
    provider blob not null,
    body     text not null,
    primary key (entry, idx)
) strict, without rowid;
create index bill_by_renter on bill (renter, entry desc);
create index bill_by_provider on bill (provider, entry desc);

-- The newest voucher that is due to each pair.
create table voucher (
    renter       blob not null check (length(renter) = 20),
    provider     blob not null check (length(provider) = 20),
    cumulative   integer not null check (cumulative > 0),
    used_through integer not null,
    log_size     integer not null,
    primary key (renter, provider)
) strict, without rowid;

-- How many rows the fold has written: a mismatch at start means that somebody touched them.
create table fold (
    one    integer primary key check (one = 1),
    size   integer not null,
    leases integer not null,
    events integer not null,
    bills  integer not null
) strict;

-- Private matter: never in the log, named there by its commitment. Deleting a row is erasure.
create table work (
    commitment blob primary key check (length(commitment) = 32),
    salt       blob not null check (length(salt) = 32),
    body       blob not null
) strict;

-- What members left, as their nodes tell it. A node may tell of a member that it holds, and go on with its own rows.
create table output (
    lease      text    not null,
    attempt    integer not null check (attempt >= 0),
    member     integer not null check (member >= 0),
    renter     blob    not null check (length(renter) = 20),
    node       blob    not null check (length(node) = 20),
    state      text    not null check (state in ('uploading', 'kept', 'partial', 'lost')),
    cid        text    check (length(cid) between 1 and 256),
    body       text    not null,                                -- JSON of api::Outputs
    begun_ms   integer not null check (begun_ms >= 0),          -- when it was told of first
    told_ms    integer not null check (told_ms >= begun_ms),    -- when it was told of last
    let_go     integer not null default 0 check (let_go in (0, 1)), -- its content is not kept any more
    primary key (lease, attempt, member),
    check (state not in ('kept', 'partial') or cid is not null)
) strict, without rowid;
create index output_by_renter on output (renter, cid) where cid is not null;
create index output_kept on output (told_ms) where let_go = 0 and state in ('kept', 'partial');
