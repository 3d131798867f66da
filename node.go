package redlock

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A node is one master behind one ordered, pipelined connection. The server applies commands in the order in which they
// were sent, so a release cannot overtake its own acquire (A5).
//
// Two goroutines serve it: run dials, writes, and dials again when the connection breaks; a reader lives as long as a
// connection. Both end when run's context ends, or after close when nothing is left to do. A third looks for another server
// while this one is a replica (lookElsewhere).
type node struct {
	*settings
	host     nodeHost
	endpoint endpoint
	index    int
	away     []string      // why it was not connected, as the log said since it last was: keys of causeOf. run's
	wake     chan struct{} // capacity 1: there is something to write, or to notice
	quit     chan struct{} // closed by close: run ends once nothing is left to write or to receive
	ended    chan struct{} // closed when run has returned

	// clock is how far the server's clock is ahead of ours, as last observed; see observe.
	clock atomic.Pointer[observation]
	trip  atomic.Int64  // the usual round trip, in ns; see trips. It is known when clock is not nil
	late  atomic.Int64  // after how long its answer is late, in ns; see delay
	mark  atomic.Uint64 // the hash of its server's run id; see weight
	slow  atomic.Bool   // its round trip is far above the others'; see probeFor
	balks atomic.Int64  // Instant until which it is not asked first, because an acquire got an error; 0: none ever did

	// heardAt is an Instant: when its last reply came, on any connection.
	heardAt atomic.Int64
	// answering: the reader is handling a reply, and may queue something more, as a release that the server refused.
	answering atomic.Bool

	mu          sync.Mutex // guards the rest; no I/O and no call-back under it
	tried       bool       // the first attempt is over: to connect, and to learn whether it may grant
	up          bool
	why         error      // why it is not up
	brokeAt     Instant    // when its connection last broke
	server      serverInfo // of the server that it is, or was last, connected to; see fitness.go
	unfit       error      // why that server is refused as a voter; nil if it is not
	healthAsked Instant    // when its health was last asked for; see checkHealth
	spared      Instant    // when the request was sent that was found late, and gets another chance
	readiness   readiness  // whether it may grant; see quarantine.go
	groups      groupWord  // what it said of the groups of a Sharded
	light       bool       // it knows the commands of the light acquire
	proxied     bool       // another server process once answered on a connection that stayed open

	impostor    error                // that this was found on this connection, which the reader then ends
	vouchedAt   Instant              // when the INFO was asked for that last vouched for the data set of readiness
	asksOf      *replicationQuestion // the last one; see vouch.go
	markerAsked *markerQuestion      // likewise; see light.go
	readClock   Instant              // when clockSpan was asked for
	renamed     Instant              // when the data set was last found to be another one, on this connection
	queue       []request            // accepted, not written
	flight      fifo                 // written, not answered, in the order of writing
	owed        []debt               // releases that no server has confirmed: the oldest first, but for refused ones
	askedWhy    Instant              // when ready.lua was last asked because a script was refused for a missing right
	retried     Instant              // when releases were last taken from owed
	reloading   bool                 // scripts are being loaded again, and no reply to that has come

	lights     []lightVote // acquires in light form whose marker and time are still to come; the reader's, then run's
	askedAgain bool        // vouch.lua was sent again, because the server had forgotten it; likewise
	// vouchedFirst votes by the marker as it was before the acquires. It is nil, unless markerReadLast is off.
	vouchedFirst func(*lightVote) answer
	clockSpan    span       // the last reading of its clock on this connection, for light acquires; the reader's
	unvouched    []heldVote // votes that wait for a later INFO; the reader's, and run's while there is no reader
	trips        trips      // the reader's, and run's while there is no reader
	delay        delay      // likewise
}

