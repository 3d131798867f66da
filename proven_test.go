package redlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// leasedOn3 is a lease of ten seconds on three nodes that are away: the test answers for them. The first two are proven.
func leasedOn3(t *testing.T, left time.Duration) *ownership {
	c, err := New(Config{Nodes: Nodes("redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	o := &ownership{client: c, lock: c.Mutex("x").spec, tokenArg: "token", written: c.cfg.Clock.Now(), place: -1, leases: 1}
	o.until.Store(int64(o.written.Add(left)))
	o.had.Store(0b111)
	o.proven.Store(0b011)
	return o
}

// C2, R2: The clock of a node that took the key is read so badly that a winner would have to wait for two seconds. The lease
// relies on that node only if it is valid for longer without it.
func TestARenewalThatNeedsANodeThatTookTheKeyWaitsForItsClock(t *testing.T) {
	const wait = 2 * time.Second
	for name, c := range map[string]struct {
		left    time.Duration
		proven  nodeSet
		answers []int
		renewed bool
	}{
		"the lease lasts longer":           {wait + time.Second, 0b011, []int{0, 2}, true},
		"the lease ends before":            {wait - time.Second, 0b011, []int{0, 2}, false},
		"it was proven before":             {wait - time.Second, 0b111, []int{0, 2}, true},
		"it is not needed":                 {wait - time.Second, 0b011, []int{0, 1, 2}, true},
		"a later answer makes it needless": {wait - time.Second, 0b011, []int{0, 2, 1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := leasedOn3(t, c.left)
			o.proven.Store(uint64(c.proven))
			band := o.client.cfg.band(o.lock.ttl)
			r := o.client.renew(o)
			before := o.validUntil()
			for _, node := range c.answers {
				a := answer{vote: granted}
				if node == 2 {
					a.clock = span{high: (band + wait).Microseconds(), loose: true}
				}
				r.record(node, a)
			}
			require.Equal(t, c.renewed, o.validUntil() > before)
			require.Equal(t, !c.renewed, r.tooLate.Load())
			require.Equal(t, c.renewed, o.provenAt().has(2))
			require.NoError(t, o.cause())
			if !c.renewed {
				require.ErrorIs(t, o.renewalError(r, ErrNoQuorum), ErrNoQuorum)
				require.Less(t, o.renewAt, o.validUntil(), "it tries again")
			}
		})
	}
}
