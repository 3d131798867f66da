package redlock_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/audit"
	"github.com/quorumlock/redlock/audit/recorder"
)

// A diary is what a client of a world writes down.
type diary struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (j *diary) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(line)
}

// Clients are stopped and closed, their hooks block, clocks are wrong, and nodes fail. The oracle sees that nobody had a lock
// beside another, and so must the audit, which knows only what the clients wrote down.
func TestTheAuditOfASimulatedWorldFindsNothing(t *testing.T) {
	leases := 0
	for seed := uint64(1); seed <= uint64(fifth(150)); seed++ {
		var journals []*diary
		var w *world
		synctest.Test(t, func(t *testing.T) {
			w = newWorld(seed, "")
			w.change = append(w.change, func(cfg *redlock.Config) {
				j := &diary{}
				journals = append(journals, j)
				cfg.Hooks = recorder.New(j, fmt.Sprint("client ", len(journals))).Hooks(cfg.Hooks)
			})
			run := w.run
			if w.has.ordered {
				run = w.runFair
			}
			require.NoError(t, run(), "seed %d", seed)
		})
		require.Empty(t, w.oracle.violations, "seed %d", seed)
		if w.has.forces { // a holder relies on a lock that was taken by force until it is told
			continue
		}
		var read []*audit.Journal
		for _, j := range journals {
			one, err := audit.Read("journal", &j.text)
			require.NoError(t, err)
			read = append(read, one)
		}
		r := audit.Judge(audit.Options{ClockError: 100 * time.Microsecond}, read...) // virtual time is that of all
		leases += r.Leases
		require.Empty(t, r.Violations, "seed %d", seed)
	}
	require.Greater(t, leases, 20*fifth(150))
}
