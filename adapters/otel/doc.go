// Package redlockotel exports traces and metrics of redlock clients to OpenTelemetry.
//
//	telemetry, err := redlockotel.New()
//	…
//	client, err := redlock.New(redlock.Config{Nodes: nodes, Hooks: telemetry.Hooks(redlock.Hooks{})})
//	…
//	stop, err := telemetry.Watch(client)
//
// # Traces
//
// Spans are children of the span in the context that the program gave to the call:
//
//	redlock.acquire   Acquire, TryAcquire, Do, …: from the call to the lease
//	  redlock.attempt one round of it; between two of them the call waits
//	redlock.renew     a renewal, by the client or by Lease.Extend
//	redlock.release   Release, also at the end of Do
//	redlock.detach    Detach, after its renewal
//	redlock.adopt     Adopt
//
// A renewal that the client makes by itself joins the trace of the Acquire. A lease may be renewed for weeks, and a
// trace should not grow for weeks. So from renewal 101 of a lease on, its renewals are traces of their own, each with a
// link to the span of the Acquire's caller.
//
// The client calls hooks later, on one goroutine of its own. So spans have the times of what they describe, and
// are made when it has ended. The order in which an exporter gets them says nothing.
//
// Spans have these attributes:
//
//	redlock.outcome        ok, held, no_quorum, lost, closed, invalid, canceled, deadline_exceeded, other
//	error.type             the outcome, if it is an error: all but ok, held and canceled. The status is then Error
//	redlock.names          how many names the lock has
//	redlock.name           the name, only with [WithNames]
//	redlock.fencing_token  of the lease
//	redlock.attempts       of redlock.acquire: how many rounds; one is usual
//	redlock.nodes.granted, redlock.nodes.denied, redlock.nodes.unknown   of redlock.attempt: the votes
//	redlock.renewal        of redlock.renew: its number in the lease; 0 for Extend
//	db.system.name         redis, of all but redlock.acquire, which is of kind internal; the others are of kind client
//
// The owner token is in no span: whoever knows it can release the lock.
//
// # Metrics
//
//	redlock.acquire.duration         s            histogram: from the call to its end; by redlock.outcome
//	redlock.acquire.attempts         {attempt}    histogram: rounds of an acquisition
//	redlock.renew.duration           s            histogram; by redlock.outcome
//	redlock.release.duration         s            histogram; by redlock.outcome
//	redlock.hold.duration            s            histogram: from the lease to its release or loss
//	redlock.lease.lost               {lease}      counter: leases that ended before they were released; look at each
//	redlock.lease.held               {lease}      now, of all watched clients, as the others that follow
//	redlock.waiter.count             {waiter}     calls of Acquire that are under way
//	redlock.lease.oldest             s            how long the lock is held that was acquired first
//	redlock.lease.remaining          s            validity left of the lease that would end first; none is held: absent
//	redlock.event.dropped            {event}      counter: calls of hooks that were dropped, so what is above is too low; also by
//	                                              clients that are no longer watched
//	redlock.node.vote                1            by redlock.node: 1 if the node votes, 0 if not
//
// Lock names are no attributes of metrics, unless [WithNames] gives each a value out of a few.
package redlockotel
