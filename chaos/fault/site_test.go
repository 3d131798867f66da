//go:build unix

package fault_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/quorumlock/redlock/chaos/fault"
	"github.com/quorumlock/redlock/chaos/history"
	"github.com/quorumlock/redlock/internal/fleet"
	_ "github.com/quorumlock/redlock/internal/fleet/dockerfleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A record collects the events of a site.
type record struct {
	mu     sync.Mutex // guards events
	events []history.Event
}

func (r *record) add(e history.Event, _ fault.Fault, _ time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func newSite(t *testing.T, kind fleet.Kind, nodes, spares int) (*fault.Site, *record) {
	t.Helper()
	f := fleettest.Start(t, kind, fleet.Options{Nodes: nodes + spares})
	r := new(record)
	s, err := fault.NewSite(f, nodes, r.add)
	require.NoError(t, err)
	return s, r
}

// answers reports whether the node answers a patient client.
func answers(url string) bool { return answersWithin(url, 30*time.Second) }

// mute reports whether the node does not answer within a short time.
func mute(url string) bool { return !answersWithin(url, 100*time.Millisecond) }

func answersWithin(url string, patience time.Duration) bool {
	conn, err := redis.DialURL(url, redis.DialReadTimeout(patience))
	if err != nil {
		return false
	}
	defer conn.Close()
	_, err = conn.Do("PING")
	return err == nil
}

func TestACutOfANodeAndOneOfAClientEndApart(t *testing.T) {
	s, r := newSite(t, fleet.Embedded, 1, 0)
	one, err := s.URLs(1)
	require.NoError(t, err)
	two, err := s.URLs(2)
	require.NoError(t, err)
	forAll, forOne := fault.On(fault.Cut, "node-1"), fault.On(fault.Cut, "node-1").For(1)

	require.NoError(t, s.Begin(t.Context(), forOne))
	assert.True(t, mute(one[0]))
	assert.True(t, answers(two[0]))
	require.NoError(t, s.Begin(t.Context(), forAll))
	assert.True(t, mute(two[0]))
	require.NoError(t, s.Heal(t.Context(), forAll))
	assert.True(t, mute(one[0]), "its own cut lasts")
	assert.True(t, answers(two[0]))
	require.NoError(t, s.HealAll(t.Context()))
	assert.True(t, answers(one[0]))

	assert.Equal(t, []history.Event{
		{Kind: history.Fault, Node: "node-1", Client: 1, Fault: "cut", Begin: true},
		{Kind: history.Fault, Node: "node-1", Fault: "cut", Begin: true},
		{Kind: history.Fault, Node: "node-1", Fault: "cut"},
		{Kind: history.Fault, Node: "node-1", Client: 1, Fault: "cut"},
	}, r.events)
}

func set(t *testing.T, s *fault.Site, url, value string) {
	t.Helper()
	conn, err := redis.DialURL(url)
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Do("SET", "who", value)
	require.NoError(t, err)
}

func who(t *testing.T, url string) string {
	t.Helper()
	conn, err := redis.DialURL(url)
	require.NoError(t, err)
	defer conn.Close()
	value, err := redis.String(conn.Do("GET", "who"))
	if err == redis.ErrNil {
		return ""
	}
	require.NoError(t, err)
	return value
}

func TestEachWayToForgetForgets(t *testing.T) {
	for name, c := range map[string]struct {
		kind        fleet.Kind
		before, how []fault.Verb
		finds       string
	}{
		"restart without data":  {fleet.Process, nil, []fault.Verb{fault.RestartEmpty}, ""},
		"kill and heal":         {fleet.Process, nil, []fault.Verb{fault.Kill}, ""},
		"flush":                 {fleet.Embedded, nil, []fault.Verb{fault.FlushAll}, ""},
		"replace":               {fleet.Embedded, nil, []fault.Verb{fault.Replace}, ""},
		"old RDB":               {fleet.Process, []fault.Verb{fault.Save}, []fault.Verb{fault.RestartOldRDB}, "before"},
		"stale replica":         {fleet.Process, []fault.Verb{fault.Follow, fault.Lag}, []fault.Verb{fault.Promote}, "before"},
		"failback":              {fleet.Process, []fault.Verb{fault.Follow, fault.Detach}, []fault.Verb{fault.Failback}, "before"},
		"failback, docker":      {fleet.Docker, []fault.Verb{fault.Follow, fault.Detach}, []fault.Verb{fault.Failback}, "before"},
		"stale replica, docker": {fleet.Docker, []fault.Verb{fault.Follow, fault.Lag}, []fault.Verb{fault.Promote}, "before"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := newSite(t, c.kind, 1, 1)
			urls, err := s.URLs(1)
			require.NoError(t, err)
			set(t, s, urls[0], "before")
			for _, verb := range c.before {
				require.NoError(t, s.Begin(t.Context(), fault.On(verb, "node-1")))
			}
			set(t, s, urls[0], "after")
			for _, verb := range c.how {
				require.NoError(t, s.Begin(t.Context(), fault.On(verb, "node-1")))
			}
			require.NoError(t, s.HealAll(t.Context()))
			assert.Equal(t, c.finds, who(t, urls[0]))
			n, err := s.Server("node-1")
			require.NoError(t, err)
			conn, err := n.DialDirect(t.Context(), 30*time.Second)
			require.NoError(t, err)
			defer conn.Close()
			value, _ := redis.String(conn.Do("GET", "who"))
			assert.Equal(t, c.finds, value, "the observer sees the same server as the client")
		})
	}
}

