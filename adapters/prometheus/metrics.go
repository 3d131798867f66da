// Package redlockprom exports metrics of redlock clients and their nodes to Prometheus.
//
//	metrics := redlockprom.New()
//	client, err := redlock.New(redlock.Config{Nodes: nodes, Hooks: metrics.Hooks(redlock.Hooks{})})
//	…
//	metrics.Watch(client)
//	prometheus.MustRegister(metrics)
//
// Lock names are not labels, because there may be any number of them. Times are in seconds.
package redlockprom

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/redlock"
)

// Metrics is a [prometheus.Collector]. Register it once. It is safe for concurrent use.
//
//	redlock_acquired_total                 leases that were won
//	redlock_acquire_seconds                histogram: from the call to the lease
//	redlock_attempts_total                 rounds that these took; more than one each is contention
//	redlock_refused_total{reason}          attempts that failed: held, or no_quorum (page someone)
//	redlock_extended_total                 renewals
//	redlock_extend_seconds                 histogram: the round of a renewal
//	redlock_extend_failed_total            renewals that found no quorum; they are tried again
//	redlock_released_total{result}         ok, lost, no_quorum (it expires by itself), or interrupted
//	redlock_lost_total                     leases that ended before they were released: look at each
//	redlock_node_up{node}                  1: connected
//	redlock_node_votes{node}               1: its vote counts. 0 on as many nodes as you tolerate: page someone
//	redlock_node_round_trip_seconds{node}  of one request
//	redlock_node_clock_offset_seconds{node}  how far its clock is ahead of the nodes' median
//	redlock_node_quarantine_seconds{node}  how much longer it does not grant
type Metrics struct {
	acquired, attempts, extended, extendFailed, lost prometheus.Counter
	acquireTime, extendTime                          prometheus.Histogram
	refused, released                                *prometheus.CounterVec
	up, votes, roundTrip, clockOffset, quarantine    *prometheus.Desc
	timeout                                          time.Duration

	mu      sync.Mutex // guards clients
	clients []*redlock.Client
}

var _ prometheus.Collector = (*Metrics)(nil)

// New makes metrics that have no client at first.
func New() *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "redlock", Name: name, Help: help})
	}
	counters := func(name, label, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "redlock", Name: name, Help: help}, []string{label})
	}
	histogram := func(name, help string, from float64, buckets int) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "redlock", Name: name, Help: help,
			Buckets: prometheus.ExponentialBuckets(from, 2, buckets)})
	}
	node := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("redlock_node_"+name, help, []string{"node"}, nil)
	}
	return &Metrics{
		acquired:     counter("acquired_total", "Leases that were won."),
		attempts:     counter("attempts_total", "Rounds for the leases that were won."),
		acquireTime:  histogram("acquire_seconds", "Time from the call of Acquire to the lease.", 250e-6, 18),
		refused:      counters("refused_total", "reason", "Attempts to acquire that failed: held by another, or no quorum of nodes."),
		extended:     counter("extended_total", "Renewals."),
		extendTime:   histogram("extend_seconds", "Length of a renewal round.", 250e-6, 12),
		extendFailed: counter("extend_failed_total", "Renewals without a quorum. They are tried again."),
		released:     counters("released_total", "result", "Releases: ok, lost, no_quorum or interrupted."),
		lost:         counter("lost_total", "Leases that ended before they were released."),
		up:           node("up", "1 if the node is connected."),
		votes:        node("votes", "1 if the node votes."),
		roundTrip:    node("round_trip_seconds", "Time of one request to the node."),
		clockOffset:  node("clock_offset_seconds", "How far the node's clock is ahead of the median of the nodes' clocks."),
		quarantine:   node("quarantine_seconds", "How long the node's quarantine will last; 0 if it is in none."),
		timeout:      time.Second,
	}
}

// Hooks returns hooks for the configuration of a client. They also call the hooks in others, each after ours.
func (m *Metrics) Hooks(others redlock.Hooks) redlock.Hooks {
	hooks := others // where we have none, the other hook stays
	hooks.Acquired = func(l redlock.LeaseInfo, waited time.Duration, attempts int) {
		m.acquired.Inc()
		m.attempts.Add(float64(attempts))
		m.acquireTime.Observe(waited.Seconds())
		if others.Acquired != nil {
			others.Acquired(l, waited, attempts)
		}
	}
	hooks.Refused = func(names []string, err error) {
		m.refused.WithLabelValues(reason(err)).Inc()
		if others.Refused != nil {
			others.Refused(names, err)
		}
	}
	hooks.Extended = func(l redlock.LeaseInfo, left, took time.Duration) {
		m.extended.Inc()
		m.extendTime.Observe(took.Seconds())
		if others.Extended != nil {
			others.Extended(l, left, took)
		}
	}
	hooks.ExtendFailed = func(l redlock.LeaseInfo, err error) {
		m.extendFailed.Inc()
		if others.ExtendFailed != nil {
			others.ExtendFailed(l, err)
		}
	}
	hooks.Released = func(l redlock.LeaseInfo, err error) {
		m.released.WithLabelValues(reason(err)).Inc()
		if others.Released != nil {
			others.Released(l, err)
		}
	}
	hooks.Lost = func(l redlock.LeaseInfo, err error) {
		m.lost.Inc()
		if others.Lost != nil {
			others.Lost(l, err)
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

// Watch adds the nodes of a client. Each scrape asks for their status, for a second at most. Two watched clients must
// not have a node's name in common: of several clients of the same nodes, watch one.
func (m *Metrics) Watch(c *redlock.Client) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clients = append(m.clients, c)
}

func (m *Metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.acquired, m.attempts, m.acquireTime, m.refused, m.extended, m.extendTime, m.extendFailed,
		m.released, m.lost}
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(to)
	}
	for _, d := range []*prometheus.Desc{m.up, m.votes, m.roundTrip, m.clockOffset, m.quarantine} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(to)
	}
	m.mu.Lock()
	clients := m.clients[:len(m.clients):len(m.clients)]
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), m.timeout)
	defer cancel()
	for _, c := range clients {
		for _, s := range c.Status(ctx) {
			gauge := func(d *prometheus.Desc, value float64) {
				to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, s.Name)
			}
			gauge(m.up, number(s.Connected))
			gauge(m.votes, number(s.Err == nil))
			if s.Connected {
				gauge(m.roundTrip, s.Latency.Seconds())
				gauge(m.clockOffset, s.ClockOffset.Seconds())
				gauge(m.quarantine, s.Quarantine.Seconds())
			}
		}
	}
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
