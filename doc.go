// Package redlock is a mutual exclusion lock over N independent Redis masters: the Redlock algorithm, with
// leases that end by the clock and fences that grow with every holder.
//
// # What it promises
//
// At most one client at a time holds a lease that its own [Lease.Valid] reports true, as long as the
// servers' clocks run at the same rate within [Config.Drift], this process's clock does too, suspend
// included, and no node of a holder's quorum forgets the lock before it expires. If that fails, two clients
// may both believe that they hold it.
//
// Independently of every clock, and while no fence state is lost, fences are unique for a name, and an
// acquisition that began after another had returned has the larger fence. A resource that refuses a smaller
// fence than the largest it has seen is therefore safe even from a holder that was paused; nothing else is.
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
// # Limits
//
// A node that restarts without its data, is flushed, or is replaced, forgets the locks it granted; together
// with an unlucky quorum that lets a second client in. Until the quarantine of docs/protocol.md exists, run
// the nodes with appendfsync always, or keep a node that lost its data out for longer than MaxTTL. A server
// clock that jumps expires keys early. In both cases the fences still tell the holders apart, as long as a
// majority kept its fence state.
package redlock
