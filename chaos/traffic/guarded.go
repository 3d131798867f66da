package traffic

import (
	"sync"

	"github.com/quorumlock/redlock/chaos/history"
)

// A Guarded is a name that is locked, and two counters that nothing but the lock guards. One of them compares
// fences: it refuses what has a smaller one than it has seen. The other takes everything.
type Guarded struct {
	Name     string
	fenced   counter
	unfenced counter
}

// NewGuarded makes one; both counters are 0.
func NewGuarded(name string) *Guarded {
	return &Guarded{Name: name, fenced: counter{fenced: true}}
}

type counter struct {
	fenced bool

	mu      sync.Mutex // guards the rest, and that what is recorded is in the order in which it happened
	value   int64
	highest uint64
}

// read notes the fence too: else a stale write could come between another's read and write.
func (c *counter) read(l *Log, e history.Event) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.highest = max(c.highest, e.Fence)
	e.Kind, e.Fenced, e.Value = history.Read, c.fenced, c.value
	l.Add(e)
	return c.value
}

// write sends a value and says whether it was taken.
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
