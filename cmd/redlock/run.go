package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/sleep"
)

const runHelp = `Acquires the lock on KEY, or on all KEYs at once, runs CMD, and renews the lease while CMD runs.

CMD uses redlock's standard input, output and error. Its environment contains
  REDLOCK_KEY    the key; if there are several, one per line
  REDLOCK_FENCE  the fencing token, larger than those of all earlier holders; a resource can refuse smaller ones
  REDLOCK_TOKEN  the owner token on the nodes; whoever knows it can release the lock (release --token)
REDLOCK_NODES, which may have passwords, is taken out of it, unless --pass-nodes is given.

Signals: redlock passes on INT, TERM, HUP, QUIT, USR1 and USR2.
  - In the foreground of a terminal, CMD stays in redlock's process group, so that it can use the terminal. INT and QUIT
    are not passed on there: typed ones reach CMD directly. To end it from elsewhere, send TERM.
  - Otherwise CMD has its own process group. INT, TERM, HUP and QUIT go to the whole group, and continue what is stopped
    there. USR1 and USR2 go only to CMD. TSTP (Ctrl-Z, after fg) stops the group, then redlock. So does TTOU, which a
    terminal after stty tostop sends when redlock has something to say in the background. When redlock is continued, so
    is the group if the lease is still valid. If not, redlock kills it.

If redlock passed on INT, TERM, HUP or QUIT, or a signal ended CMD, others of its group may still work. redlock then
holds the lock until all of them have ended, says so after a second, and ends with the exit code of CMD. --max-hold
bounds that, and --kill-after does not: KILL to redlock ends all of them at once. If CMD ends otherwise, redlock does
not wait for what it leaves running, such as a daemon.

redlock renews the lease for as long as CMD runs, so a CMD that hangs keeps the lock for ever. Limit its time if it may
hang: redlock run --max-hold 10m KEY -- CMD. The lease is then not renewed past that time, and CMD gets TERM and KILL
before it, as when the lease cannot be renewed.

If the lease cannot be renewed, redlock says so once, with the nodes and their reasons, and tries again. When little of
the lease is left, CMD and its process group get TERM, and KILL after --kill-after. Both come before the lease ends and
another client can get the lock. At a terminal redlock looks after CMD alone: what it started must end with it.

If the lock is taken away (by redlock release --force, or because its keys were deleted), redlock notices at the next
renewal. CMD then gets TERM. It gets KILL after --kill-after, or when the lease would have ended, whichever comes first.
This may be too late: another client can get the lock as soon as it is taken away.

If redlock itself is killed (kill -9), a second process kills CMD and its process group. This does not work
  - if the second process is killed too, or redlock is killed at the moment at which it starts CMD;
  - for processes that leave the group (setsid, daemons, timeout within a script);
  - at a terminal, where only CMD is killed;
  - on Windows.
No signal reaches a CMD that runs as another user (sudo CMD), because the system forbids it: then redlock says that CMD
goes on. Run sudo redlock run instead.
If redlock alone is stopped (kill -STOP, which no program can catch), CMD works on, and nobody renews the lease.
In all these cases CMD can run for longer than the lease. Pass the fencing token to the resource that CMD works on.

With --read, CMD shares KEY with others that read; a run without --read waits for all of them, and they for it. With
--semaphore N, up to N hold KEY at a time. A run that does more at a time than others takes several of the N: --permits.
Give the same N everywhere. A run that is refused, or waits, says once if a holder gave another N. One that gets the
lock at once does not learn it; redlock inspect shows what each holder gave.

--at-least holds the lock for at least that long, even if CMD ends sooner. With a schedule, it must be three
--node-timeouts longer than the largest difference between the start times of the hosts, and shorter than the interval
between two ticks, by 2% of it. If it is too short, a short job could run twice: a host whose clock is late, or that
restarts, or that waited for a node which does not answer, finds the lock free. If it is too long, a tick finds the lock
held. A CMD that cannot be executed holds nothing.

--every DUR keeps the lock, and runs CMD again and again: at once, and then every DUR, from start to start. Of all hosts
that run the same line, one runs CMD. When it dies or is stopped, another takes over, and runs CMD at once. So two runs
can be less than DUR apart: what may run only once an interval needs a schedule and --at-least. Runs never overlap: one
is over when all processes of its group have ended (at a terminal: when CMD has). If it takes longer than DUR, the next
begins at the next multiple.
  - A process that CMD leaves in its group holds up the next run, and redlock says so. Start a daemon with setsid.
  - If CMD fails, redlock says so in one line and goes on. It ends with 126 if CMD cannot be executed: others can.
  - If the lease is lost, CMD gets TERM and KILL as always, and redlock waits for the lock again, as --wait says.
  - INT, TERM, HUP and QUIT end redlock once the run is over, with the exit code of CMD, or with 128+n between two runs.
  - A CMD that hangs needs a limit of its own: redlock run --every 5m KEY -- timeout -k 10s 4m CMD.
It goes with none of --at-least, --max-hold, --read and --semaphore.

run waits, as --wait says, for all that may change by itself or on the servers: another holder, nodes that are away, in
quarantine or unfit (as with --durable, where they do not persist), a wrong password, a missing right. After a second it
says once what it waits for. It ends at once with 64 if the nodes hold another configuration than its flags say.

A KEY that holds other data, which never expires, is no lock. run says so after a second and goes on waiting. When
--wait is over, it ends with 64 and says what to do. What another library wrote and expires counts as held.

--fair serves those that wait in the order in which they arrived, on all hosts. It is slower. With --wait 0 the lock
counts as held while somebody waits for it. A run without --fair may overtake.

Exit code: the exit code of CMD (128+n if a signal ended it), or
  64   usage, or KEY is the name of other data, which never expires
  69   no quorum of nodes within --wait
  75   held by another within --wait
  76   lease lost, or --max-hold over: CMD was told to end, or not started
  126  CMD cannot be executed
  127  CMD was not found
  129, 130, 131, 143  HUP, INT, QUIT or TERM came before the lock was acquired, or between two runs of --every`

