package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorumlock/redlock"
)

const runHelp = `Runs CMD while holding the lock on KEY, or on all of several KEYs, and renews it as long as CMD runs.

CMD has our standard streams, and finds in its environment
  REDLOCK_KEY    the key; several are one a line
  REDLOCK_FENCE  the fencing token, larger than that of every earlier holder, for a resource that can refuse smaller ones
  REDLOCK_TOKEN  the owner token on the nodes; whoever knows it can release the lock

INT, TERM, HUP, QUIT, USR1 and USR2 sent to redlock are passed on. In the foreground of a terminal CMD stays in
redlock's process group, so that it can use the terminal; what is typed there (INT, QUIT) reaches it directly, and
is not passed on a second time. Elsewhere it has a process group of its own; INT, TERM, HUP and QUIT go to all of
it, USR1 and USR2 to CMD alone.

If the lease can no longer be renewed, CMD gets TERM, and KILL after --kill-after, before the lease ends and
another can have the lock. Its process group gets the same. At a terminal, where there is none, CMD alone does:
what it started must end with it.

If the lock is taken away (redlock release --force, or somebody deleted its keys), redlock hears of it at its next
renewal, and CMD gets TERM, and KILL after --kill-after or when the lease would have ended, whichever is sooner. That
may be too late: another may have the lock as soon as it was taken away.

If redlock itself is killed (kill -9), CMD and its process group are killed too, by a second process that waits for
that. This cannot be guaranteed where that process is killed as well, or redlock is killed in the moment in which it
starts CMD; for what leaves the group (setsid, a daemon); at a terminal, where CMD alone is killed; and on Windows. CMD
can then run on for longer than the lease: give the fencing token to what it works on.

--at-least keeps the lock for that long, whatever CMD does: with a schedule, a little less than its interval. Without
it, a host whose clock is late, or that starts again, would find the lock of a short job free, and run the job again.

Exit code: CMD's own (128+n if a signal ended it), or
   64  usage                                 75  held by another within --wait
   69  no quorum of nodes within --wait      76  lease lost, CMD killed
  126  CMD cannot be executed               127  CMD was not found
  130  interrupted (143: terminated) before the lock was acquired`

type runOptions struct {
	clientFlags
	wait      string
	killAfter time.Duration
	atLeast   time.Duration

	patience waiting
	keys     []string
	path     string   // of the command
	argv     []string // of the command, its name as given
	stderr   io.Writer
}

func newRun() *cobra.Command {
	o := &runOptions{}
	cmd := &cobra.Command{
		Use:   "run [flags] KEY [KEY...] -- CMD [ARG...]",
		Short: "Run a command under a lock",
		Long:  runHelp,
		Example: "  redlock run --nodes a:6379,b:6379,c:6379 nightly -- ./backup.sh --full\n" +
			"  redlock run --wait 0 --nodes embedded try -- sh -c 'echo fence $REDLOCK_FENCE'",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.stderr = cmd.ErrOrStderr()
			return runReported(cmd.Context(), o, args, cmd.ArgsLenAtDash())
		},
	}
	o.flags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.wait, "wait", "forever", "how long to wait for the lock: 0 (ask once), a duration or forever")
	flags.DurationVar(&o.killAfter, "kill-after", 2*time.Second, "time between TERM and KILL when the lease is going to be lost")
	flags.DurationVar(&o.atLeast, "at-least", 0, "keep the lock for at least this long, also when CMD ends sooner")
	flags.Lookup("json").Usage = "print one JSON line on standard error at the end, and nothing else"
	return cmd
}

// A waiting says how long to wait for the lock.
type waiting struct {
	once    bool          // ask once
	atMost  time.Duration // 0: forever
	written string
}

func parseWait(s string) (waiting, error) {
	w := waiting{written: s}
	if s == "forever" {
		return w, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return w, usage("--wait %q: give 0, a duration such as 30s, or forever", s)
	}
	w.once, w.atMost = d == 0, d
	return w, nil
}

