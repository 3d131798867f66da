// Package recorder writes a journal of the leases of a process, which package audit and redlock audit judge.
//
//	file, err := os.OpenFile("/var/log/orders/leases.jsonl", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
//	…
//	leases := recorder.New(file, "")
//	client, err := redlock.New(redlock.Config{Nodes: nodes, Hooks: leases.Hooks(redlock.Hooks{})})
//	…
//	leases.Watch(client)
//
// A lease takes two lines or more, of about 300 bytes each: when it was acquired, at each renewal, and when it ended. There is
// no owner token in them, which would be a secret, but a hash of it.
package recorder

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/audit"
)

// A Recorder writes the journal of a process. Several clients can share it. Its methods are safe for concurrent use.
type Recorder struct {
	start time.Time // with a reading of the monotonic clock
	id    string    // of this Recorder, in each line

	mu      sync.Mutex // guards the rest, and what is written
	w       io.Writer
	err     error // of the first write that failed; nothing is written after it
	clients []watched
}

// A watched client may drop calls of hooks. told is how many the journal says.
type watched struct {
	client *redlock.Client
	told   uint64
}

// New returns a Recorder that writes to w, with one call for each line, and does not close it. process is what people call the
// process; "" is its host and process id. What w has already stays valid, and other processes may write to it too: so give it a
// file that is opened to append.
//
// Hooks run on a goroutine of their own, so no lock waits for w. But a client drops calls of hooks if very many queue behind a
// slow one. [Recorder.Watch] has the journal say so.
func New(w io.Writer, process string) *Recorder {
	if process == "" {
		host, _ := os.Hostname() // without one, the id has to do
		process = host + ":" + strconv.Itoa(os.Getpid())
	}
	r := &Recorder{start: time.Now(), id: rand.Text()[:13], w: w} // 65 bits
	r.mu.Lock()
	defer r.mu.Unlock()
	_, r.err = w.Write([]byte("\n")) // an earlier process may have crashed as it wrote a line
	r.write(audit.Event{Kind: audit.Start, Version: audit.Version, Process: process}, r.start)
	return r
}

// Hooks returns hooks for a client that record its leases and call the given ones.
func (r *Recorder) Hooks(hooks redlock.Hooks) redlock.Hooks {
	traced, lost := hooks.Traced, hooks.Lost
	hooks.Traced = func(ctx context.Context, op redlock.Operation) {
		r.operation(op)
		if traced != nil {
			traced(ctx, op)
		}
	}
	hooks.Lost = func(l redlock.LeaseInfo, err error) {
		r.record(audit.Event{Kind: audit.Lost, Error: err.Error()}, l)
		if lost != nil {
			lost(l, err)
		}
	}
	return hooks
}

// Watch has the journal say how many calls of hooks the client has dropped. It looks whenever something is recorded, and in
// [Recorder.Err].
func (r *Recorder) Watch(client *redlock.Client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients = append(r.clients, watched{client: client})
}

// Err returns the first error of a write. Nothing was recorded after it. Call it after Client.Close, and whenever you like.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sayMissed()
	return r.err
}

// operation records a call that has ended. An acquisition or renewal that failed says nothing about a lease; nor does a Detach
// that failed, whose lease may be what it was before.
func (r *Recorder) operation(op redlock.Operation) {
	e := audit.Event{}
	switch {
	case op.Op == "release":
		e.Kind = audit.Released
	case op.Err != nil:
		return
	case op.Op == "acquire" || op.Op == "adopt":
		e.Kind, e.Names, e.Fence = audit.Acquired, op.Lease.Names, op.Lease.Fence
		e.Permits, e.Of = op.Lease.Permits, op.Lease.Of
		e.Asked, e.AskedWall = r.since(op.Begun), op.Begun.Round(0).UTC()
	case op.Op == "extend":
		e.Kind = audit.Valid
	case op.Op == "detach":
		e.Kind = audit.Released
	default:
		return
	}
	r.record(e, op.Lease)
}

// record adds an event of a lease.
func (r *Recorder) record(e audit.Event, l redlock.LeaseInfo) {
	hash := sha256.Sum256([]byte(l.Token))
	e.Lease, e.Left, e.Reader = hex.EncodeToString(hash[:8]), int64(l.Left), l.Reader
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sayMissed()
	r.write(e, l.At)
}

// sayMissed says what watched clients have dropped since. r.mu is held.
func (r *Recorder) sayMissed() {
	for i := range r.clients {
		c := &r.clients[i]
		if dropped := c.client.Dropped(); dropped > c.told {
			r.write(audit.Event{Kind: audit.Missed, Count: dropped - c.told}, time.Now())
			c.told = dropped
		}
	}
}

// write writes an event that is about this moment. r.mu is held.
func (r *Recorder) write(e audit.Event, at time.Time) {
	if r.err != nil {
		return
	}
	e.By, e.At, e.Wall = r.id, r.since(at), at.Round(0).UTC()
	line, err := json.Marshal(e)
	if err == nil {
		_, err = r.w.Write(append(line, '\n'))
	}
	r.err = err
}

// since is by the monotonic clock.
func (r *Recorder) since(t time.Time) int64 { return int64(t.Sub(r.start)) }
