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
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/audit"
)

// A Recorder writes the journal of a process. Several clients can share it if they share their locks: the same nodes, and the
// same [redlock.Config.Prefix]. Its methods are safe for concurrent use.
type Recorder struct {
	start time.Time             // with a reading of the monotonic clock
	id    string                // of this Recorder, in each line
	first atomic.Pointer[error] // of a write that failed

	mu     sync.Mutex // guards the rest, and what is written
	w      io.Writer
	missed uint64 // events that could not be written, of which the journal says nothing yet

	watching sync.Mutex // guards clients; nothing is written under it
	clients  []watched
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
// Hooks run on a goroutine of their own, so no lock waits for w. Other hooks and the log of the client do. And a client drops
// calls of hooks if very many queue behind a slow one: [Recorder.Watch] has the journal say so.
//
// A Recorder opens no files. Where a file is renamed, as by logrotate, it goes on in the renamed one. Give it a writer that
// rotates its file, or a new process a new name.
func New(w io.Writer, process string) *Recorder {
	if process == "" {
		host, _ := os.Hostname() // without one, the id has to do
		process = host + ":" + strconv.Itoa(os.Getpid())
	}
	r := &Recorder{start: time.Now(), id: rand.Text()[:13], w: w} // 65 bits
	r.mu.Lock()
	defer r.mu.Unlock()
	// An earlier process may have crashed as it wrote a line.
	r.write([]byte("\n"), audit.Event{Kind: audit.Start, Version: audit.Version, Process: process}, r.start)
	return r
}

// Hooks returns hooks for a client that record its leases and call the given ones.
func (r *Recorder) Hooks(hooks redlock.Hooks) redlock.Hooks {
	acquired, extended, released, lost := hooks.Acquired, hooks.Extended, hooks.Released, hooks.Lost
	hooks.Acquired = func(l redlock.LeaseInfo, waited time.Duration, attempts int) {
		asked := l.At.Add(-waited)
		r.record(audit.Event{Kind: audit.Acquired, Names: namesOf(l), Fence: l.Fence, Permits: l.Permits, Of: l.Of,
			Asked: r.since(asked), AskedWall: asked.Round(0).UTC()}, l)
		if acquired != nil {
			acquired(l, waited, attempts)
		}
	}
	hooks.Extended = func(l redlock.LeaseInfo, left, took time.Duration) {
		r.record(audit.Event{Kind: audit.Valid}, l)
		if extended != nil {
			extended(l, left, took)
		}
	}
	hooks.Released = func(l redlock.LeaseInfo, err error) {
		r.record(audit.Event{Kind: audit.Released}, l)
		if released != nil {
			released(l, err)
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
// [Recorder.Close].
func (r *Recorder) Watch(client *redlock.Client) {
	r.watching.Lock()
	defer r.watching.Unlock()
	r.clients = append(r.clients, watched{client: client})
}

// Missed has the journal say that so many more events are not in it. It is for a w that takes lines and writes them later.
func (r *Recorder) Missed(events uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missed += events
}

// Close has the journal say what is missing, and returns what Err does. Call it after Client.Close. It does not close w.
func (r *Recorder) Close() error {
	r.mu.Lock()
	r.sayMissed()
	r.mu.Unlock()
	return r.Err()
}

// Err returns the first error of a write, and waits for none. If a later write did not fail, the journal says how many events
// are missing.
func (r *Recorder) Err() error {
	if err := r.first.Load(); err != nil {
		return *err
	}
	return nil
}

// namesOf are the names as JSON can tell them apart: it has no way to write what is not UTF-8.
func namesOf(l redlock.LeaseInfo) []string {
	if !slices.ContainsFunc(l.Names, func(name string) bool { return !utf8.ValidString(name) }) {
		return l.Names
	}
	names := slices.Clone(l.Names)
	for i, name := range names {
		if !utf8.ValidString(name) {
			names[i] = strconv.Quote(name)
		}
	}
	return names
}

// record adds an event of a lease.
func (r *Recorder) record(e audit.Event, l redlock.LeaseInfo) {
	hash, left := sha256.Sum256([]byte(l.Token)), int64(l.Left)
	e.Lease, e.Held, e.Left, e.Reader = hex.EncodeToString(hash[:8]), int64(l.Held), &left, l.Reader
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sayMissed()
	if !r.write(nil, e, l.At) {
		r.missed++
	}
}

// sayMissed says what could not be written, and what watched clients have dropped, since. r.mu is held.
func (r *Recorder) sayMissed() {
	r.watching.Lock()
	for i := range r.clients {
		c := &r.clients[i]
		dropped := c.client.Dropped()
		r.missed, c.told = r.missed+dropped-c.told, dropped
	}
	r.watching.Unlock()
	if r.missed > 0 && r.write([]byte("\n"), audit.Event{Kind: audit.Missed, Count: r.missed}, time.Now()) {
		r.missed = 0
	}
}

// write writes an event that is about this moment, after something else, and reports whether it did. r.mu is held.
func (r *Recorder) write(after []byte, e audit.Event, at time.Time) bool {
	e.By, e.At, e.Wall = r.id, r.since(at), at.Round(0).UTC()
	line := bytes.NewBuffer(after)
	text := json.NewEncoder(line)
	text.SetEscapeHTML(false)
	err := text.Encode(e)
	if err == nil {
		_, err = r.w.Write(line.Bytes())
	}
	if err != nil {
		r.first.CompareAndSwap(nil, &err)
	}
	return err == nil
}

// since is by the monotonic clock.
func (r *Recorder) since(t time.Time) int64 { return int64(t.Sub(r.start)) }
