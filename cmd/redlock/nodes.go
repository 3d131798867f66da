package main

import (
	"context"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
)

const nodesEnv = "REDLOCK_NODES"

// embeddedNodes in place of URLs asks for nodes in this process.
const embeddedNodes = "embedded"

func nodesFlag(cmd *cobra.Command, nodes *string) {
	// The environment is not the flag's default: --help would print the passwords in it.
	cmd.Flags().StringVar(nodes, "nodes", "",
		"URLs of the nodes, separated by commas, or \"embedded\" (default $"+nodesEnv+")")
}

func nodeList(flag string) (list, source string) {
	if flag != "" {
		return flag, "--nodes"
	}
	return os.Getenv(nodesEnv), nodesEnv
}

// enrollNew enrolls nodes that openNodes has just started: no lease can be out on them.
func enrollNew(ctx context.Context, flag string, client *redlock.Client) error {
	if list, _ := nodeList(flag); list != embeddedNodes {
		return nil
	}
	return client.Enroll(ctx)
}

// openNodes returns the nodes that the user asked for, and what ends those that it started.
func openNodes(ctx context.Context, flag string) ([]redlock.Node, func(), error) {
	list, source := nodeList(flag)
	switch list {
	case "":
		return nil, nil, usage("no nodes: give --nodes url,url,url or set %s", nodesEnv)
	case embeddedNodes:
		f, err := fleet.Start(ctx, fleet.Embedded, fleet.Options{})
		if err != nil {
			return nil, nil, &exitError{exitFailed, err}
		}
		return redlock.Nodes(f.URLs()...), func() { _ = f.Close() }, nil
	}
	var urls []string
	for _, u := range strings.Split(list, ",") {
		if u = strings.TrimSpace(u); u == "" {
			continue
		}
		if !readable(u) {
			return nil, nil, usage("%s: node %d: not a URL; write redis://user:password@host:port, "+
				"and the characters /?#%%@: and the comma in a password as %%2F and so on", source, len(urls)+1)
		}
		urls = append(urls, u)
	}
	return redlock.Nodes(urls...), func() {}, nil
}

// readable refuses what the library would refuse while quoting a part of it: where a password has an
// unescaped / or #, a piece of it stands in the URL where the port or the database is.
func readable(raw string) bool {
	if !strings.Contains(raw, "://") {
		raw = "redis://" + raw
	}
	u, err := url.Parse(raw)
	if err != nil {
		return false
	}
	return !strings.Contains(u.Path+u.RawQuery+u.Fragment+u.Opaque+u.Scheme, "@")
}