// margin is what is kept between KILL and the end of the validity: time for the signal to arrive, and for
// a timer that is late. The lease's own context ends nearer to the end than that.
func margin(ttl time.Duration) time.Duration {
	return min(max(ttl/20, 20*time.Millisecond), 200*time.Millisecond)
}

// parse checks all that can be checked before the lock is asked for.
func (o *runOptions) parse(args []string, dash int) (err error) {
	switch {
	case dash < 0:
		return usage("no command: write redlock run KEY -- CMD")
	case dash == 0:
		return usage("no key: write redlock run KEY -- CMD")
	case dash == len(args):
		return usage("no command after --")
	}
	o.keys, o.argv = args[:dash], args[dash:]
	if o.patience, err = parseWait(o.wait); err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	if o.atLeast < 0 {
		return usage("--at-least %v is negative", o.atLeast)
	}
	if err := o.checkTimes(o.leaseTTL(o.maxTTL)); err != nil {
		return err
	}
	o.path, err = findCommand(o.argv[0])
	return err
}

// checkTimes holds for leases of this length.
func (o *runOptions) checkTimes(ttl time.Duration) error {
	// In ordinary times a lease runs down to two thirds of its TTL. TERM at more than half would leave no
	// time for a renewal to be tried again.
	switch {
	case o.killAfter < 0:
		return usage("--kill-after %v is negative", o.killAfter)
	case ttl <= 2*margin(ttl):
		return usage("--ttl %v is too short to end a command in; give %v or more", ttl, 100*time.Millisecond)
	case o.killAfter+margin(ttl) > ttl/2:
		return usage("--kill-after %v is too long for --ttl %v: give --kill-after %v or less, or a longer --ttl",
			o.killAfter, ttl, (ttl/2 - margin(ttl)).Round(time.Millisecond))
	}
	return nil
}

// findCommand says 126 and 127 as a shell does.
func findCommand(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, exec.ErrDot):
		return "", &exitError{exitNotFound, fmt.Errorf("%q is in the current directory; write ./%s to run it", name, name)}
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return "", &exitError{exitNotFound, fmt.Errorf("%q: command not found", name)}
	}
	var inner *exec.Error
	if errors.As(err, &inner) {
		err = inner.Err
	}
	return "", &exitError{exitNotExecutable, fmt.Errorf("%q cannot be executed: %w", name, err)}
}

// environment is what the command finds on top of ours.
func environment(l *redlock.Lease) []string {
	return []string{
		"REDLOCK_KEY=" + strings.Join(l.Names(), "\n"),
		fmt.Sprintf("REDLOCK_FENCE=%d", l.Fence()),
		"REDLOCK_TOKEN=" + l.Token(),
	}
}

// acquire waits for the lock as long as was asked for. Its error has an exit code.
func (o *runOptions) acquire(ctx context.Context, lock redlock.Lock) (*redlock.Lease, error) {
	if o.patience.once {
		lease, err := lock.TryAcquire(ctx)
		return lease, o.explain(ctx, err)
	}
	bounded := ctx
	if o.patience.atMost > 0 {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, o.patience.atMost)
		defer cancel()
	}
	lease, err := lock.Acquire(bounded)
	return lease, o.explain(ctx, err)
}

func (o *runOptions) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if stopped := (*stopSignal)(nil); errors.As(context.Cause(ctx), &stopped) {
		return &exitError{stopped.code(), fmt.Errorf("%w before the lock was acquired", stopped)}
	}
	var round *redlock.RoundError
	switch {
	case o.patience.once:
	case errors.As(err, &round):
		err = fmt.Errorf("%w (--wait %s)", round, o.patience.written)
	case errors.Is(err, context.DeadlineExceeded): // and no round was: nobody could say whether it is held
		return &exitError{exitNoQuorum, fmt.Errorf("no node answered within --wait %s", o.patience.written)}
	}
	return failure(err)
}
