package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/quorumlock/redlock/internal/fleet"
)

// plays are the scenarios. The first needs replication, the others memory that is lost, links and a clock.
var plays = []string{"failover", "restart-empty", "partial-views", "clock-ahead"}

const chaosTimeout = 5 * time.Minute

// An act is what came of a scenario. It is fine if the lock was safe and the scenario took place as it is written.
type act struct {
	name, verdict string
	fine          bool
}

type acts []act

func (a acts) texts() (texts []string) {
	for _, one := range a {
		texts = append(texts, one.name+" "+one.verdict)
	}
	return texts
}

func scenarios(ctx context.Context, command, server string, log io.Writer) (all acts) {
	for _, name := range plays {
		bounded, cancel := context.WithTimeout(ctx, chaosTimeout)
		cmd := exec.CommandContext(bounded, command, "chaos", "run", "--scenario", name, "--fleet", "process", "--seconds", "3", "--json")
		cmd.Env = append(os.Environ(), fleet.ServerVariable+"="+server)
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.WaitDelay = 10 * time.Second
		var out, progress bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &progress
		err := cmd.Run()
		cancel()
		one := readAct(name, out.Bytes(), err)
		if !one.fine {
			fmt.Fprintf(log, "==== %s: %s: %s\n%s%s\n", server, name, one.verdict, out.String(), progress.String())
		}
		all = append(all, one)
	}
	return all
}

func readAct(name string, report []byte, ended error) act {
	var r struct {
		Verdict       string   `json:"verdict"`
		Unmet, Panics []string // what the scenario promises and did not show
		Error         string
	}
	if err := json.Unmarshal(report, &r); err != nil || r.Verdict == "" {
		return act{name: name, verdict: strings.TrimSpace(fmt.Sprintf("not run: %v", ended))}
	}
	one := act{name: name, verdict: r.Verdict, fine: ended == nil && r.Verdict == "safe"}
	if !one.fine && r.Verdict == "safe" {
		one.verdict = fmt.Sprintf("safe, and not as it is written: %s%s", strings.Join(append(r.Unmet, r.Panics...), ", "), r.Error)
	}
	return one
}
