// Package redlock is a mutual exclusion lock over N independent Redis masters: the Redlock algorithm, with
// leases that end by the clock and fencing tokens that grow with every holder.
//
// # What it promises
//
// At most one client at a time holds a lease whose own [Lease.Valid] reports true, as long as:
//   - the servers' clocks lie within half of [Config.ClockBand] of each other; at most one may be wrong;
//   - all clocks run at the same rate within [Config.Drift], also while a machine is suspended;
//   - a node that forgot a lease does not grant until its quarantine is over.
//
// If one of these fails, two clients can both rely on the lock.
//
// Fencing tokens ([Lease.Fence]) are unique for a name, and an acquisition that began after another had returned has the
// larger token. So a resource that refuses tokens smaller than the largest it has seen is safe even from a paused holder.
// Nothing else is. This needs no clock, as long as one server that both quorums share still has the tokens that it
// stored. If none has, because it restarted without its data, the order of tokens relies on the servers' clocks
// (docs/operations.md has the details).
//
// This is not consensus. While a majority of the nodes is away, it grants nothing.
//
// # Use
//
//	client, err := redlock.New(redlock.Config{Nodes: redlock.Nodes("10.0.0.1", "10.0.1.1", "10.0.2.1")})
//	…
//	defer client.Close()
//	err = client.Mutex("invoice/42").Do(ctx, func(ctx context.Context, l *redlock.Lease) error {
//		return store.Write(ctx, l.Fence(), invoice) // ctx ends before anyone else can have the lock
//	})
//
// [Lock.Acquire] waits, [Lock.TryAcquire] does not. Both return a [Lease], which is renewed at a third of its TTL until
// [Lease.Release]. The clock ends its [Lease.Context] before another client can own the lock, whatever becomes of a
// renewal. Ask [Lease.Valid] just before each step that nobody else must do at the same time.
//
// # Errors
//
//   - [ErrHeld]: somebody has the lock. Wait.
//   - [ErrNoQuorum]: too few nodes could vote. Look at the nodes.
//   - [ErrLost]: the lease was lost. Stop.
//
// A [*RoundError] says what each node answered. If a context ends a call, the error is the context's, joined with what
// was in the way until then.
//
// # New servers
//
// A node that has never granted looks like one that has forgotten. So it grants nothing until a quarantine of
// [Config.MaxTTL] and a little more is over. [Client.Enroll], or the command redlock enroll, ends that at once where no
// lease can be out. [Client.Status] says of each node whether it votes, and if not, why.
//
// The nodes also hold the part of the configuration on which all clients must agree. They refuse a client that differs
// ([ConfigError]).
//
// # Limits
//
// A server's clock that steps ahead and comes back between two looks deletes a lock, and nothing notices. The same goes
// for somebody who deletes its key. An address must lead to one server at a time. docs/safety.md has all that remains
// unsafe, docs/protocol.md the protocol step by step.
package redlock
