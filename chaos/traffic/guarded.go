package traffic

import (
	"sync"

	"github.com/quorumlock/redlock/chaos/history"
	"github.com/quorumlock/redlock/chaos/subject"
)

// A Guarded is a lock name and two counters that only the lock protects. One of them compares fencing tokens: it
// refuses a write with a smaller token than it has seen. The other accepts every write.
type Guarded struct {
	Name     string
	fenced   counter
	unfenced counter
}

// NewGuarded returns a Guarded whose counters are 0.
func NewGuarded(name string) *Guarded {
	return &Guarded{Name: name, fenced: counter{fenced: true}}
}

// read reads both counters for the op of this event, and returns their values: of the fenced one first. If others may
// hold the lock too, they neither compare nor keep the fencing token, because all of these are right.
func (g *Guarded) read(l *Log, e history.Event, w subject.Want) [2]int64 {
	if w.IsShared() {
		e.Fence = 0
	}
	return [2]int64{g.fenced.read(l, e), g.unfenced.read(l, e)}
}

// requested is the event of an acquire that wants this of the lock.
func (g *Guarded) requested(client int, op uint64, w subject.Want) history.Event {
	e := history.Event{Kind: history.Acquire, Client: client, Op: op, Resource: g.Name, Permits: w.Permits}
	if w.Reader {
		e.Role = history.Reader
	}
	return e
}

type counter struct {
	fenced bool

	mu      sync.Mutex // guards the rest, and that events are recorded in the order in which they happen
	value   int64
	highest uint64 // the largest fencing token seen
}

// read notes the fencing token too. Otherwise a stale write could come between the read and the write of another
// holder.
func (c *counter) read(l *Log, e history.Event) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.highest = max(c.highest, e.Fence)
	e.Kind, e.Fenced, e.Value = history.Read, c.fenced, c.value
	l.Add(e)
	return c.value
}

// write sends a value and reports whether it was accepted.
func (c *counter) write(l *Log, e history.Event, value int64) bool {
	e.Kind, e.Fenced, e.Value = history.Write, c.fenced, value
	l.Add(e)
	c.mu.Lock()
	defer c.mu.Unlock()
	e.Kind, e.OK = history.Written, !c.fenced || e.Fence >= c.highest
	if e.OK {
		c.highest = max(c.highest, e.Fence)
		c.value = value
	}
	l.Add(e)
	return e.OK
}