// runID asks the server for its run id.
func runID(t *testing.T, s *fault.Site) string {
	t.Helper()
	n, err := s.Server("node-1")
	require.NoError(t, err)
	id, err := n.RunID(t.Context())
	require.NoError(t, err)
	return id
}

func TestAFailbackLeavesTheProcessWhatItWas(t *testing.T) {
	s, _ := newSite(t, fleet.Process, 1, 1)
	before := runID(t, s)
	for _, verb := range []fault.Verb{fault.Follow, fault.Detach, fault.Failback} {
		require.NoError(t, s.Begin(t.Context(), fault.On(verb, "node-1")))
	}
	assert.Equal(t, before, runID(t, s))
	require.Error(t, s.Begin(t.Context(), fault.On(fault.Failback, "node-1")), "it has no replica any more")
}

func TestSubscriptionsEndUntilTheirKillingHeals(t *testing.T) {
	s, _ := newSite(t, fleet.Process, 1, 0)
	urls, err := s.URLs(1)
	require.NoError(t, err)
	subscribe := func() *redis.PubSubConn {
		conn, err := redis.DialURL(urls[0])
		require.NoError(t, err)
		p := &redis.PubSubConn{Conn: conn}
		require.NoError(t, p.Subscribe("news"))
		return p
	}
	// hears returns the next message of a subscriber.
	hears := func(p *redis.PubSubConn) any { return p.ReceiveWithTimeout(30 * time.Second) }
	kill := fault.On(fault.Unsubscribe, "node-1")
	for range 2 { // it ends, and can begin again
		require.NoError(t, s.Begin(t.Context(), kill))
		for range 3 {
			p := subscribe()
			heard := hears(p)
			if _, subscribed := heard.(redis.Subscription); subscribed { // otherwise it was killed before the confirmation
				heard = hears(p)
			}
			err, failed := heard.(error)
			require.True(t, failed, "%v", heard)
			var timeout net.Error
			assert.False(t, errors.As(err, &timeout) && timeout.Timeout(), "the server closed the connection")
			_ = p.Close()
		}
		require.NoError(t, s.Heal(t.Context(), kill))
	}
	p := subscribe()
	defer p.Close()
	assert.IsType(t, redis.Subscription{}, hears(p))
	time.Sleep(100 * time.Millisecond) // time to be killed five times
	require.NoError(t, p.Ping("still there"))
	assert.IsType(t, redis.Pong{}, hears(p))
}

func TestWhatCannotBeDoneIsAnError(t *testing.T) {
	s, _ := newSite(t, fleet.Embedded, 1, 1)
	for _, f := range []fault.Fault{
		fault.On(fault.Follow, "node-1"), fault.On(fault.Promote, "node-1"), fault.On(fault.Lag, "node-1"),
		fault.On(fault.Detach, "node-1"), fault.On(fault.Failback, "node-1"), fault.On(fault.Unsubscribe, "node-1"),
		fault.On(fault.Kill, "node-2"), {Verb: fault.Clock, Node: "node-1", By: time.Second}, {Verb: "explode", Node: "node-1"},
	} {
		require.Error(t, s.Begin(t.Context(), f), f.String())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, s.Run(ctx, fault.Schedule{{At: time.Hour, Fault: fault.On(fault.FlushAll, "node-1")}}))
}

// The later fault is written first. The end of the earlier one must not end it.
func TestAFaultThatBeginsWhenAnotherEndsLastsAsLongAsItSays(t *testing.T) {
	s, r := newSite(t, fleet.Embedded, 1, 0)
	schedule, err := fault.ParseSchedule("20ms cut(node-1) for 20ms\n0s cut(node-1) for 20ms")
	require.NoError(t, err)
	require.NoError(t, s.Run(t.Context(), schedule))
	var begins []bool
	for _, e := range r.events {
		begins = append(begins, e.Begin)
	}
	require.Equal(t, []bool{true, false, true, false}, begins)
}
