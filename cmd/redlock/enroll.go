package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/sleep"
)

const enrollHelp = `A node is in quarantine if it is new, or if it may have forgotten leases because it restarted, was flushed or was
replaced. It does not grant anything until the quarantine is over, about 31 s with the defaults. enroll ends the
quarantine at once, on every node that it can reach. It waits up to two seconds for a server that refuses connections,
because it may just be starting.

Use it once, on new servers. With it you declare that no client holds a lease that one of these nodes may have
forgotten. If that is wrong, two clients may hold one lock. --only-new refuses servers that have keys, and changes
nothing if any of the nodes is in use or cannot be reached. It cannot tell new servers from ones that all restarted
without their data, as after a power cut. So do not run enroll each time a machine starts.

enroll asks before it changes nodes that are in use: some of them grant locks already, or have keys, or cannot be
reached, or --change-config is given. Where it cannot ask, because standard input is no terminal, it changes nothing,
unless you have given --yes. New servers need neither.

Nodes store the configuration of their clients (MaxTTL, Prefix and others). If a node has another configuration, enroll
fails and names each field with both values. --change-config replaces it. Before you use it, stop all clients and wait
for their MaxTTL.

enroll takes the lock doctor/RANDOM for a moment, as doctor does. If the nodes' user may not do that, as with a wrong
--prefix, it changes nothing.

Exit code: 0 every node was enrolled, 1 the user may not lock on a node, 69 not all were reached (with --yes, the others
are enrolled), or --only-new found a server that has keys, 64 usage, or not confirmed.`

type enroller struct {
	operator
	onlyNew, changeConfig, yes bool
	stdin                      *os.File
	stderr                     io.Writer
}

func newEnroll() *cobra.Command {
	o := &enroller{operator: looking(), stdin: os.Stdin}
	cmd := &cobra.Command{
		Use:     "enroll",
		Short:   "Declare that no lease exists on the nodes, so that they vote at once",
		Long:    enrollHelp,
		Example: "  redlock enroll --only-new --nodes a:6379,b:6379,c:6379,d:6379,e:6379",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.stderr = cmd.ErrOrStderr()
			return stoppable(cmd, func(ctx context.Context) error { return o.enroll(ctx, cmd.OutOrStdout()) })
		},
	}
	o.flags(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&o.onlyNew, "only-new", false, "refuse servers that have keys, or that are among others in use or out of reach")
	flags.BoolVar(&o.changeConfig, "change-config", false, "replace the configuration that is stored on the nodes")
	flags.BoolVar(&o.yes, "yes", false, "do not ask: you know that no node has forgotten a lease that is out")
	return cmd
}

func (o *enroller) enroll(ctx context.Context, out io.Writer) error {
	if o.onlyNew && o.changeConfig {
		return usage("give --only-new or --change-config, not both: a server that was never used has no configuration to change")
	}
	client, done, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer done()
	before := statusOnceStarted(ctx, client)
	forbidden, err := whereForbidden(ctx, client, before)
	if err == nil {
		err = o.declare(ctx, client, before)
	}
	if err != nil && ctx.Err() != nil {
		return failure(err)
	}
	status := client.Status(context.WithoutCancel(ctx))
	for i, why := range forbidden {
		if why != nil {
			status[i].Err = why
		}
	}
	became := o.whatBecame(before, status, err)
	if o.json {
		return became.report(out, err)
	}
	if exit := (*exitError)(nil); errors.As(err, &exit) {
		return exit
	}
	if err != nil {
		return failure(became.told(err))
	}
	longest := usualMaxTTL
	if known := status[0].MaxTTL; known != 0 {
		longest = known
	}
	text := became.enrolled()
	if len(became.those(enrolledNow)) > 0 {
		text += fmt.Sprintf("; leases of up to %v are granted from now on", longest)
	}
	_, err = fmt.Fprintln(out, text)
	return err
}

// startPatience is how long a server may take until it listens. A command that starts it may return before that, as
// redis-server --daemonize yes does.
const startPatience = 2 * time.Second

// statusOnceStarted is the status of the nodes once none refuses connections any more, or startPatience is over.
func statusOnceStarted(ctx context.Context, client *redlock.Client) []redlock.NodeStatus {
	refuses := func(s redlock.NodeStatus) bool { return !s.Connected && errors.Is(s.Err, syscall.ECONNREFUSED) }
	patience, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		status := client.Status(ctx)
		if !slices.ContainsFunc(status, refuses) || sleep.For(patience, 20*time.Millisecond) != nil {
			return status
		}
	}
}

