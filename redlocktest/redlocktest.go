package redlocktest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/quorumlock/redlock"
)

// Nodes are the nodes of one test. All methods may be called concurrently, also while clients use the nodes. A method
// that is given an index fails the test with t.Fatalf if there is no such node, so call it from the goroutine of the
// test. A call that changes nothing, such as Kill of a node that is down, does nothing.
type Nodes struct {
	t     testing.TB
	nodes []*node
}

// Start starts n nodes, numbered from 0. They end when t ends, with all their goroutines. n is at least 1; use what
// production has, mostly 3 or 5.
//
// In a testing/synctest bubble, call it inside the bubble with the bubble's t. The nodes and the clients then live in
// virtual time. Make the clients in the bubble, and close them there. If the nodes are started outside and a client is
// inside, the test ends with a fatal error, "WaitGroup.Add called from inside and outside synctest bubble", or with a nil
// dereference in internal/synctest.isAssociated.
func Start(t testing.TB, n int) *Nodes {
	t.Helper()
	if n < 1 {
		t.Fatalf("redlocktest: Start with %d nodes; give at least 1", n)
	}
	all := &Nodes{t: t}
	for i := range n {
		node := &node{name: fmt.Sprintf("node-%d", i)}
		node.start(true)
		all.nodes = append(all.nodes, node)
	}
	t.Cleanup(func() {
		for _, node := range all.nodes {
			node.end()
		}
	})
	return all
}

// Nodes returns the nodes for [redlock.Config.Nodes], in the order of their indexes. Their names are node-0, node-1 and
// so on. Any number of clients may use them.
func (a *Nodes) Nodes() []redlock.Node {
	nodes := make([]redlock.Node, len(a.nodes))
	for i, n := range a.nodes {
		nodes[i] = redlock.Node{Name: n.name, Dial: func(context.Context) (redis.Conn, error) {
			return n.dial()
		}}
	}
	return nodes
}

// Kill ends node i, as kill -9 or a crash does. Its data are gone. Clients see their connections break at once, and
// new ones are refused. It ends a Pause. It returns when the node executes nothing more.
func (a *Nodes) Kill(i int) {
	a.t.Helper()
	a.at(i).kill()
}

// Restart starts node i without data. A node that is up is killed first. Clients reconnect within a second or so. The
// node has forgotten its leases, so it is in quarantine: it does not vote until the longest lease that it may have
// granted is over. This takes [redlock.Config.MaxTTL] and somewhat longer, 30.85 s by default. [redlock.Client.Enroll]
// ends it at once. A Partition, a Delay and the steps of the node's clock remain.
func (a *Nodes) Restart(i int) {
	a.t.Helper()
	a.at(i).restart()
}

// Pause stops node i, as kill -STOP does. Connections stay open and new ones open, but nothing is answered. A client
// counts the node's vote as unknown after [redlock.Config.NodeTimeout]. The node's clock goes on. It does nothing on
// a node that is down.
func (a *Nodes) Pause(i int) {
	a.t.Helper()
	a.at(i).pause()
}

// Resume ends Pause. The node then executes what clients sent meanwhile, also if they no longer wait for the answer.
func (a *Nodes) Resume(i int) {
	a.t.Helper()
	a.at(i).network.set(func(n *network) { n.paused = false })
}

// Partition cuts node i off from all clients: requests do not arrive, and neither do the replies to those that did.
// Nothing is lost: what is in flight is delivered after Heal. Clients see what they see with Pause.
func (a *Nodes) Partition(i int) {
	a.t.Helper()
	a.at(i).network.set(func(n *network) { n.partitioned = true })
}

// Heal ends Partition. It does not end a Delay.
func (a *Nodes) Heal(i int) {
	a.t.Helper()
	a.at(i).network.set(func(n *network) { n.partitioned = false })
}

// Delay delays each message between node i and its clients by d, in each direction: a round trip takes 2d. It applies
// to messages that are sent from now on, and replaces an earlier Delay; 0 ends it. A client counts the vote of a node
// that answers later than [redlock.Config.NodeTimeout] as unknown.
func (a *Nodes) Delay(i int, d time.Duration) {
	a.t.Helper()
	if d < 0 {
		a.t.Fatalf("redlocktest: Delay of %v; give 0 or more", d)
	}
	a.at(i).network.set(func(n *network) { n.delay = d })
}

// StepClock sets the clock of node i by d: forward, or back if d is negative. Steps add up. Keys of the node expire by
// this clock: sooner after a step forward, later after a step back. A client does not count the vote of a node whose
// clock is out of step with the others by more than half of [redlock.Config.ClockBand]. The step also applies to a node
// that is down.
func (a *Nodes) StepClock(i int, d time.Duration) {
	a.t.Helper()
	a.at(i).step(d)
}

func (a *Nodes) at(i int) *node {
	a.t.Helper()
	if i < 0 || i >= len(a.nodes) {
		a.t.Fatalf("redlocktest: there is no node %d; the %d nodes are numbered from 0", i, len(a.nodes))
	}
	return a.nodes[i]
}
