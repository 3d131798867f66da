// Package redlockprom exports metrics of redlock clients and their nodes to Prometheus.
//
//	metrics := redlockprom.New()
//	client, err := redlock.New(redlock.Config{Nodes: nodes, Hooks: metrics.Hooks(redlock.Hooks{})})
//	…
//	metrics.Watch(client)
//	prometheus.MustRegister(metrics)
//
// Lock names are not labels, because there may be any number of them; see [WithNames]. Times are in seconds.
//
// docs/monitoring.md in the repository has alert rules and a dashboard for these metrics.
package redlockprom

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/redlock"
)

// Metrics is a [prometheus.Collector]. Register it once. It is safe for concurrent use.
//
// What happened:
//
//	redlock_acquired_total                 leases that were won
//	redlock_acquire_duration_seconds       histogram: from the call to the lease
//	redlock_attempts_total                 rounds that these took; more than one each is contention
//	redlock_refused_total{reason}          rounds that failed: held, or no_quorum (page someone)
//	redlock_extended_total                 renewals
//	redlock_extend_duration_seconds        histogram: the round of a renewal
//	redlock_extend_failed_total            renewals that found no quorum; they are tried again
//	redlock_released_total{result}         ok, lost, no_quorum (it expires by itself), or interrupted
//	redlock_release_duration_seconds       histogram: the call of Release
//	redlock_hold_duration_seconds          histogram: from the lease to its release or loss
//	redlock_lost_total                     leases that ended before they were released: look at each
//
// With Watch, what is held now, of all watched clients together:
//
//	redlock_leases                         locks that are held
//	redlock_waiters                        calls of Acquire that are under way
//	redlock_oldest_hold_seconds            how long the lock is held that was acquired first; 0: none is
//	redlock_least_remaining_seconds        validity left of the lease that would end first; absent: none is held
//	redlock_dropped_events_total           calls of hooks that were dropped, also by clients that Forget was called for:
//	                                       what is above is then too low
//
// And their nodes:
//
//	redlock_node_up{node}                  1: connected
//	redlock_node_votes{node}               1: its vote counts
//	redlock_node_round_trip_seconds{node}  of one request
//	redlock_node_clock_offset_seconds{node}  how far its clock is ahead of the nodes' median
//	redlock_node_quarantine_seconds{node}  how much longer it does not grant
//	redlock_failures_tolerated             how many more nodes may fail, for the watched client where that is least. 0: the
//	                                       next one stops all its locks. Negative: it gets none. Page someone
type Metrics struct {
	acquired, attempts, refused, extended, extendFailed, released, lost *prometheus.CounterVec
	acquireTime, extendTime, releaseTime, holdTime                      *prometheus.HistogramVec
	leases, waiters, oldest, least, dropped                             *prometheus.Desc
	up, votes, roundTrip, clockOffset, quarantine, tolerated            *prometheus.Desc
	timeout                                                             time.Duration
	name                                                                func(names []string) string // nil: no label

	mu        sync.Mutex // guards the rest
	clients   []*redlock.Client
	forgotten uint64          // the events that clients had dropped when Forget was called
	known     map[string]bool // the values of the label
}

var _ prometheus.Collector = (*Metrics)(nil)

// An Option changes what [New] makes.
type Option func(*Metrics)

// WithNames adds the label name to what happened (not to gauges): what name makes of a lock's names, such as "invoice"
// for "invoice/42". Each value is a set of time series of its own. So only the first 100 values are labels; further
// ones become "other". name must not change its argument, and must be safe for concurrent use if several clients have these
// hooks.
func WithNames(name func(names []string) string) Option { return func(m *Metrics) { m.name = name } }

// maxNames is how many values the label name has at most, besides "other".
const maxNames = 100

// New makes metrics that have no client at first.
func New(opts ...Option) *Metrics {
	m := &Metrics{timeout: time.Second, known: map[string]bool{}}
	for _, apply := range opts {
		apply(m)
	}
	labels := func(own []string) []string {
		if m.name != nil {
			return append(own, "name")
		}
		return own
	}
	counter := func(name, help string, own ...string) *prometheus.CounterVec {
		opts := prometheus.CounterOpts{Namespace: "redlock", Name: name, Help: help}
		return prometheus.NewCounterVec(opts, labels(own))
	}
	histogram := func(name, help string, from float64, buckets int) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "redlock", Name: name, Help: help,
			Buckets: prometheus.ExponentialBuckets(from, 2, buckets)}, labels(nil))
	}
	gauge := func(name, help string, own ...string) *prometheus.Desc {
		return prometheus.NewDesc("redlock_"+name, help, own, nil)
	}
	m.acquired = counter("acquired_total", "Leases that were won.")
	m.attempts = counter("attempts_total", "Rounds for the leases that were won.")
	m.acquireTime = histogram("acquire_duration_seconds", "Time from the call of Acquire to the lease.", 250e-6, 18)
	m.refused = counter("refused_total",
		"Rounds to acquire that failed: held by another, or no quorum of nodes.", "reason")
	m.extended = counter("extended_total", "Renewals.")
	m.extendTime = histogram("extend_duration_seconds", "Length of a renewal round.", 250e-6, 12)
	m.extendFailed = counter("extend_failed_total", "Renewals without a quorum. They are tried again.")
	m.released = counter("released_total", "Releases: ok, lost, no_quorum or interrupted.", "result")
	m.releaseTime = histogram("release_duration_seconds", "Length of a call of Release.", 250e-6, 12)
	m.holdTime = histogram("hold_duration_seconds", "Time from the lease to its release or loss.", 1e-3, 24)
	m.lost = counter("lost_total", "Leases that ended before they were released.")
	m.leases = gauge("leases", "Locks that are held.")
	m.waiters = gauge("waiters", "Calls of Acquire that are under way.")
	m.oldest = gauge("oldest_hold_seconds", "How long the lock is held that was acquired first; 0 if none is.")
	m.least = gauge("least_remaining_seconds", "Validity left of the lease that would end first.")
	m.dropped = gauge("dropped_events_total", "Calls of hooks and lines of the log that were dropped.")
	m.up = gauge("node_up", "1 if the node is connected.", "node")
	m.votes = gauge("node_votes", "1 if the node votes.", "node")
	m.roundTrip = gauge("node_round_trip_seconds", "Time of one request to the node.", "node")
	m.clockOffset = gauge("node_clock_offset_seconds",
		"How far the node's clock is ahead of the median of the nodes' clocks.", "node")
	m.quarantine = gauge("node_quarantine_seconds",
		"How long the node's quarantine will last; 0 if it is in none.", "node")
	m.tolerated = gauge("failures_tolerated",
		"How many more nodes may fail; negative: too few vote. Of the watched client where it is least.")
	if m.name == nil {
		m.beginAtZero()
	}
	return m
}