// whereForbidden is for each node why this client's user may not lock there, or nil. If it may not on any node, the second
// result is the error to end with: a node that is enrolled for such a user has no vote. A trial finds that before the nodes
// are written.
func whereForbidden(ctx context.Context, client *redlock.Client, status []redlock.NodeStatus) (nodes []error, err error) {
	problems, err := client.Trial(ctx)
	if err != nil {
		return nil, failure(err)
	}
	nodes, why := make([]error, len(problems)), reasons{all: len(problems)}
	for i, problem := range problems {
		kinds := (*redlock.KindsError)(nil)
		if !status[i].Connected || errors.As(problem, &kinds) || !lacksRight(problem) || lacksRight(status[i].Err) {
			continue // a user that may not do what enroll does is told by that
		}
		nodes[i] = fmt.Errorf("a command that a lock needs fails: %w", problem)
		why.add(status[i].Name, withRemedy(sentence(nodes[i])))
	}
	if len(why.list) == 0 {
		return nil, nil
	}
	return nodes, &exitError{exitFailed, &noVoteError{fmt.Errorf("nothing was changed, because its user may not lock there: %s", &why)}}
}

func lacksRight(err error) bool { return err != nil && remedyFor(err.Error()) == remedyFor("NOPERM") }

// declare enrolls the nodes as the flags say. It asks first, if the nodes are in use. It corrects status where a node that
// was away turns out to have granted all the time.
func (o *enroller) declare(ctx context.Context, client *redlock.Client, status []redlock.NodeStatus) error {
	waiting, using := notEnrolled(status), inUse(status)
	if o.changeConfig {
		code, what := exitUsage, whatDiffers(status)
		if away := unreached(status); len(away) > 0 {
			code = exitNoQuorum
			what += fmt.Sprintf("; %s not reached (%s), and may still hold another one: see to that first", are(away), whyUnreached(status))
		}
		err := o.confirm(ctx, code, noLease, "this replaces the configuration on the nodes and ends every quarantine; "+what)
		if err != nil {
			return err
		}
		return client.Enroll(ctx, redlock.ChangeConfig())
	}
	switch away := unreached(status); {
	case len(waiting) == 0 && o.yes: // there is nothing to ask
	case len(waiting) == 0:
		// There is nothing to change, unless a node connects while Enroll waits for it. It may have forgotten: among others
		// that are in use, OnlyNew admits none.
		err := client.Enroll(ctx, redlock.OnlyNew())
		now := client.Status(ctx)
		if len(using) > 0 {
			copy(status, now) // who grants now did so before
		}
		if err == nil || len(notEnrolled(now)) == 0 && len(unreached(now)) >= len(away) {
			return err
		}
		return o.declare(ctx, client, now)
	case len(using) > 0:
		// A node that is new among others that are in use has taken the place of one that may have granted locks.
		without := "it or its predecessor granted; it votes by itself after its quarantine"
		if len(waiting) > 1 {
			without = "they or their predecessors granted; they vote by themselves after their quarantines"
		}
		danger := fmt.Sprintf("%s in use, and %s would vote at once, without the locks that %s", are(using), strings.Join(waiting, ", "), without)
		if o.onlyNew {
			return usage("%s; if you know that %s, leave out --only-new; nothing was changed", danger, noneForgot)
		}
		if err := o.confirm(ctx, exitUsage, noneForgot, danger); err != nil {
			return err
		}
	case len(away) > 0:
		err := client.Enroll(ctx, redlock.OnlyNew()) // while a node is away it enrolls none, and says which are not new
		if err == nil {
			return nil
		}
		unknown := fmt.Sprintf("%s not reached (%s), so it is not known whether these nodes are in use; "+
			"see to that first: redlock doctor says how", are(away), whyUnreached(status))
		if why := whyNotNew(err, len(status), away...); why != "" {
			unknown += "; " + why
		}
		if o.onlyNew {
			return &exitError{exitNoQuorum, fmt.Errorf("%s; nothing was changed", unknown)}
		}
		if err := o.confirm(ctx, exitNoQuorum, noneForgot, unknown); err != nil {
			return err
		}
		return client.Enroll(ctx)
	}
	if o.onlyNew {
		return client.Enroll(ctx, redlock.OnlyNew())
	}
	if len(using) == 0 {
		// New servers need no question. What this leaves in quarantine was used, or may not say whether it was.
		err := client.Enroll(ctx, redlock.OnlyNew())
		if waiting = notEnrolled(client.Status(ctx)); err == nil || len(waiting) == 0 {
			return err
		}
		err = o.confirm(ctx, exitUsage, noneForgot, whyNotNew(err, len(status)))
		if err != nil {
			return err
		}
	}
	return client.Enroll(ctx)
}

