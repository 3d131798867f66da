package redlock_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/audit"
	"github.com/quorumlock/redlock/audit/recorder"
)

// Clients are stopped and closed, their hooks block, clocks are wrong, and nodes fail. The oracle sees that nobody had a lock
// beside another, and so must the audit, which knows only what the clients wrote down.
func TestTheAuditOfASimulatedWorldFindsNothing(t *testing.T) {
	leases := 0
	for seed := uint64(1); seed <= uint64(fifth(150)); seed++ {
		var journals []*bytes.Buffer
		w := simulate(t, seed, "", func(cfg *redlock.Config) {
			j := &bytes.Buffer{}
			journals = append(journals, j)
			cfg.Hooks = recorder.New(j, fmt.Sprint("client ", len(journals))).Hooks(cfg.Hooks)
		})
		require.Empty(t, w.oracle.violations, "seed %d", seed)
		if w.has.forces { // a holder relies on a lock that was taken by force until it is told
			continue
		}
		var read []*audit.Journal
		for _, j := range journals {
			one, err := audit.Read("journal", j)
			require.NoError(t, err)
			read = append(read, one)
		}
		r := audit.Judge(audit.Options{ClockError: 100 * time.Microsecond}, read...) // virtual time is that of all
		leases += r.Leases
		require.Empty(t, r.Violations, "seed %d", seed)
	}
	require.Greater(t, leases, 20*fifth(150))
}
