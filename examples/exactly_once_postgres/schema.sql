CREATE TABLE balances (account text PRIMARY KEY, cents bigint NOT NULL, bookings bigint NOT NULL);
CREATE TABLE bookings (account text NOT NULL, cents bigint NOT NULL, text text NOT NULL);
