package election

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/access"
)

// Options are how this process takes part in an election. The zero Options are useful.
type Options struct {
	// Label says who this process is. Observers learn it while the process leads. Up to 256 bytes, so an address fits.
	// Default: the host name and the process id, as in "web-3/4711".
	Label string
	// TTL is how long others wait when a leader has died. Default: Config.TTL of the client. See
	// [redlock.Lock.WithTTL].
	TTL time.Duration
	// Poll is how often an observer asks the nodes, beside hearing messages; a random quarter sooner or later. Each time
	// costs each node some six commands. Default 1s. At least 10ms; more than a day counts as a day.
	Poll time.Duration
}

const (
	maxLabel    = 256 // bytes
	defaultPoll = time.Second
	minPoll     = 10 * time.Millisecond
	maxPoll     = 24 * time.Hour
)

// An Election is one election, as this process sees it. It holds nothing, and needs no Close. It is safe for concurrent
// use. Get one from [New]; to use the zero Election is [redlock.ErrInvalid].
type Election struct {
	client *redlock.Client
	nodes  access.Client
	name   string
	label  string
	lock   redlock.Lock
	ttl    time.Duration
	poll   time.Duration
	err    error // why the election cannot be used; nil if it can

	lockKey, leaderKey string
}

// New returns the election with this name. All processes that use the name on the same nodes take part in it or can
// observe it. With [redlock.Sharded], the client is that of the name's group. A name is that of a lock
// ([redlock.Client.Mutex]). A name or options that are not allowed show as [redlock.ErrInvalid] when the election is
// used; a TTL only in Campaign and Run, because those who only observe need none.
func New(client *redlock.Client, name string, options Options) *Election {
	e := &Election{client: client, nodes: access.Of(client), name: name, label: options.Label, poll: options.Poll,
		lock: client.Mutex(name)}
	if e.label == "" {
		host, _ := os.Hostname() // without a name, the process id has to do
		e.label = fmt.Sprintf("%.240s/%d", host, os.Getpid())
	}
	e.ttl = e.nodes.TTL()
	if options.TTL != 0 {
		e.ttl = options.TTL
		e.lock = e.lock.WithTTL(e.ttl)
	}
	if e.poll == 0 {
		e.poll = defaultPoll
	}
	e.poll = min(e.poll, maxPoll) // the longest durations, for never, overflow when an observer adds chance to them
	e.lockKey, e.leaderKey, e.err = e.nodes.Keys(name)
	switch {
	case e.err != nil:
	case len(e.label) > maxLabel:
		e.err = fmt.Errorf("%w: Options.Label: it has %d bytes, more than the %d allowed", redlock.ErrInvalid, len(e.label), maxLabel)
	case e.poll < minPoll:
		e.err = fmt.Errorf("%w: Options.Poll: %v is below %v", redlock.ErrInvalid, e.poll, minPoll)
	}
	return e
}

// check returns why the election cannot be used; nil: it can.
func (e *Election) check() error {
	if e.client == nil {
		return fmt.Errorf("%w: Election: it is the zero Election; get one from New", redlock.ErrInvalid)
	}
	return e.err
}

// Campaign waits until this process leads, or until ctx ends. ctx bounds only the wait, not the term. Its errors are
// those of [redlock.Lock.Acquire]: if ctx ends, ctx.Err(), joined with what was in the way; [redlock.ErrClosed];
// [redlock.ErrInvalid], also if ctx carries the lease of a term of this election.
//
// Several goroutines of one process may campaign. Each is a candidate of its own.
func (e *Election) Campaign(ctx context.Context) (*Term, error) {
	if err := e.check(); err != nil {
		return nil, err
	}
	lease, err := e.lock.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return newTerm(e, lease), nil
}

// Run campaigns again and again, and calls fn each time this process leads. fn's context has the values of ctx and
// carries the lease. It ends when ctx ends or the term does. When fn has returned or panicked, Run resigns. Then:
//
//   - If ctx has ended, Run returns ctx.Err(), or fn's error if there is one.
//   - If the term was lost before fn returned, Run campaigns again, whatever fn returned.
//   - If fn returned an error, Run returns it.
//   - If fn returned nil, Run campaigns again. Other candidates that wait come first.
//
// Run also returns an error of [Election.Campaign].
func (e *Election) Run(ctx context.Context, fn func(ctx context.Context, term *Term) error) error {
	for {
		term, err := e.Campaign(ctx)
		if err != nil {
			return err
		}
		lost, err := term.serve(ctx, fn)
		switch {
		case ctx.Err() != nil && err == nil:
			return ctx.Err()
		case ctx.Err() != nil, err != nil && !lost:
			return err
		}
	}
}
