package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/quorumlock/redlock"
)

// longestSleep bounds the time between two looks at the lease. Timers stop while the machine is suspended, but a lease
// continues to expire.
const longestSleep = time.Second

// holdPrecision is how far the end of the longest hold, as underLease reckons it, may be from that of the lease: on a busy
// machine, the command starts late.
const holdPrecision = time.Second

// groupPoll is the time between two looks whether the rest of a process group has ended: no system tells that.
const groupPoll = 100 * time.Millisecond

// A child is the command that runs under the lock.
type child struct {
	cmd       *exec.Cmd
	group     bool          // it has its own process group
	guard     *guard        // kills it if redlock is killed
	unguarded error         // why it has no guard
	pauser    *pauser       // asks for a pause; only if it has its own process group, which Ctrl-Z does not reach; its owner closes it
	began     chan error    // the result of its start
	ended     chan struct{} // closed when it has ended and was waited for
	member    string        // the id of a process of its group that was alive at the last look; "": none is known
}

// startChild starts the command on an OS thread that lives until the command has ended. On Linux the kernel kills the
// command when that thread ends (see prctl(2), PR_SET_PDEATHSIG), and the Go runtime may end a thread at any time.
//
// It asks mayStart at the last moment: it takes a while to start the guard, and redlock may stand still anywhere.
func startChild(path string, argv, env []string, stdin io.Reader, pauser *pauser, mayStart func() error) (*child, error) {
	cmd := exec.Command(path)
	cmd.Args = argv
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, os.Stdout, os.Stderr
	c := &child{cmd: cmd, group: !atTerminal(), began: make(chan error, 1), ended: make(chan struct{}), pauser: pauser}
	if c.group {
		c.pauser.listen()
	}
	setAttributes(cmd, c.group)
	c.guard, c.unguarded = startGuard(c.group)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		defer close(c.ended)
		err := mayStart()
		if err == nil {
			err = cmd.Start()
		}
		if err == nil {
			c.guard.watch(cmd.Process.Pid)
		}
		c.began <- err
		if err == nil {
			_ = cmd.Wait() // cmd.ProcessState has the result
		}
	}()
	if err := <-c.began; err != nil {
		<-c.ended
		c.guard.stop()
		return nil, err
	}
	return c, nil
}

// A notRunError is why the command did not even start.
type notRunError struct{ error }

func (e *notRunError) Unwrap() error { return e.error }

