package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
)

const (
	demoClients    = 4 // each as a program of its own would be
	demoGoroutines = 2 // of each client
	demoTTL        = 2 * time.Second
	demoKey        = "demo/counter"
)

const demoHelp = `Starts five nodes in this process. Eight contenders in four clients raise one counter, which only the lock
guards: each reads it, waits a little and writes it. Meanwhile two nodes are killed, and one of them comes back.

Ends with what was checked, and exits 0 only if all of it held: 1 if not, 130 if it was interrupted.`

type demoOptions struct {
	seconds float64
	json    bool
}

func newDemo() *cobra.Command {
	o := &demoOptions{}
	cmd := &cobra.Command{
		Use:     "demo",
		Short:   "Watch a lock hold while nodes die",
		Long:    demoHelp,
		Example: "  redlock demo\n  redlock demo --seconds 3 --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !(o.seconds >= 1 && o.seconds <= 3600) { // so that NaN is refused too
				return usage("--seconds %v: give 1 to 3600", o.seconds)
			}
			return demo(cmd.Context(), o, cmd)
		},
	}
	cmd.Flags().Float64Var(&o.seconds, "seconds", 8, "how long the contenders run")
	cmd.Flags().BoolVar(&o.json, "json", false, "print one JSON object at the end, and nothing else")
	return cmd
}

func demo(ctx context.Context, o *demoOptions, cmd *cobra.Command) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	f, err := fleet.Start(ctx, fleet.Embedded, fleet.Options{})
	if err != nil {
		return &exitError{exitFailed, err}
	}
	defer f.Close()

	s := &stage{nodes: f.Nodes(), length: time.Duration(o.seconds * float64(time.Second)), began: time.Now()}
	view := newView(cmd.OutOrStdout(), s, o.json)
	s.event = view.event
	err = s.play(ctx, f, view)
	view.close()
	if err != nil {
		return &exitError{exitFailed, err}
	}

	result := s.judge(ctx.Err() != nil)
	if o.json {
		err = writeJSON(cmd.OutOrStdout(), result)
	} else {
		err = view.verdict(result)
	}
	switch {
	case err != nil:
		return &exitError{exitFailed, err}
	case !result.OK:
		return &exitError{exitFailed, nil}
	case result.Interrupted:
		return &exitError{exitSignal + int(syscall.SIGINT), nil}
	}
	return nil
}

// play runs the contenders and the script of the faults until the time is over or ctx ends.
func (s *stage) play(ctx context.Context, f *fleet.Fleet, view *view) (err error) {
	ctx, cancel := context.WithTimeout(ctx, s.length)
	defer cancel()
	var ended []<-chan struct{}
	var clients []*redlock.Client
	defer func() { // also where a later client could not be made
		cancel()
		for _, done := range ended {
			<-done
		}
		for _, c := range clients {
			err = errors.Join(err, c.Close())
		}
	}()
	for id := range demoClients {
		client, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(f.URLs()...), TTL: demoTTL, MaxTTL: demoTTL})
		if err != nil {
			return err
		}
		clients = append(clients, client)
		if id == 0 { // the nodes are new: no lease can be out on them
			if err := client.Enroll(ctx); err != nil {
				return err
			}
		}
		for range demoGoroutines {
			done := make(chan struct{})
			ended = append(ended, done)
			go func() {
				defer close(done)
				s.contend(ctx, client.Mutex(demoKey), id)
			}()
		}
	}
	drawn := make(chan struct{})
	ended = append(ended, drawn)
	go func() {
		defer close(drawn)
		view.draw(ctx)
	}()
	return s.hurt(ctx)
}

// hurt kills two nodes and starts one of them again, at fixed parts of the whole time.
//
// It comes back empty, and so with a vote forgotten that a lease may rest on: the quarantine keeps it from
// granting until that lease is over.
func (s *stage) hurt(ctx context.Context) error {
	a, b := s.nodes[0], s.nodes[1]
	script := []struct {
		at   float64
		what string
		do   func() error
	}{
		{0.25, "killed", a.Kill},
		{0.45, "killed", b.Kill},
		{0.75, "restarted empty", func() error { return a.Start(ctx, fleet.Empty) }},
	}
	for i, step := range script {
		node := a
		if i == 1 {
			node = b
		}
		if !sleep(ctx, time.Until(s.began.Add(time.Duration(step.at*float64(s.length))))) {
			return nil
		}
		if err := step.do(); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("%s %s: %w", node.Name(), step.what, err)
		}
		s.note(node.Name(), step.what)
	}
	<-ctx.Done()
	return nil
}

// sleep reports whether it slept to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
