package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// A server is a line of .ci/servers.sh.
type server struct{ name, version, path string }

func (s server) String() string { return s.product() + " " + s.version + " of " + s.suite() }

// product is what the name begins with: redis-trixie is Redis.
func (s server) product() string {
	family, _, _ := strings.Cut(s.name, "-")
	return strings.ToUpper(family[:1]) + family[1:]
}

// suite is the rest: the suite of Debian.
func (s server) suite() string {
	_, suite, _ := strings.Cut(s.name, "-")
	return suite
}

func fetch(ctx context.Context, o options) ([]server, error) {
	cmd := exec.CommandContext(ctx, ".ci/servers.sh")
	if o.missing {
		cmd.Args = append(cmd.Args, "--allow-missing")
	}
	if o.only != "" {
		cmd.Args = append(cmd.Args, strings.Split(o.only, ",")...)
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf(".ci/servers.sh: %w", err)
	}
	return parseServers(string(out))
}

func parseServers(text string) (found []server, err error) {
	for line := range strings.Lines(text) {
		words := strings.SplitN(strings.TrimSpace(line), " ", 3) // a path may have spaces
		if len(words) != 3 || !strings.Contains(words[0], "-") {
			return nil, fmt.Errorf(".ci/servers.sh printed %q, and not: name version path", line)
		}
		found = append(found, server{words[0], words[1], words[2]})
	}
	return found, nil
}
