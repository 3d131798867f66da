package main

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/chaos/scenario"
	"github.com/quorumlock/redlock/chaos/subject"
)

// A crowd is a lock that everybody gets. Its holders wait until there are so many; then full is called.
type crowd struct {
	subject.Single
	many int64
	had  atomic.Int64
	all  chan struct{}
	full func()
}

func (s *crowd) Open(context.Context, subject.Options) (subject.Client, error) {
	return crowdClient{s}, nil
}

type crowdClient struct{ of *crowd }

func (c crowdClient) Acquire(context.Context, string) (subject.Lease, error) {
	return &crowdLease{of: c.of}, nil
}

func (crowdClient) Close() error { return nil }

type crowdLease struct {
	of   *crowd
	once sync.Once
}

// Valid is asked when the grant is recorded.
func (l *crowdLease) Valid() bool {
	l.once.Do(func() {
		if l.of.had.Add(1) == l.of.many {
			l.of.full()
			close(l.of.all)
		}
	})
	<-l.of.all
	return true
}

func (*crowdLease) Lost() <-chan struct{}         { return nil }
func (*crowdLease) Fence() uint64                 { return 0 }
func (*crowdLease) Token() string                 { return "" }
func (*crowdLease) Release(context.Context) error { return nil }

// What was recorded before a signal is judged, and a violation in it counts more than the signal.
func TestAnInterruptedRunEndsAsWhatItRecordedUntilThen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		holders       int64
		code          int
		verdict, kind string
	}{{1, 143, "unsure", "interrupted"}, {2, 1, "unsafe", ""}} {
		ctx, cancel := context.WithCancelCause(t.Context())
		play, err := scenario.ByName("control")
		require.NoError(t, err)
		o := &chaosOptions{
			fleet: "embedded", beside: "none", nodes: 1, clients: int(c.holders), seconds: 60, ttl: 1e9, seed: 1, json: true,
			plays: []scenario.Scenario{play},
			locks: &crowd{many: c.holders, all: make(chan struct{}), full: func() { cancel(&stopSignal{syscall.SIGTERM}) }},
		}
		var out, errs bytes.Buffer
		cmd := &cobra.Command{}
		cmd.SetContext(ctx)
		cmd.SetOut(&out)
		cmd.SetErr(&errs)
		require.Equal(t, &exitError{c.code, nil}, o.run(cmd), errs.String())
		var r struct {
			jsonFailure
			Interrupted bool
			Runs        []struct{ Verdict, Error string }
		}
		require.NoError(t, json.Unmarshal(out.Bytes(), &r), out.String())
		require.True(t, r.Interrupted)
		require.Equal(t, c.kind, r.Kind)
		require.Equal(t, c.kind != "", r.Error == "interrupted by SIGTERM", out.String())
		require.Len(t, r.Runs, 1)
		require.Equal(t, "interrupted by SIGTERM", r.Runs[0].Error)
		require.Equal(t, c.verdict, r.Runs[0].Verdict)
	}
}