// beginAtZero makes all time series, of this value of the label name if there is one, because a counter that begins at 1
// shows no increase.
func (m *Metrics) beginAtZero(name ...string) {
	for _, c := range []*prometheus.CounterVec{m.acquired, m.attempts, m.extended, m.extendFailed, m.lost} {
		c.WithLabelValues(name...)
	}
	for _, h := range []*prometheus.HistogramVec{m.acquireTime, m.extendTime, m.releaseTime, m.holdTime} {
		h.WithLabelValues(name...)
	}
	for _, value := range []string{"held", "no_quorum"} {
		m.refused.WithLabelValues(append([]string{value}, name...)...)
	}
	for _, value := range []string{"ok", "lost", "no_quorum", "interrupted"} {
		m.released.WithLabelValues(append([]string{value}, name...)...)
	}
}

// labels are the values of a time series: its own, and that of the lock's names.
func (m *Metrics) labels(names []string, own ...string) []string {
	if m.name == nil {
		return own
	}
	value := strings.ToValidUTF8(m.name(names), "?") // Prometheus refuses anything else
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.known[value] && len(m.known) >= maxNames {
		value = "other"
	}
	if !m.known[value] {
		m.known[value] = true
		m.beginAtZero(value)
	}
	return append(own, value)
}

// Hooks returns hooks for the configuration of a client. They also call the hooks in others, each after ours.
func (m *Metrics) Hooks(others redlock.Hooks) redlock.Hooks {
	hooks := others // where we have none, the other hook stays
	hooks.Acquired = func(l redlock.LeaseInfo, waited time.Duration, attempts int) {
		labels := m.labels(l.Names)
		m.acquired.WithLabelValues(labels...).Inc()
		m.attempts.WithLabelValues(labels...).Add(float64(attempts))
		m.acquireTime.WithLabelValues(labels...).Observe(waited.Seconds())
		if others.Acquired != nil {
			others.Acquired(l, waited, attempts)
		}
	}
	hooks.Refused = func(names []string, err error) {
		m.refused.WithLabelValues(m.labels(names, reason(err))...).Inc()
		if others.Refused != nil {
			others.Refused(names, err)
		}
	}
	hooks.Extended = func(l redlock.LeaseInfo, left, took time.Duration) {
		labels := m.labels(l.Names)
		m.extended.WithLabelValues(labels...).Inc()
		m.extendTime.WithLabelValues(labels...).Observe(took.Seconds())
		if others.Extended != nil {
			others.Extended(l, left, took)
		}
	}
	hooks.ExtendFailed = func(l redlock.LeaseInfo, err error) {
		m.extendFailed.WithLabelValues(m.labels(l.Names)...).Inc()
		if others.ExtendFailed != nil {
			others.ExtendFailed(l, err)
		}
	}
	hooks.Released = func(l redlock.LeaseInfo, err error) {
		m.released.WithLabelValues(m.labels(l.Names, reason(err))...).Inc()
		m.holdTime.WithLabelValues(m.labels(l.Names)...).Observe(l.Held.Seconds())
		if others.Released != nil {
			others.Released(l, err)
		}
	}
	hooks.Lost = func(l redlock.LeaseInfo, err error) {
		m.lost.WithLabelValues(m.labels(l.Names)...).Inc()
		m.holdTime.WithLabelValues(m.labels(l.Names)...).Observe(l.Held.Seconds())
		if others.Lost != nil {
			others.Lost(l, err)
		}
	}
	hooks.Traced = func(ctx context.Context, op redlock.Operation) {
		if op.Op == "release" {
			m.releaseTime.WithLabelValues(m.labels(op.Lease.Names)...).Observe(op.Took.Seconds())
		}
		if others.Traced != nil {
			others.Traced(ctx, op)
		}
	}
	return hooks
}

// reason is a label with few values.
func reason(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, redlock.ErrHeld):
		return "held"
	case errors.Is(err, redlock.ErrNoQuorum):
		return "no_quorum"
	case errors.Is(err, redlock.ErrLost):
		return "lost"
	default: // the caller's context ended
		return "interrupted"
	}
}
