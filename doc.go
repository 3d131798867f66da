// Package redlock is a mutual exclusion lock over N independent Redis masters: the Redlock algorithm, with
// leases that end by the clock and fencing tokens that grow with every holder.
//
// # What it promises
//
// At most one client at a time holds a lease that its own [Lease.Valid] reports true, as long as:
//   - the servers' clocks agree within [Config.ClockBand]; at most one may be wrong;
//   - all clocks run at the same rate within [Config.Drift], also while a machine is suspended;
//   - a node that forgot a lease sits out its quarantine.
//
// If that fails, two clients may both believe that they hold it.
//
// Fencing tokens ([Lease.Fence]) need no clock: while no fence state is lost, they are unique for a name, and an
// acquisition that began after another had returned has the larger one. So a resource that refuses a smaller token
// than the largest it has seen is safe even from a holder that was paused; nothing else is.
//
// It is not consensus. While a majority of the nodes is away it grants nothing.
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
// [Lock.Acquire] waits, [Lock.TryAcquire] does not. Both return a [Lease], which is renewed at a third of its
// TTL until [Lease.Release]. Its [Lease.Context] ends before another client can own the lock, by the clock
// and not by the outcome of any renewal. Just before doing what must not be done twice, ask [Lease.Valid].
//
// # Errors
//
// [ErrHeld] means wait, [ErrNoQuorum] means that too few nodes could vote, [ErrLost] means stop. A
// [*RoundError] says what each node answered. A context that ends is reported as its own error, joined with
// what was in the way until then.
//
// # New servers
//
// A node that has never granted looks like one that has forgotten, so it grants nothing until a quarantine of
// [Config.MaxTTL] and a little more is over. [Client.Enroll], or the command redlock enroll, ends that at once
// where no lease can be out. [Client.Status] says of each node whether it votes, and if not, why. The nodes also
// keep the part of the configuration on which all clients must agree, and refuse a client that differs
// ([ConfigError]).
//
// # Limits
//
// A server's clock that steps ahead and comes back between two looks deletes a lock unnoticed, as does whoever
// deletes its key. An address must lead to one server at a time. docs/safety.md has all that remains unsafe.
package redlock
