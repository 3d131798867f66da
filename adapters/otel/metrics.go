package redlockotel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/quorumlock/redlock"
)

// instruments are the metrics; see the package's documentation.
type instruments struct {
	acquire, renew, release, held metric.Float64Histogram
	attempts                      metric.Int64Histogram
	lost                          metric.Int64Counter

	// These are observed by Watch.
	leases, waiters metric.Int64ObservableUpDownCounter
	oldest, least   metric.Float64ObservableGauge
	vote            metric.Int64ObservableGauge
}

// seconds are the bounds of the histograms: a round trip is some 100 µs, and a wait may take an hour.
var seconds = []float64{
	.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}

// init makes the instruments. dropped observes the counter of dropped events in each collection.
func (i *instruments) init(m metric.Meter, dropped metric.Int64Callback) error {
	var errs []error
	histogram := func(to *metric.Float64Histogram, name, what string) {
		made, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what),
			metric.WithExplicitBucketBoundaries(seconds...))
		*to = made
		errs = append(errs, err)
	}
	gauge := func(to *metric.Float64ObservableGauge, name, what string) {
		made, err := m.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(what))
		*to = made
		errs = append(errs, err)
	}
	count := func(to *metric.Int64ObservableUpDownCounter, name, unit, what string) {
		made, err := m.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(what))
		*to = made
		errs = append(errs, err)
	}
	histogram(&i.acquire, "redlock.acquire.duration", "From the call of Acquire or TryAcquire to its end.")
	histogram(&i.renew, "redlock.renew.duration", "Length of a renewal.")
	histogram(&i.release, "redlock.release.duration", "Length of a release.")
	histogram(&i.held, "redlock.hold.duration", "From the lease to its release or loss.")
	count(&i.leases, "redlock.lease.held", "{lease}", "Locks that are held.")
	count(&i.waiters, "redlock.waiter.count", "{waiter}", "Calls of Acquire that are under way.")
	gauge(&i.oldest, "redlock.lease.oldest", "How long the lock is held that was acquired first.")
	gauge(&i.least, "redlock.lease.remaining", "Validity left of the lease that would end first.")
	var err [4]error
	i.attempts, err[0] = m.Int64Histogram("redlock.acquire.attempts", metric.WithUnit("{attempt}"),
		metric.WithDescription("Rounds of an acquisition."), metric.WithExplicitBucketBoundaries(1, 2, 3, 5, 10, 20, 50, 100))
	i.lost, err[1] = m.Int64Counter("redlock.lease.lost", metric.WithUnit("{lease}"),
		metric.WithDescription("Leases that ended before they were released."))
	_, err[2] = m.Int64ObservableCounter("redlock.event.dropped", metric.WithUnit("{event}"),
		metric.WithDescription("Calls of hooks and lines of the log that were dropped."), metric.WithInt64Callback(dropped))
	i.vote, err[3] = m.Int64ObservableGauge("redlock.node.vote", metric.WithUnit("1"),
		metric.WithDescription("1 if the node votes."))
	return errors.Join(append(errs, err[:]...)...)
}

func (i *instruments) observables() []metric.Observable {
	return []metric.Observable{i.leases, i.waiters, i.oldest, i.least, i.vote}
}

// record counts an operation. ctx is the caller's, so that an exemplar finds its trace.
func (t *Telemetry) record(ctx context.Context, op redlock.Operation) {
	var to metric.Float64Histogram
	switch op.Op {
	case "acquire":
		to = t.acquire
		t.attempts.Record(ctx, int64(len(op.Rounds)+op.RoundsLeftOut), t.named(op.Lease.Names))
	case "extend":
		to = t.renew
	case "release":
		to = t.release
	default: // the two halves of a hand-over are spans, and leases that end and begin
		return
	}
	to.Record(ctx, op.Took.Seconds(), t.named(op.Lease.Names),
		metric.WithAttributes(attribute.String("redlock.outcome", outcomeOf(op.Err))))
}

// observe observes the nodes of one client. The first client also observes what all of them hold: of several values of one
// gauge, only the last one would count.
func (t *Telemetry) observe(ctx context.Context, to metric.Observer, w *watched) {
	if all := t.allWatched(); len(all) > 0 && all[0] == w {
		t.observeStats(to, all)
	}
	for _, node := range w.client.Status(ctx) {
		if errors.Is(node.Err, redlock.ErrClosed) { // the node may well vote for others: an alert would be false
			continue
		}
		votes := int64(0)
		if node.Err == nil {
			votes = 1
		}
		to.ObserveInt64(t.vote, votes, metric.WithAttributes(attribute.String("redlock.node", valid(node.Name))))
	}
}

func (t *Telemetry) observeStats(to metric.Observer, all []*watched) {
	var sum redlock.Stats
	for _, w := range all {
		s := w.client.Stats()
		if s.Held > 0 && (sum.Held == 0 || s.LeastRemaining < sum.LeastRemaining) {
			sum.LeastRemaining = s.LeastRemaining
		}
		sum.Held += s.Held
		sum.Waiters += s.Waiters
		sum.OldestHold = max(sum.OldestHold, s.OldestHold)
	}
	to.ObserveInt64(t.leases, int64(sum.Held))
	to.ObserveInt64(t.waiters, int64(sum.Waiters))
	to.ObserveFloat64(t.oldest, sum.OldestHold.Seconds())
	if sum.Held > 0 {
		to.ObserveFloat64(t.least, sum.LeastRemaining.Seconds())
	}
}

// observeDropped observes how many events were dropped. It is not a callback of Watch, because the counter must not pause
// when a watch is stopped: a reader that asks for differences takes a counter that comes back for a new one, and counts
// all of it again.
func (t *Telemetry) observeDropped(_ context.Context, to metric.Int64Observer) error {
	if events, known := t.dropped(); known {
		to.Observe(int64(events))
	}
	return nil
}
