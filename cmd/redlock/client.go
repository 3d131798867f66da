package main

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/access"
)

// clientFlags are the flags of every command that talks to nodes: their addresses, and the configuration of the client.
// If a flag is not given, the configuration that is stored on the nodes decides.
type clientFlags struct {
	nodes, nodesFile string
	prefix           string
	ttl              time.Duration
	maxTTL           time.Duration
	nodeTimeout      time.Duration
	durable, noFence bool
	owner            string
	json             bool
	loginFlags

	given    func(flag string) bool // it was given, whatever its value; set by flags
	list     []nodeText             // as written; set by openNodes
	quorum   int                    // how many votes a lock takes; set by config
	before   string                 // what is before every lock key: --prefix, or what the nodes hold; set by config
	untold   error                  // why it is not known what the nodes hold; set by config
	looks    bool                   // the command decides no configuration: where the nodes hold none and no --max-ttl is given, it only looks
	embedded bool                   // the nodes run in this process, new and empty
}

const (
	usualTTL    = 10 * time.Second
	usualMaxTTL = 30 * time.Second
)

func (f *clientFlags) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.given = flags.Changed
	// The environment variable is not the default of the flag, because --help would print its passwords.
	flags.StringVar(&f.nodes, "nodes", "",
		"`URLS` of the nodes, separated by commas, or \"embedded\" (default $"+nodesEnv+")")
	flags.StringVar(&f.nodesFile, "nodes-file", "",
		"read the URLs from this `FILE`, from /dev/fd/3, or - for standard input; ps shows no passwords then (default $"+nodesFileEnv+")")
	f.loginFlags.flags(cmd)
	flags.StringVar(&f.prefix, "prefix", "", "`TEXT` before every lock key; Config.Prefix")
	flags.DurationVar(&f.ttl, "ttl", 0,
		"length of a lease, renewed after a third of it; at most --max-ttl (default, also for 0: 10s, or --max-ttl if that is less)")
	flags.DurationVar(&f.maxTTL, "max-ttl", 0,
		"longest lease of any client of these nodes; the same for all clients (default, also for 0: what the nodes hold, or 30s)")
	flags.DurationVar(&f.nodeTimeout, "node-timeout", 0,
		"how long a node may take to answer (default, also for 0: 250ms, or a quarter of --ttl if that is less)")
	flags.BoolVar(&f.durable, "durable", false, "every node persists a write before it answers; Config.Durable")
	flags.BoolVar(&f.noFence, "no-fence", false, "use no fencing tokens; Config.NoFence")
	flags.StringVar(&f.owner, "owner", "",
		"`LABEL` that others see, beside this host and process, of a lock that this command takes")
	flags.BoolVar(&f.json, "json", false, `print one JSON line, on failure too: {"error": …, "kind": "held" …}`)
}

// check finds errors that need no node.
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

// leaseTTL returns the length of a lease, given the longest one that is allowed; 0 means unknown.
func (f *clientFlags) leaseTTL(longest time.Duration) time.Duration {
	switch {
	case f.ttl != 0:
		return f.ttl
	case longest != 0:
		return min(usualTTL, longest)
	}
	return usualTTL
}

// config returns the configuration of the client.
func (f *clientFlags) config(ctx context.Context, nodes []redlock.Node, hooks redlock.Hooks) (redlock.Config, error) {
	if err := f.check(); err != nil {
		return redlock.Config{}, err
	}
	cfg := redlock.Config{Nodes: nodes, Prefix: f.prefix, MaxTTL: f.maxTTL, NodeTimeout: f.nodeTimeout,
		Durable: f.durable, NoFence: f.noFence, Hooks: hooks}
	if !f.embedded {
		// In an outage the flags decide, and what a minority holds. The next step then waits or reports it.
		if cfg, f.untold = redlock.AgreedConfig(ctx, cfg); f.untold != nil && !errors.Is(f.untold, redlock.ErrNoQuorum) {
			return cfg, failure(f.located(f.untold))
		}
		f.insist(&cfg)
	}
	if f.looks && cfg.MaxTTL == 0 && !f.embedded {
		access.LookOnly(&cfg)
	}
	cfg.TTL = f.leaseTTL(cfg.MaxTTL)
	f.quorum, f.before = cmp.Or(cfg.Quorum, len(cfg.Nodes)/2+1), cfg.Prefix
	return cfg, nil
}

// insist takes what was given and is a zero value, which AgreedConfig takes for not given. Where the nodes hold another value,
// they refuse it, as any other that differs, or enroll --change-config replaces theirs.
func (f *clientFlags) insist(cfg *redlock.Config) {
	if f.given("prefix") {
		cfg.Prefix = f.prefix
	}
	if f.given("durable") {
		cfg.Durable = f.durable
	}
	if f.given("no-fence") {
		cfg.NoFence = f.noFence
	}
}

// connect makes a client for the nodes.
func (f *clientFlags) connect(ctx context.Context, nodes []redlock.Node, hooks redlock.Hooks) (*redlock.Client, error) {
	cfg, err := f.config(ctx, nodes, hooks)
	if err != nil {
		return nil, err
	}
	return f.start(ctx, cfg)
}

// start makes the client. It enrolls nodes that openNodes has just started, because no lease can exist on them.
func (f *clientFlags) start(ctx context.Context, cfg redlock.Config) (*redlock.Client, error) {
	client, err := redlock.New(cfg)
	if err != nil {
		return nil, failure(f.located(err))
	}
	if f.embedded {
		if err := client.Enroll(ctx); err != nil {
			client.Close()
			return nil, failure(err)
		}
	}
	return client, nil
}

// open connects to the nodes. done closes the client, and stops nodes that run in this process.
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
