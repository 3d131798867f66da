package election

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"
	"weak"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/access"
)

// A Term is a time in which this process leads. It lasts until [Term.Resign], until it is lost, or until the client is
// closed; in each case it ends before another process can lead. Its methods are safe for concurrent use. Get one from
// [Election.Campaign].
//
// Keep the Term, or its context, for as long as the process is to lead: a garbage-collected Term is not renewed.
type Term struct {
	lease *redlock.Lease
	*announcer
}

func newTerm(e *Election, lease *redlock.Lease) *Term {
	a := &announcer{election: e, token: lease.Token(), number: lease.Fence(), lease: weak.Make(lease), stop: make(chan struct{})}
	e.nodes.Go(context.Background(), a.run) // if the client is closed, the term is over already
	return &Term{lease, a}
}

// Context ends when the leadership is resigned or lost or the client is closed, before another process can lead.
// [context.Cause] is then [redlock.ErrReleased], [redlock.ErrLost] or [redlock.ErrClosed] by [errors.Is]. It has the
// values of the context given to Campaign, but not its cancellation, and carries the lease.
func (t *Term) Context() context.Context { return t.lease.Context() }

// Valid reports whether this process leads now, by the clock. At most one process at a time does. Ask it just before
// work that only the leader may do. The process may still be paused between the answer and the work: see
// [Term.Number].
func (t *Term) Valid() bool { return t.lease.Valid() }

// Number is the fencing token of the term ([redlock.Lease.Fence]): larger than those of all leaders before. Give it with
// each change, so that what is changed can refuse a leader of the past: see package fence. It is 0 with
// [redlock.Config.NoFence].
func (t *Term) Number() uint64 { return t.number }

// Label is the label of this process; see [Options].
func (t *Term) Label() string { return t.election.label }

// Lease is the lease of the term. It is renewed by itself. Its Release ends the term as Resign does, but observers learn
// of that later.
func (t *Term) Lease() *redlock.Lease { return t.lease }

// Resign ends the term, so that another process can lead. Its errors are those of [redlock.Lease.Release]: nil if a
// quorum of the nodes let the lock go; [redlock.ErrLost] if the term was lost before; [redlock.ErrNoQuorum] if that is
// not known, and the lock then expires by itself. In each case the term is over.
//
// ctx bounds only the wait. Resign can be called any number of times.
func (t *Term) Resign(ctx context.Context) error {
	t.end(true)
	return t.lease.Release(ctx)
}

// serve calls fn under the term and resigns. lost says that the term was lost before fn returned.
func (t *Term) serve(ctx context.Context, fn func(context.Context, *Term) error) (lost bool, err error) {
	// ctx may have ended, but the process must not exit before the nodes have let the lock go. An error says that it expires
	// by itself, which is no concern of fn's.
	defer t.Resign(context.WithoutCancel(ctx))
	err = fn(t.lease.With(ctx), t)
	resigned := errors.Is(context.Cause(t.Context()), redlock.ErrReleased)
	return !t.Valid() && !resigned, err
}

// An announcer tells the nodes who leads, for as long as the lease is valid. It does not keep the Lease alive. What the
// nodes make of it does not concern the lease.
type announcer struct {
	election *Election
	token    string
	number   uint64
	lease    weak.Pointer[redlock.Lease]
	stop     chan struct{} // closed by end

	mu    sync.Mutex // guards ended, and that nothing is announced after the end; commands are queued under it
	ended bool
}

// announceScript stores who leads, on a node where it has the lock, and tells observers. It expires a TTL after the lock
// would now: renewals make the lock last longer, and if the leader dies then, no announcement follows the last of them.
// Without the lock of its owner, the record says nothing.
//
// KEYS[1] is the lock key, KEYS[2] where to store it. ARGV[1] is the channel, ARGV[2] the owner token, ARGV[3] the record,
// ARGV[4] the TTL in milliseconds.
var announceScript = access.NewScript(`if redis.pcall('GET', KEYS[1]) ~= ARGV[2] then return 0 end
local left = redis.call('PTTL', KEYS[1])
if left <= 0 then return 0 end
redis.call('SET', KEYS[2], ARGV[3], 'PX', left + ARGV[4])
redis.pcall('PUBLISH', ARGV[1], 'leads ' .. ARGV[3])
return 1`)

// retractScript deletes what announceScript stored, unless it is another leader's, and tells observers. Where the lock
// stays until it expires, the record does too: it says who has it.
//
// KEYS[1] is the lock key, KEYS[2] where it is stored. ARGV[1] is the channel, ARGV[2] the owner token, ARGV[3] the number of
// the term, ARGV[4] "released" if the lock's release follows.
var retractScript = access.NewScript(`local record = redis.pcall('GET', KEYS[2])
if type(record) == 'string' and string.sub(record, 1, #ARGV[2] + 1) == ARGV[2] .. ' '
  and (ARGV[4] == 'released' or redis.pcall('GET', KEYS[1]) ~= ARGV[2]) then redis.call('DEL', KEYS[2]) end
redis.pcall('PUBLISH', ARGV[1], 'ended ' .. ARGV[3])
return 1`)

// run announces the leader until the term ends. It comes back regularly, because the record expires with the lock, and
// because nodes get the lock with a later renewal.
func (a *announcer) run(ctx context.Context) {
	for node := range a.election.nodes.Nodes() {
		a.election.nodes.Load(node, announceScript)
		a.election.nodes.Load(node, retractScript)
	}
	tick := time.NewTicker(a.election.ttl / 3)
	defer tick.Stop()
	for a.announce() {
		select {
		case <-tick.C:
		case <-a.stop:
			return
		case <-ctx.Done(): // the client is being closed, and releases its leases
			a.end(true)
			return
		}
	}
	a.end(false)
}

// announce tells all nodes, and returns false when the term is over.
func (a *announcer) announce() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if lease := a.lease.Value(); a.ended || lease == nil || !lease.Valid() {
		return false
	}
	e := a.election
	a.tellAll(announceScript, a.token, Leader{e.label, a.number, a.token}.record(), strconv.FormatInt(e.ttl.Milliseconds(), 10))
	return true
}

// end tells all nodes that the term is over: its lease is about to be released, or was lost or dropped.
func (a *announcer) end(released bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return
	}
	a.ended = true
	close(a.stop)
	how := ""
	if released {
		how = "released"
	}
	a.tellAll(retractScript, a.token, strconv.FormatUint(a.number, 10), how)
}

func (a *announcer) tellAll(script *access.Script, args ...string) {
	e := a.election
	for node := range e.nodes.Nodes() {
		all := append([]string{e.nodes.Channel(node, e.lockKey)}, args...)
		e.nodes.Run(node, script, []string{e.lockKey, e.leaderKey}, all)
	}
}
