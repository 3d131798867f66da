package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorumlock/redlock"
)

// clientFlags are the flags of every command that talks to nodes: where they are, and the client's
// configuration. What is not given is left to what the nodes have agreed.
type clientFlags struct {
	nodes, nodesFile string
	prefix           string
	ttl              time.Duration
	maxTTL           time.Duration
	nodeTimeout      time.Duration
	durable, noFence bool
	json             bool

	embedded bool // the nodes are of this process, new and empty
}

const (
	usualTTL    = 10 * time.Second
	usualMaxTTL = 30 * time.Second
)

func (f *clientFlags) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	// The environment is not the flag's default: --help would print the passwords in it.
	flags.StringVar(&f.nodes, "nodes", "",
		"URLs of the nodes, separated by commas, or \"embedded\" (default $"+nodesEnv+")")
	flags.StringVar(&f.nodesFile, "nodes-file", "",
		"read the URLs from this file, or - for standard input: there no ps shows the passwords in them")
	flags.StringVar(&f.prefix, "prefix", "", "what comes before every lock key; Config.Prefix")
	flags.DurationVar(&f.ttl, "ttl", 0,
		"length of a lease, renewed at a third of it; at most --max-ttl (default 10s, or --max-ttl where that is less)")
	flags.DurationVar(&f.maxTTL, "max-ttl", 0,
		"the longest lease of any client of these nodes; the same in all of them (default 30s)")
	flags.DurationVar(&f.nodeTimeout, "node-timeout", 0,
		"one node's time to answer (default 250ms, or a quarter of --ttl where that is less)")
	flags.BoolVar(&f.durable, "durable", false, "every node persists before it answers; Config.Durable")
	flags.BoolVar(&f.noFence, "no-fence", false, "without fencing tokens; Config.NoFence")
	flags.BoolVar(&f.json, "json", false, `print one JSON line, also on failure: {"error": …, "kind": "held" …}`)
}

// check holds for what can be told without any node.
func (f *clientFlags) check() error {
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{{"--ttl", f.ttl}, {"--max-ttl", f.maxTTL}, {"--node-timeout", f.nodeTimeout}} {
		if d.value < 0 {
			return usage("%s %v is negative", d.flag, d.value)
		}
	}
	return nil
}

// leaseTTL is the length of a lease where the longest is this; 0: as usual.
func (f *clientFlags) leaseTTL(longest time.Duration) time.Duration {
	switch {
	case f.ttl != 0:
		return f.ttl
	case longest != 0:
		return min(usualTTL, longest)
	}
	return usualTTL
}

// config is the client's configuration.
func (f *clientFlags) config(ctx context.Context, nodes []redlock.Node, hooks redlock.Hooks) (redlock.Config, error) {
	if err := f.check(); err != nil {
		return redlock.Config{}, err
	}
	cfg := redlock.Config{Nodes: nodes, Prefix: f.prefix, MaxTTL: f.maxTTL, NodeTimeout: f.nodeTimeout,
		Durable: f.durable, NoFence: f.noFence, Hooks: hooks}
	if !f.embedded {
		var err error
		// Where no node answers, none has agreed on anything: what is done next says so, or waits.
		if cfg, err = agreed(ctx, cfg); err != nil && !errors.Is(err, redlock.ErrNoQuorum) {
			return cfg, failure(err)
		}
	}
	cfg.TTL = f.leaseTTL(cfg.MaxTTL)
	return cfg, nil
}

// agreed fills in what the nodes have agreed and the flags leave open.
func agreed(ctx context.Context, cfg redlock.Config) (redlock.Config, error) {
	return redlock.AgreedConfig(ctx, cfg)
}

// connect makes a client of the nodes.
func (f *clientFlags) connect(ctx context.Context, nodes []redlock.Node, hooks redlock.Hooks) (*redlock.Client, error) {
	cfg, err := f.config(ctx, nodes, hooks)
	if err != nil {
		return nil, err
	}
	return f.start(ctx, cfg)
}

// start makes the client, and enrolls nodes that openNodes has just started: no lease can be out on them.
func (f *clientFlags) start(ctx context.Context, cfg redlock.Config) (*redlock.Client, error) {
	client, err := redlock.New(cfg)
	if err != nil {
		return nil, failure(err)
	}
	if f.embedded {
		if err := client.Enroll(ctx); err != nil {
			client.Close()
			return nil, failure(err)
		}
	}
	return client, nil
}

// open connects to the nodes. They keep running until done is called, if they are our own.
func (f *clientFlags) open(ctx context.Context) (client *redlock.Client, done func(), err error) {
	if err := f.check(); err != nil {
		return nil, nil, err
	}
	nodes, closeNodes, err := f.openNodes(ctx)
	if err != nil {
		return nil, nil, err
	}
	client, err = f.connect(ctx, nodes, redlock.Hooks{})
	if err != nil {
		closeNodes()
		return nil, nil, err
	}
	return client, func() { client.Close(); closeNodes() }, nil
}

// plural is "1 node", "2 nodes".
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