type runOptions struct {
	clientFlags
	wait      string
	killAfter time.Duration
	passNodes bool
	every     time.Duration // 0: CMD runs once
	journal   string        // file; "": none
	kind      kindOfLock

	patience waiting
	keys     []string
	path     string   // of the command
	argv     []string // of the command, with its name as given
	stderr   *aside
}

func newRun() *cobra.Command {
	o := &runOptions{}
	cmd := &cobra.Command{
		Use:   "run [flags] KEY [KEY...] -- CMD [ARG...]",
		Short: "Run a command under a lock",
		Long:  runHelp,
		Example: "  redlock run --nodes a:6379,b:6379,c:6379 nightly -- ./backup.sh --full\n" +
			"  redlock run --wait 0 --nodes embedded try -- sh -c 'echo fence $REDLOCK_FENCE'\n" +
			"  redlock run --every 5m report -- ./report.sh",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.stderr = &aside{to: cmd.ErrOrStderr()}
			return runReported(cmd.Context(), o, args, cmd.ArgsLenAtDash())
		},
	}
	o.flags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.wait, "wait", "forever", "how long to wait for the lock: 0 (try once), a duration, or forever")
	flags.DurationVar(&o.killAfter, "kill-after", 0,
		"time between TERM and KILL if the lease is going to be lost; 0: KILL at once (default 2s, or a quarter of a shorter --ttl or --max-hold)")
	flags.DurationVar(&o.kind.atLeast, "at-least", 0, "hold the lock for at least this long, even if CMD ends sooner")
	flags.DurationVar(&o.every, "every", 0, "keep the lock, and run CMD again and again, this long from start to start")
	flags.BoolVar(&o.kind.fair, "fair", false, "serve those that wait in order of arrival; give it for this KEY everywhere")
	flags.BoolVar(&o.passNodes, "pass-nodes", false, "leave "+nodesEnv+", which may have passwords, in CMD's environment")
	flags.BoolVar(&o.kind.read, "read", false, "share the lock with others that read; without it, CMD is alone")
	flags.IntVar(&o.kind.semaphore, "semaphore", 0, "share the lock: it has this many permits, and each run takes one; give all the same number")
	flags.IntVar(&o.kind.permits, "permits", 1, "how many permits of --semaphore this run takes, all or none")
	flags.DurationVar(&o.kind.maxHold, "max-hold", 0, "end CMD in time, so that the lock is not held for longer than this (default: no limit)")
	flags.StringVar(&o.journal, "journal", "", "append to this `FILE` when the lock was held, for redlock audit; several may share it")
	flags.Lookup("owner").Usage = "`LABEL` that others see, beside this host and process, while the lock is held (default: the name of CMD)"
	flags.Lookup("json").Usage = "print one JSON line on standard error at the end, and nothing else"
	return cmd
}

// A waiting says how long to wait for the lock.
type waiting struct {
	once    bool          // try once
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
		return w, usage("--wait %s: give 0, a duration such as 30s, or forever", brief(s))
	}
	w.once, w.atMost = d == 0, d
	return w, nil
}

// bound returns a context that ends when a wait that began then is over.
func (w waiting) bound(ctx context.Context, began time.Time) (context.Context, context.CancelFunc) {
	if w.atMost == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, began.Add(w.atMost))
}

// margin is the time between KILL and the end of the validity. It covers the delivery of the signal and a late timer.
// The context of the lease ends later than that.
func margin(ttl time.Duration) time.Duration {
	return min(max(ttl/20, 20*time.Millisecond), 200*time.Millisecond)
}

// parse checks everything that can be checked without the nodes.
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
	if err := o.kind.check(len(o.keys), o.given); err != nil {
		return err
	}
	if err := o.checkEvery(); err != nil {
		return err
	}
	if err := o.checkTimes(o.leaseTTL(o.maxTTL), o.maxTTL); err != nil {
		return err
	}
	if o.owner == "" {
		o.owner = filepath.Base(o.argv[0])
	}
	o.path, err = findCommand(o.argv[0])
	return err
}

const (
	usualKillAfter = 2 * time.Second
	shortestTTL    = 100 * time.Millisecond // with less, there is no time to end a command in
)