const (
	// maxOutstanding bounds the requests that wait on one node. Above it the node's votes are unknown at once. Releases
	// are still accepted: there are no more of them than acquires that were accepted. So are renewals: a lease must not be
	// lost because others acquire, and no more than a few renewals of one lease are under way.
	maxOutstanding = 1 << 14

	// vouchInterval is how long acquires rely on one INFO that vouched for the data set (Q1). An INFO with every vote
	// would cost some 3 µs of the server's time each. A server needs longer than the interval to lose its data
	// unnoticed: to become a replica, load another server's data and be promoted again took at least 14 ms, on one
	// machine without data.
	vouchInterval = 10 * time.Millisecond
	// vouchReach is how long after that INFO was asked for a grant may come and still rely on it. The network may hold
	// up a request for longer. Its grant then waits for another INFO (vouchLate).
	vouchReach = 2 * vouchInterval
	longAgo    = Instant(math.MinInt64 / 2)

	healthInterval = 5 * time.Second // how often INFO and TIME are asked for
)

var (
	errConnecting = errors.New("not connected yet")
	errOverloaded = errors.New("too many requests are waiting for its answers")
	errStalled    = errors.New("it has stopped answering")
)

// A nodeHost is the client of a node, as far as the node needs it.
type nodeHost interface {
	// claim makes this server count as the node, or returns the node that it already counts as.
	claim(runID string, n *node) *node
	unclaim(n *node)
	// nodeChanged is called when the connection opened (err is nil) or broke, and after the first attempt.
	nodeChanged(n *node, err error)
	// logAway logs why the node is not connected.
	logAway(n *node, err error)
	// hasTried reports whether every node has said whether it may grant, or failed to connect, at least once.
	hasTried() bool
	// votesChanged is called when this node may have become a voter, or have stopped being one.
	votesChanged()
	// word is what the node's server is asked about its readiness, and the moment by the clocks that goes with it.
	word(n *node) (word string, at moment)
	// runIDsBeside are the run ids of all other servers, with a space before each.
	runIDsBeside(n *node) string
	// readied is called when the node's readiness is known anew.
	readied(n *node, agrees bool)
	// ballotLimit is the largest ballot that one node is believed.
	ballotLimit() uint64
	// askPublish asks whether the client may publish there now.
	askPublish(n *node) *command
}

func newNode(s *settings, host nodeHost, index int, e endpoint) *node {
	n := &node{settings: s, host: host, endpoint: e, index: index, why: errConnecting, groups: noWord,
		brokeAt: longAgo, askedWhy: longAgo,
		wake: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{})}
	n.heardAt.Store(int64(longAgo))
	return n
}

// enqueue hands a round to the node. An error is why the node did not accept it. The caller counts the vote, because the
// callback of a round takes locks, and the caller may hold one of them. owed says that the round is a release and the
// node may have the keys: if the node is not connected, it is then owed. If its connection has just broken, it is accepted,
// because the next one may be there in time.
func (n *node) enqueue(r *round, owed bool) error {
	n.mu.Lock()
	var err error
	switch {
	case !n.up && owed && n.cfg.Clock.Now().Sub(n.brokeAt) < n.cfg.NodeTimeout:
		n.owe(r.debt(false))
		why := n.why
		n.mu.Unlock()
		r.staysOpen(n.index, why)
		return nil
	case !n.up:
		err = n.why
		if owed {
			n.owe(debt{call: r.call, t0: r.t0})
		}
	case n.unfit != nil && r.script.grants:
		err = n.unfit
	case !r.script.cleansUp && r.script.own != ownLease && len(n.queue)+n.flight.len() >= maxOutstanding:
		err = errOverloaded
	default:
		n.queue = append(n.queue, request{round: r, later: r.later})
	}
	n.mu.Unlock()
	if err == nil {
		n.wakeUp()
	}
	return err
}