// are names the nodes, with a verb.
func are(nodes []string) string {
	verb := " are"
	if len(nodes) == 1 {
		verb = " is"
	}
	return strings.Join(nodes, ", ") + verb
}

// notEnrolled names the nodes that are reached, and would grant if they were enrolled: in quarantine, or not judged so far. It
// leaves out those that lack a vote for another reason, as replicas do: Enroll refuses them, and says why.
func notEnrolled(status []redlock.NodeStatus) (names []string) {
	for _, s := range status {
		if s.Connected && s.MaxTTL == 0 && s.Err != nil && strings.Contains(s.Err.Error(), "may have forgotten") {
			names = append(names, s.Name)
		}
	}
	return names
}

// unreached names the nodes that are not connected.
func unreached(status []redlock.NodeStatus) (names []string) {
	for _, s := range status {
		if !s.Connected {
			names = append(names, s.Name)
		}
	}
	return names
}

// whyUnreached says why the nodes are not connected.
func whyUnreached(status []redlock.NodeStatus) string {
	why := reasons{all: len(status)}
	for _, s := range status {
		if !s.Connected && s.Err != nil {
			why.add(s.Name, sentence(s.Err))
		}
	}
	if len(why.list) == 1 {
		return why.list[0].text // the nodes are named already
	}
	return why.String()
}

// inUse names the nodes that grant locks, to us or to clients of another configuration.
func inUse(status []redlock.NodeStatus) (names []string) {
	for _, s := range status {
		if s.MaxTTL != 0 {
			names = append(names, s.Name)
		}
	}
	return names
}

// whatDiffers says what --change-config would change.
func whatDiffers(status []redlock.NodeStatus) string {
	why := reasons{all: len(status)}
	for _, s := range status {
		differs := (*redlock.ConfigError)(nil)
		if !errors.As(s.Err, &differs) {
			continue
		}
		var fields []string
		for _, d := range differs.Differences {
			fields = append(fields, fmt.Sprintf("%s from %s to %s", d.Field, d.There, d.Here))
		}
		why.add(s.Name, strings.Join(fields, ", "))
	}
	if len(why.list) == 0 {
		return "no node that is reached holds another one"
	}
	return "it changes on " + why.String()
}

// What the user must know, so that no two clients hold one lock. Clients of another configuration may rely on the one
// that --change-config replaces. Otherwise leases may be out, if no node forgot any of them.
const (
	noLease    = "no client holds a lock on these nodes"
	noneForgot = "within the longest lease of any client no node restarted, was flushed, failed over or was replaced"
)

// whyNotNew says why OnlyNew did not enroll nodes, other than those of which enough is said.
func whyNotNew(err error, all int, said ...string) string {
	refused, _ := nodeErrors(err)
	if len(refused) == 0 {
		return sentence(err)
	}
	why := reasons{all: all}
	for _, node := range refused {
		switch text := sentence(node.Err); {
		case strings.HasPrefix(text, "it looks new"), slices.Contains(said, node.Node): // the first waits for the others
		case strings.HasPrefix(text, "it has been used"):
			why.add(node.Node, "not new, because it has keys, fencing tokens or a marker; it may have forgotten locks")
		case lacksRight(node.Err):
			why.add(node.Node, "its user lacks the rights to DBSIZE and EXISTS, so it is not known whether it is new")
		default:
			why.add(node.Node, text)
		}
	}
	return why.String()
}

// confirm returns nil if the user knows this. code is the exit code if nobody can be asked.
func (o *enroller) confirm(ctx context.Context, code int, known, what string) error {
	switch {
	case o.yes:
		return nil
	case o.readStdin || !term.IsTerminal(int(o.stdin.Fd())):
		return &exitError{code, fmt.Errorf("%s; if you know that %s, add --yes; nothing was changed", what, known)}
	}
	fmt.Fprintf(o.stderr, "redlock: %s.\n"+
		"Do you know that %s? If that is wrong, two clients may hold one lock. [y/N] ", oneLine(what), known)
	answered := make(chan string, 1)
	go func() { // it goes on reading if a signal comes; then redlock ends
		answer, _ := bufio.NewReader(o.stdin).ReadString('\n')
		answered <- answer
	}()
	answer := ""
	select {
	case answer = <-answered:
	case <-ctx.Done():
		fmt.Fprintln(o.stderr)
		return ctx.Err()
	}
	if !strings.HasSuffix(answer, "\n") {
		fmt.Fprintln(o.stderr)
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return usage("not confirmed; nothing was changed")
	}
	return nil
}