// checkTimes checks --kill-after against the length of a lease, or chooses it. longest is the MaxTTL of the nodes; 0: it is
// not known yet, nor is what they leave of the TTL.
func (o *runOptions) checkTimes(ttl, longest time.Duration) error {
	flag, most := "--ttl", longest
	if length := o.kind.length(ttl); length == o.kind.maxHold {
		flag, most, ttl = "--max-hold", ttl, length
	}
	if !o.given("kill-after") {
		o.killAfter = min(usualKillAfter, ttl/4)
	}
	// A lease that is renewed normally never has less than two thirds of its TTL left. If TERM came while half of it is
	// left, there would be no time to try a renewal again.
	switch {
	case o.killAfter < 0:
		return usage("--kill-after %v is negative", o.killAfter)
	case ttl < shortestTTL:
		return usage("%s %v is too short to end a command in; give %v or more", flag, ttl, shortestTTL)
	case longest == 0 || o.killAfter <= longestKillAfter(ttl):
		return nil
	}
	longer := ""
	if o.killAfter <= longestKillAfter(most) {
		longer = fmt.Sprintf(", or a longer %s, up to %v", flag, most)
	}
	return usage("--kill-after %v is too long for %s %v: give --kill-after %v or less%s",
		o.killAfter, flag, ttl, longestKillAfter(ttl).Truncate(time.Millisecond), longer)
}

// longestKillAfter is the longest --kill-after with a lease of this length.
func longestKillAfter(ttl time.Duration) time.Duration { return ttl/2 - margin(ttl) }

// findCommand fails with 126 and 127, as a shell does.
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

// environment returns what is added to the environment of the command.
func environment(l *redlock.Lease) []string {
	return []string{
		"REDLOCK_KEY=" + strings.Join(l.Names(), "\n"),
		fmt.Sprintf("REDLOCK_FENCE=%d", l.Fence()),
		tokenEnv + "=" + l.Token(),
	}
}

// askAgain is how long to wait before nodes that did not answer are asked again what they hold.
const askAgain = 500 * time.Millisecond

// awaitConfig is config. In an outage it asks again, for as long as --wait says: with the defaults, a client could differ
// from nodes that come back, and they would refuse it. What is left of --wait is for the lock. Its error has an exit code.
func (o *runOptions) awaitConfig(ctx context.Context, nodes []redlock.Node, hooks redlock.Hooks) (redlock.Config, error) {
	began, said := time.Now(), false
	cfg, err := o.config(ctx, nodes, hooks)
	bounded, cancel := o.patience.bound(ctx, began) // the first time, nodes have the time that it takes to connect
	defer cancel()
	for err == nil && o.untold != nil {
		why := unanswered(o.untold)
		if o.patience.once {
			return cfg, failure(why)
		}
		if time.Since(began) >= noticeAfter && bounded.Err() == nil && !said && !o.json {
			said = true
			say(o.stderr, "waiting (--wait %s): %s", o.patience.written, sentence(why))
		}
		if err = sleep.For(bounded, askAgain); err == nil {
			cfg, err = o.config(bounded, nodes, hooks)
		}
		switch {
		case ctx.Err() != nil:
			return cfg, failure(ctx.Err())
		case bounded.Err() != nil && (err != nil || o.untold != nil):
			if said { // then why is said already
				why = &retoldError{"too few nodes answered", why}
			}
			return cfg, failure(fmt.Errorf("%w (--wait %s)", why, o.patience.written))
		}
	}
	if left := o.patience.atMost - time.Since(began); o.patience.atMost > 0 {
		o.patience.atMost = max(left, min(askAgain, o.patience.atMost))
	}
	return cfg, err
}

// acquire waits for the lock as long as --wait says. Its error has an exit code.
func (o *runOptions) acquire(ctx context.Context, client *redlock.Client, lock redlock.Lock) (*redlock.Lease, error) {
	if o.patience.once {
		lease, err := lock.TryAcquire(ctx)
		if errors.Is(err, redlock.ErrHeld) && noLock(err) == nil && meetsOtherData(err) {
			if never := noLockAmong(ctx, client, o.keys); never != nil {
				return lease, never
			}
		}
		return lease, withSharers(ctx, client, o.explain(err))
	}
	bounded, cancel := o.patience.bound(ctx, time.Now())
	defer cancel()
	lease, err := lock.Acquire(bounded)
	if errors.Is(err, redlock.ErrHeld) {
		if never := noLockAmong(ctx, client, o.keys); never != nil {
			return lease, never
		}
	}
	return lease, withSharers(ctx, client, o.explain(err))
}

func (o *runOptions) explain(err error) error {
	if err == nil {
		return nil
	}
	if never := noLock(err); never != nil {
		return never
	}
	var round *redlock.RoundError
	switch {
	case o.patience.once:
	case errors.As(err, &round):
		err = fmt.Errorf("%w (--wait %s)", round, o.patience.written)
	case errors.Is(err, context.DeadlineExceeded): // no round was completed, so nobody knows whether it is held
		return toDoctor(&exitError{exitNoQuorum, fmt.Errorf("no node answered within --wait %s", o.patience.written)})
	}
	return toDoctor(failure(err))
}