func (n *node) wakeUp() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// run keeps the node connected until ctx ends, or after close until nothing is left to do. If the connection breaks after
// close and releases are owed, it connects once more (L2).
func (n *node) run(ctx context.Context) {
	defer close(n.ended)
	again := reconnect{settings: n.settings}
	var stale staleConns
	for last := false; ; {
		n.mu.Lock()
		n.dropExpired(n.cfg.Clock.Now()) // here too, because a node may never connect again
		n.mu.Unlock()
		began := n.cfg.Clock.Now()
		s, err := n.open(ctx, &stale)
		if err == nil {
			opened := n.cfg.Clock.Now()
			err = n.serve(ctx, s)
			again.lasted(n.cfg.Clock.Now().Sub(opened))
			stale.add(s)
		}
		n.goDown(err, began)
		closing := n.isClosing()
		if ctx.Err() != nil || err == ErrClosed || closing && (last || !n.owes()) {
			n.neverPaid(err)
			return
		}
		last = closing
		again.pause(ctx, n.quit, backoffMax)
	}
}

// serve uses an opened connection until it breaks, and returns why it did.
func (n *node) serve(ctx context.Context, s *session) error {
	n.comeUp(s)
	broken := make(chan error, 1)
	go func() { broken <- n.read(s) }()
	stop := context.AfterFunc(ctx, func() { s.conn.Close() })
	defer stop()

	err, readerEnded := n.write(ctx, s, broken)
	s.conn.Close() // unblocks the reader
	if !readerEnded {
		<-broken
	}
	return err
}

// write sends all that is queued in one flush, again and again, until the connection breaks or the node is closed. It
// also reports whether the reader has ended.
func (n *node) write(ctx context.Context, s *session, broken <-chan error) (err error, readerEnded bool) {
	var batch []request
	var args []any
	var state readiness
	health := time.NewTimer(healthInterval)
	defer health.Stop()
	var looking sync.WaitGroup
	defer looking.Wait()
	ctx, end := context.WithCancel(ctx)
	defer end()
	var moved <-chan error // nil: nobody looks; see lookElsewhere
	idle := true
	for {
		select {
		case <-n.wake:
		case err := <-broken:
			return err, true
		case due := <-health.C:
			wait, err := n.checkHealth(time.Since(due))
			if err != nil {
				return err, false
			}
			idle = wait > n.stallTimeout()
			health.Reset(wait)
			if moved == nil {
				moved = n.lookElsewhere(ctx, &looking)
			}
		case err := <-moved:
			if moved = nil; err != nil {
				return err, false
			}
		}
		runtime.Gosched() // lets other senders join this flush: a system call costs more than a command
		var done bool
		if batch, state, done = n.nextBatch(batch); done {
			return ErrClosed, false
		}
		if len(batch) == 0 {
			continue
		}
		if idle {
			idle = false
			health.Reset(n.checkSoon())
		}
		for i := range batch {
			if q := &batch[i]; q.light {
				args, err = n.sendLight(s.conn, args, q.round)
			} else {
				args = q.arguments(args[:0], &state, n)
				err = s.conn.Send(q.name(), args...)
			}
			if err != nil {
				return err, false
			}
		}
		if err := s.conn.Flush(); err != nil {
			return err, false
		}
		clear(batch)
	}
}

// nextBatch moves the queue into flight before it is written, so that no reply comes before its request is known. If
// the batch has an acquire, and the last INFO is older than vouchInterval, it adds an INFO behind the batch to vouch
// for it.
func (n *node) nextBatch(reuse []request) (batch []request, state readiness, done bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queue) == 0 {
		return reuse[:0], n.readiness, n.isClosing() && n.flight.len() == 0 && !n.answering.Load()
	}
	batch, n.queue = mergeRenewals(n.queue), reuse[:0]
	now := n.cfg.Clock.Now()
	batch[0].sampled = true
	vouch := now.Sub(n.vouchedAt) > vouchInterval && !n.protocol.omits(dataSetVouched)
	asked := false
	for i := range batch {
		if vouch && batch[i].round != nil && batch[i].round.script.grants {
			batch[i].vouched, asked = true, true
		}
	}
	batch = n.lighten(batch, now)
	if asked {
		batch = append(batch, request{command: n.askReplication()})
	}
	for i := range batch {
		batch[i].sentAt = now
		n.flight.push(batch[i])
	}
	state = n.readiness
	if n.unfit != nil {
		state.marker = noMarker // N2: it grants nothing
	}
	return batch, state, false
}