// underLease runs the command, and ends it before the lease does.
func (o *runner) underLease(lease *redlock.Lease) (code int, reason string, err error) {
	clock := redlock.SystemClock() // like that of the lease, it counts suspended time
	ends := clock.Now().Add(o.kind.maxHold)
	var late error // why the lease is not good enough to start the command under it
	c, err := startChild(o.path, o.argv, o.childEnviron(environment(lease)), o.childStdin(), o.in.pauser, func() error {
		late = o.lostLease(lease, "before the command started")
		return late
	})
	switch {
	case late != nil:
		code, reason, late = codeOf(late)
		return code, reason, &notRunError{late}
	case err != nil:
		return exitNotExecutable, "failed", &notRunError{fmt.Errorf("%q cannot be executed: %w", o.argv[0], err)}
	}
	defer c.guard.stop()
	if c.unguarded != nil && !o.json {
		say(o.stderr, "if redlock is killed, processes that the command started continue to run: %v", c.unguarded)
	}
	warn := func(err error, what string) { // at once: the command may go on for hours
		if err != nil && !o.json {
			say(o.stderr, "%s: %v", what, err)
		}
	}
	lost := lease.Context()
	keep := o.keep()
	until := clock.Now() // when the lease would end without a renewal, as last known
	timer, due := time.NewTimer(0), clock.Now()
	defer timer.Stop()
	ended := c.ended // nil once the command has ended: then the rest of its group is awaited
	var poll, tell <-chan time.Time
	end := func(lost <-chan struct{}, left time.Duration) string {
		return c.end(lost, o.in, left-margin(o.length), o.killAfter, warn)
	}
	for {
		if left := lease.Remaining(); left > 0 {
			until = clock.Now().Add(left)
		}
		paused, over := false, false
		select {
		case <-ended:
			if len(o.in.signals) > 0 {
				continue // until that is passed on: perhaps it, too, told the command to end
			}
			if over = !o.awaitsGroup(c) || !c.groupAlive(); !over {
				ended, tell = nil, time.After(noticeAfter)
				ticker := time.NewTicker(groupPoll)
				defer ticker.Stop()
				poll = ticker.C
			}
		case <-poll:
			over = !c.groupAlive()
		case <-tell:
			if !o.json {
				say(o.stderr, "the command has ended (%s); waiting for the rest of its process group", describe(c.cmd.ProcessState))
			}
		case s := <-o.in.signals:
			sig := o.in.got(s)
			warn(c.forward(sig), signalName(sig)+" could not be passed on to the command")
			continue
		case <-c.pauser.asked:
			paused = true
			warn(c.pause(func() bool { return lease.Remaining() > margin(o.length) }),
				"SIGTSTP could not be passed on to the command, so redlock does not stop")
		case <-lost.Done():
		case <-timer.C:
		}
		if over {
			return c.result(lease, warn)
		}
		if left, least := lease.Remaining(), margin(o.length); ended != nil && left <= keep &&
			c.endedMeanwhile(min(least/2, left-least), clock.Now().Sub(due)) {
			continue // there is nothing to end
		}
		if !lease.Valid() {
			if why := whyEnded(lease); isTaken(why) {
				return exitLost, "lost", fmt.Errorf("%s: the command %s", takenAway(why), end(nil, until.Sub(clock.Now())))
			}
		}
		left := lease.Remaining() - keep
		if left <= 0 {
			left = lease.Remaining()
			why := "lease lost: it could not be renewed" + o.renewals.because()
			if paused || clock.Now().Sub(due) > o.length/3 { // for so long that a renewal was left out
				why = "lease lost: redlock stood still, and did not renew it"
			}
			if o.kind.maxHold > 0 && ends.Sub(clock.Now()) <= keep+holdPrecision {
				why = fmt.Sprintf("the longest hold is over (--max-hold %v)", o.kind.maxHold)
			}
			return exitLost, "lost", fmt.Errorf("%s, %v were left: the command %s", why, left.Round(time.Millisecond), end(lost.Done(), left))
		}
		pause := min(left, longestSleep)
		timer.Reset(pause)
		due = clock.Now().Add(pause)
	}
}

// endedMeanwhile reports whether the command has ended by itself. After this process stood still, its timers may be earlier
// than that news, for which it waits as long as the lease allows. late is how late the last timer was.
func (c *child) endedMeanwhile(patience, late time.Duration) bool {
	if late >= longestSleep/10 && patience > 0 {
		news := time.NewTimer(patience)
		defer news.Stop()
		select {
		case <-c.ended:
		case <-news.C:
		}
	}
	return c.hasEnded()
}

// keep is how much of the lease is left when the command gets TERM.
func (o *runner) keep() time.Duration { return o.killAfter + margin(o.length) }

// lostLease is why the lease is over, or so short that a command would be ended as soon as it started; nil: it is neither. Its
// error has an exit code.
func (o *runner) lostLease(lease *redlock.Lease, when string) error {
	switch {
	case !lease.Valid():
		if why := whyEnded(lease); isTaken(why) {
			return &exitError{exitLost, fmt.Errorf("%s %s", takenAway(why), when)}
		}
		return &exitError{exitLost, fmt.Errorf("the lease was lost %s%s", when, o.renewals.because())}
	case lease.Remaining() <= o.keep():
		return &exitError{exitLost, fmt.Errorf("the lease could not be renewed %s%s", when, o.renewals.because())}
	}
	return nil
}

// result is that of a command that has ended, and for whose group nobody waits.
func (c *child) result(lease *redlock.Lease, warn func(error, string)) (code int, reason string, err error) {
	if !lease.Valid() {
		// For example after a suspend: the command ended, but perhaps too late.
		if c.groupAlive() {
			warn(c.kill(), cannotEnd)
		}
		return exitLost, "lost", fmt.Errorf("%s before the command ended (%s)", takenAway(whyEnded(lease)), describe(c.cmd.ProcessState))
	}
	code, reason = exitOf(c.cmd.ProcessState)
	return code, reason, nil
}

