package redlockprom

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/redlock"
)

// Watch adds what a client holds and waits for, and its nodes. Each scrape asks all watched clients at once for the
// status of their nodes, for a second at most. Two watched clients must not have a node's name in common, because a scrape
// that has a series twice fails as a whole: of several clients of the same nodes, watch one. A client that is watched already
// is watched once. A client that was closed knows nothing of its nodes, so they are absent; see [Metrics.Forget].
func (m *Metrics) Watch(c *redlock.Client) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Contains(m.clients, c) {
		m.clients = append(m.clients, c)
	}
}

// Forget undoes Watch. Call it when the client is closed and the process goes on. The events that the client has dropped
// stay counted, because a counter that goes down is taken for that of a process that was restarted. So do not watch the same
// client again: they would count twice.
func (m *Metrics) Forget(c *redlock.Client) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clients = slices.DeleteFunc(slices.Clone(m.clients), func(other *redlock.Client) bool {
		if other != c {
			return false
		}
		m.forgotten += c.Dropped()
		return true
	})
}

// watched returns the clients that are watched, and how many events all clients have dropped. It counts them under the
// same lock as Forget, so that the number never goes down.
func (m *Metrics) watched() (clients []*redlock.Client, dropped uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dropped = m.forgotten
	for _, c := range m.clients {
		dropped += c.Dropped()
	}
	return m.clients[:len(m.clients):len(m.clients)], dropped
}

func (m *Metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.acquired, m.attempts, m.acquireTime, m.refused, m.extended, m.extendTime,
		m.extendFailed, m.released, m.releaseTime, m.holdTime, m.lost}
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(to)
	}
	for _, d := range []*prometheus.Desc{m.leases, m.waiters, m.oldest, m.least, m.dropped,
		m.up, m.votes, m.roundTrip, m.clockOffset, m.quarantine, m.tolerated} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(to)
	}
	clients, dropped := m.watched()
	if len(clients) == 0 {
		return
	}
	to <- prometheus.MustNewConstMetric(m.dropped, prometheus.CounterValue, float64(dropped))
	m.collectStats(to, clients)
	least, known := 0, false
	for i, nodes := range m.statuses(clients) {
		votes, told := 0, false
		for _, s := range nodes {
			if errors.Is(s.Err, redlock.ErrClosed) { // the node may well be up: an alert would be false
				continue
			}
			told = true
			name := s.Name
			if !utf8.ValidString(name) { // Prometheus would refuse all of this registry's metrics
				name = strings.Trim(strconv.Quote(name), `"`)
			}
			gauge := func(d *prometheus.Desc, value float64) {
				to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, name)
			}
			gauge(m.up, number(s.Connected))
			gauge(m.votes, number(s.Err == nil))
			if s.Err == nil {
				votes++
			}
			if s.Connected {
				gauge(m.roundTrip, s.Latency.Seconds())
				gauge(m.clockOffset, s.ClockOffset.Seconds())
				gauge(m.quarantine, s.Quarantine.Seconds())
			}
		}
		if tolerated := votes - clients[i].Quorum(); told && (!known || tolerated < least) {
			least, known = tolerated, true
		}
	}
	if known {
		to <- prometheus.MustNewConstMetric(m.tolerated, prometheus.GaugeValue, float64(least))
	}
}

// statuses asks all clients at once, each for its nodes, so that one whose nodes are silent does not use up the time of the others.
func (m *Metrics) statuses(clients []*redlock.Client) (found [][]redlock.NodeStatus) {
	ctx, cancel := context.WithTimeout(context.Background(), m.timeout)
	defer cancel()
	found = make([][]redlock.NodeStatus, len(clients))
	var asked sync.WaitGroup
	for i, c := range clients {
		asked.Go(func() { found[i] = c.Status(ctx) })
	}
	asked.Wait()
	return found
}

func (m *Metrics) collectStats(to chan<- prometheus.Metric, clients []*redlock.Client) {
	var sum redlock.Stats
	for _, c := range clients {
		s := c.Stats()
		if s.Held > 0 && (sum.Held == 0 || s.LeastRemaining < sum.LeastRemaining) {
			sum.LeastRemaining = s.LeastRemaining
		}
		sum.Held += s.Held
		sum.Waiters += s.Waiters
		sum.OldestHold = max(sum.OldestHold, s.OldestHold)
	}
	gauge := func(d *prometheus.Desc, value float64) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value)
	}
	gauge(m.leases, float64(sum.Held))
	gauge(m.waiters, float64(sum.Waiters))
	gauge(m.oldest, sum.OldestHold.Seconds())
	if sum.Held > 0 {
		gauge(m.least, sum.LeastRemaining.Seconds())
	}
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
