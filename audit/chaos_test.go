package audit_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/audit"
	"github.com/quorumlock/redlock/chaos/check"
	"github.com/quorumlock/redlock/chaos/history"
)

// journalsOf has each client of a chaos run write a journal, by a wall clock that is wrong.
func journalsOf(events []history.Event, random *rand.Rand, most time.Duration) (journals []*writer) {
	clients, acquires, over := map[int]*writer{}, map[uint64]history.Event{}, map[uint64]int64{}
	for _, e := range events {
		if e.Until > 0 {
			over[e.Op] = e.Until
		}
	}
	for _, e := range events {
		at := time.Duration(e.At)
		if e.Kind == history.Acquire {
			acquires[e.Op] = e
		}
		if e.Client == 0 || acquires[e.Op].Op == 0 {
			continue
		}
		w := clients[e.Client]
		if w == nil {
			w = newWriter(fmt.Sprint("client ", e.Client), time.Duration(random.Int64N(int64(2*most)+1))-most, 0)
			clients[e.Client] = w
			journals = append(journals, w)
		}
		asked := acquires[e.Op]
		lease := fmt.Sprint(e.Op)
		switch e.Kind {
		case history.Granted:
			w.add(at, audit.Event{Kind: audit.Acquired, Lease: lease, Names: []string{asked.Resource}, Fence: e.Fence,
				Asked: asked.At, AskedWall: epoch.Add(time.Duration(asked.At) + w.off),
				Reader: asked.Role == history.Reader})
		case history.Read, history.Write:
			if until, known := over[e.Op]; !known || e.At <= until { // else its client was stopped, and did not know
				w.add(at, audit.Event{Kind: audit.Valid, Lease: lease, Reader: asked.Role == history.Reader})
			}
		case history.Release, history.Lost:
			kind := map[history.Kind]audit.Kind{history.Release: audit.Released, history.Lost: audit.Lost}[e.Kind]
			if e.Until > 0 {
				at = min(at, time.Duration(e.Until))
			}
			w.add(at, audit.Event{Kind: kind, Lease: lease})
		}
	}
	return journals
}

// The judge of chaos runs has one clock for all, and other code. It must agree with what the audit says: always, if the clocks
// are right; and that there is a violation, if they are wrong.
func TestTheAuditAgreesWithTheJudgeOfChaosRuns(t *testing.T) {
	histories := map[string][]history.Event{}
	files, err := filepath.Glob("../chaos/check/testdata/*.jsonl")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		histories[filepath.Base(file)], err = history.ReadAll(bytes.NewReader(text))
		require.NoError(t, err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	overlaps := 0
	for name, events := range histories {
		want, err := check.Judge(events)
		require.NoError(t, err, name)
		kinds := map[check.ViolationKind]bool{}
		for _, v := range want.Violations {
			kinds[v.Kind] = true
		}
		right := judgeWith(t, time.Nanosecond, journalsOf(events, random, 0)...)
		require.Equal(t, kinds[check.Overlap], right.Counts[audit.Overlap] > 0, "%s: %+v", name, right.Violations)
		require.Equal(t, kinds[check.FenceDuplicate], right.Counts[audit.FenceDuplicate] > 0, "%s: %+v", name, right.Violations)
		require.Equal(t, kinds[check.FenceInversion], right.Counts[audit.FenceInversion] > 0, "%s: %+v", name, right.Violations)
		wrong := judge(t, journalsOf(events, random, clockError)...)
		overlaps += right.Counts[audit.Overlap]
		for kind := range wrong.Counts {
			require.Contains(t, kinds, check.ViolationKind(kind), "%s: %+v", name, wrong.Violations)
		}
	}
	require.Positive(t, overlaps)
}
