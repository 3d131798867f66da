package main

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/sleep"
)

const (
	demoClients    = 4 // each with connections of its own, like four processes
	demoGoroutines = 2 // per client
	demoKey        = "demo/counter"

	demoMinTTL = 500 * time.Millisecond
	demoMaxTTL = time.Second

	demoPatience = 20 * time.Second // for the script to end, after --seconds
)

const demoHelp = `Starts five nodes in this process. Eight contenders in four clients increment one counter under one lock. Each
reads it, waits 1ms and writes it back. Meanwhile:

  - A holder pauses for longer than its lease, then writes. Its fencing token is too old, so the write is refused.
  - Two nodes are killed. The other three are a quorum.
  - One of them restarts without its data. It sits out a quarantine before it votes again.

At the end it prints what it checked. Exit code: 0 all checks passed, 1 a check failed, 64 usage, 128+n if signal
n ended it (130: INT).`

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
		Args:    takesNone,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !(o.seconds >= 1 && o.seconds <= 3600) { // so that NaN is refused too
				return usage("--seconds %v: give 1 to 3600", o.seconds)
			}
			return demo(cmd.Context(), o, cmd)
		},
	}
	cmd.Flags().Float64Var(&o.seconds, "seconds", 8, "how long the contenders run, at least")
	cmd.Flags().BoolVar(&o.json, "json", false, "print one JSON object at the end, and nothing else")
	return cmd
}

func demo(ctx context.Context, o *demoOptions, cmd *cobra.Command) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	f, err := fleet.Start(ctx, fleet.Embedded, fleet.Options{})
	if err != nil {
		return &exitError{exitFailed, err}
	}
	defer f.Close()

	s := newStage(f.Nodes(), time.Duration(o.seconds*float64(time.Second)))
	view := newView(cmd.OutOrStdout(), s, o.json)
	s.event = view.event
	view.opening()
	err = s.play(ctx, f, view)
	view.close()
	if err != nil && ctx.Err() == nil {
		return &exitError{exitFailed, err}
	}

	result := s.judge(ctx.Err() != nil)
	if o.json {
		err = writeJSON(cmd.OutOrStdout(), result)
	} else {
		err = view.verdict(result)
	}
	if err != nil {
		return &exitError{exitFailed, err}
	}
	return o.ending(ctx, result, cmd.ErrOrStderr())
}

// ending is how a demo ends whose result was printed.
func (o *demoOptions) ending(ctx context.Context, result verdict, stderr io.Writer) error {
	switch {
	case !result.OK && o.json: // nobody looks for the check in a long line
		say(stderr, "a check failed: %s", result.failed())
		return &exitError{exitFailed, nil}
	case !result.OK:
		return &exitError{exitFailed, nil}
	case result.Interrupted:
		return &exitError{stoppedCode(ctx), nil}
	}
	return nil
}

// play runs the contenders and the script. It ends when both the time and the script are over, or ctx ends.
func (s *stage) play(ctx context.Context, f *fleet.Fleet, view *view) (err error) {
	ctx, cancel := context.WithTimeout(ctx, s.length+demoPatience)
	var running sync.WaitGroup
	var clients []*redlock.Client
	defer func() { // also if a later client could not be made
		cancel()
		running.Wait()
		for _, c := range clients {
			err = errors.Join(err, c.Close())
		}
	}()
	for id := range demoClients {
		// All nodes use the clock of this process, so there is hardly any skew.
		client, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(f.URLs()...), TTL: s.ttl, MaxTTL: s.ttl, MaxClockSkew: s.ttl / 2})
		if err != nil {
			return err
		}
		clients = append(clients, client)
		if id == 0 { // the nodes are new: no lease can exist
			if err := enrollNew(ctx, client); err != nil {
				return err
			}
		}
		for range demoGoroutines {
			running.Go(func() { s.contend(ctx, client.Mutex(demoKey), id) })
		}
	}
	running.Go(func() { view.draw(ctx) })
	if err := s.script(ctx, clients[0]); err != nil && ctx.Err() == nil {
		return err
	}
	_ = sleep.For(ctx, time.Until(s.began.Add(s.length)))
	return nil
}

// enrollNew enrolls until ctx ends: on a busy machine, connections may take longer than Enroll waits for them.
func enrollNew(ctx context.Context, client *redlock.Client) error {
	for {
		err := client.Enroll(ctx)
		if !errors.Is(err, redlock.ErrNoQuorum) {
			return err
		}
		if sleep.For(ctx, demoPoll) != nil {
			return err
		}
	}
}