// awaitsGroup reports whether a run whose command has ended is over only when the whole process group has ended. With
// --every it is, so that runs never overlap. It is too if a signal ended the command, or told it to end: the others finish what
// they do, and are no daemons that the command left on purpose.
func (o *runner) awaitsGroup(c *child) bool {
	_, reason := exitOf(c.cmd.ProcessState)
	return o.every > 0 || o.in.stop != nil || reason == "signal"
}

// whyEnded is why the lease is no longer valid. Its context ends a moment later than it does, so that cannot say it.
func whyEnded(lease *redlock.Lease) error { return lease.Extend(context.Background()) }

// isTaken reports whether nodes said that the lock is no longer ours. Otherwise too few nodes answered.
func isTaken(lost error) bool {
	var round *redlock.RoundError
	return errors.As(lost, &round) && errors.Is(round, redlock.ErrLost) && round.Granted+round.Unknown < round.Need
}

// takenAway describes why a lease was lost.
func takenAway(lost error) string {
	var round *redlock.RoundError
	if !isTaken(lost) || !errors.As(lost, &round) {
		return "the lease was lost"
	}
	return fmt.Sprintf("the lock was taken away: on %d of %s it is no longer ours (released by force, or deleted, or its servers lost their data)",
		round.Denied, plural(round.Granted+round.Denied+round.Unknown, "node"))
}

// cannotEnd is said of a command that runs as another user, as one under sudo: the system does not let redlock signal it.
const cannotEnd = "the command goes on, and may run beside the next holder of the lock: it cannot be ended"

// end ends the command and its process group: TERM, then KILL after grace, or when no time is left, or when the lease ends.
// A renewal that succeeds meanwhile changes nothing. end returns how the command ended. What cannot be killed it awaits,
// until a signal comes.
func (c *child) end(lost <-chan struct{}, in *inbox, left, grace time.Duration, warn func(error, string)) string {
	began := time.Now()
	var refused error
	rest := c.hasEnded()
	kill := func() {
		refused = c.kill()
		warn(refused, cannotEnd)
	}
	if left > 0 {
		_ = c.terminate() // what cannot get this cannot get KILL either
	}
	timer := time.NewTimer(min(grace, left))
	defer timer.Stop()
	ended := c.ended
	var poll <-chan time.Time // after the command has ended, other processes of its group may still run
	how := ""
wait:
	for {
		select {
		case <-ended:
			ended = nil
			how = "it ended by itself after TERM"
			if !c.groupAlive() {
				break wait
			}
			ticker := time.NewTicker(groupPoll)
			defer ticker.Stop()
			poll = ticker.C
		case <-poll:
			if !c.groupAlive() {
				break wait
			}
		case <-lost:
			kill()
			break wait
		case <-timer.C:
			kill()
			break wait
		}
	}
	for ended != nil {
		select {
		case <-ended:
			ended, how = nil, "killed"
			if refused != nil {
				how = "it could not be killed: " + refused.Error()
			}
		case s := <-in.signals:
			if sig := in.got(s); refused != nil && stops(sig) {
				return fmt.Sprintf("was told to end, and still runs: it could not be killed (%v)", refused)
			}
		}
	}
	lives := ""
	if !c.awaitKilled(in, func() {
		if refused == nil {
			warn(errors.New("a process of its group lives on"), cannotEnd)
		}
	}) {
		lives = ", and still runs: it could not be killed"
	}
	if rest {
		return fmt.Sprintf("had ended (%s), and the rest of its process group was told to end%s", describe(c.cmd.ProcessState), lives)
	}
	if lives != "" {
		lives = ", but the rest of its process group was told to end" + lives
	}
	return fmt.Sprintf("was told to end, and ended %v later (%s, %s)%s", time.Since(began).Round(time.Millisecond), how, describe(c.cmd.ProcessState), lives)
}

// hasEnded reports whether the command itself has ended, and was waited for.
func (c *child) hasEnded() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// awaitKilled waits until the process group has ended. It was killed, but a process of another user, as under sudo, gets no
// signal. It calls tell after a while, and reports false if a signal ends the wait.
func (c *child) awaitKilled(in *inbox, tell func()) bool {
	ticker := time.NewTicker(groupPoll)
	defer ticker.Stop()
	late := time.NewTimer(noticeAfter)
	defer late.Stop()
	for c.groupAlive() {
		select {
		case <-ticker.C:
		case <-late.C:
			tell()
		case s := <-in.signals:
			if stops(in.got(s)) {
				return false
			}
		}
	}
	return true
}
