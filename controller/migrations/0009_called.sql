-- What renters call their leases. Private: neither of the two is a fold of the log.

create table lease_name (
    lease  text    primary key check (length(lease) between 9 and 40),
    seq    integer not null check (seq >= 0),
    idx    integer not null check (idx >= 0),
    renter blob    not null check (length(renter) = 20),
    name   text    not null check (length(name) between 1 and 63)
) strict, without rowid;
create index lease_name_of_renter on lease_name (renter, name, seq, idx);

create table lease_label (
    lease  text    not null check (length(lease) between 9 and 40),
    key    text    not null check (length(key) between 1 and 63),
    value  text    not null check (length(value) <= 63),
    seq    integer not null check (seq >= 0),
    idx    integer not null check (idx >= 0),
    renter blob    not null check (length(renter) = 20),
    primary key (lease, key)
) strict, without rowid;
create index lease_label_of_renter on lease_label (renter, key, value, seq, idx);
