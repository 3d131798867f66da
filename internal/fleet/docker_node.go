package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/quorumlock/redlock/internal/docker"
)

const (
	redisPort  = "6379"
	clocksDir  = "/fleet-clocks"
	socketsDir = "/fleet" // directory of the socket in the container
)

// container is a node in a container.
type container struct {
	launcher *dockerLauncher
	name     string
	gone     func()
	sockets  string // directory of the socket on the host; "" without packet rules
	port     int
	release  func()
	started  bool // it has started once, so the port is fixed

	id     string
	paused bool
	pid    int
	ip     string     // in the network of the fleet
	rules  [][]string // active rules in the network namespace of pid

	up atomic.Bool // as last known
}

func (c *container) choosePort() error {
	c.release()
	port, release, err := reserve()
	if err != nil {
		c.release = func() {}
		return err
	}
	c.port, c.release = port, release
	return nil
}

func (c *container) password() string { return passwordOf(c.launcher.options.Args) }

func (c *container) address() address {
	return address{network: "tcp", at: net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)), password: c.password()}
}

func (c *container) truth() address {
	if c.cutter() == nil {
		return c.address()
	}
	return address{network: "unix", at: filepath.Join(c.sockets, "redis.sock"), password: c.password()}
}

func (c *container) cutter() cutter {
	if c.launcher.rules == nil || c.launcher.rules.failed.Load() {
		return nil
	}
	return c
}

// alive asks the engine, because a server may end by itself. If the engine does not answer, the last known state
// counts.
func (c *container) alive() bool {
	if !c.up.Load() {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), enginePatience)
	defer cancel()
	state, err := c.launcher.client.Inspect(ctx, c.name)
	if err != nil {
		return !docker.IsAbsent(err)
	}
	return state.State.Running
}

func (c *container) start(ctx context.Context, data Data) error {
	for try := 1; ; try++ {
		err := c.startOnce(ctx, data)
		if err == nil {
			c.started = true
			return nil
		}
		if !errors.Is(err, errPortTaken) || try == startTries || ctx.Err() != nil {
			return err
		}
		if c.started || try == 1 {
			c.release() // some engines refuse a port that another socket is bound to, even if it does not listen
			c.release = func() {}
		} else if err := c.choosePort(); err != nil {
			return err
		}
		data = Empty // a container that has not run is made again, because its port cannot be changed
		if c.started {
			data = Kept
		}
	}
}

func (c *container) startOnce(ctx context.Context, data Data) error {
	if data == Empty || c.id == "" {
		// We cannot delete the files of a container, so an empty node is a new container.
		if err := c.remove(); err != nil {
			return err
		}
		if err := c.create(); err != nil {
			return err
		}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	client := c.launcher.client
	if err := uncut(func(ctx context.Context) error { return client.Start(ctx, c.id) }); err != nil {
		if said := err.Error(); strings.Contains(said, "already allocated") || strings.Contains(said, "already in use") {
			err = fmt.Errorf("%w: %w", errPortTaken, err)
		}
		return err
	}
	c.up.Store(true)
	c.paused, c.rules = false, nil // the rules ended with the former network namespace
	if err := c.await(ctx); err != nil {
		return errors.Join(fmt.Errorf("%w; output of %s:\n%s", err, c.name, c.lastOutput()), c.kill())
	}
	state, err := client.Inspect(ctx, c.id)
	if err != nil {
		return errors.Join(err, c.kill())
	}
	c.pid = state.State.Pid
	c.ip = state.NetworkSettings.Networks[c.launcher.run].IPAddress
	if err := c.checkRules(ctx, c.ip); err != nil {
		return errors.Join(fmt.Errorf("packet rules: %w", err), c.kill())
	}
	return nil
}

// await waits for PONG, or for the end of the container.
func (c *container) await(ctx context.Context) error {
	waiting, stop := context.WithCancel(ctx)
	dead, done := make(chan struct{}), make(chan struct{})
	go func() { // ends with the container or with this function
		defer close(done)
		if err := c.launcher.client.Wait(waiting, c.id); err == nil {
			close(dead)
		}
	}()
	err := c.address().awaitPing(ctx, dead)
	stop()
	<-done
	return err
}

// create takes no context, and neither does any other method that creates or removes something; see uncut.
func (c *container) create() error {
	l := c.launcher
	cmd := []string{
		"redis-server", "--port", redisPort, "--bind", "0.0.0.0", "--protected-mode", "no", "--dir", "/data",
		"--daemonize", "no", "--save", "", "--appendonly", "no",
	}
	spec := docker.Spec{
		Name: c.name, Image: l.image, Labels: ownerLabels(l.run), Network: l.run,
		// Fixed, because ephemeral ports change at every restart; and on this interface only.
		Port: redisPort + "/tcp", HostIP: "127.0.0.1", HostPort: strconv.Itoa(c.port),
	}
	if c.sockets != "" {
		cmd = append(cmd, "--unixsocket", socketsDir+"/redis.sock", "--unixsocketperm", "777")
		spec.Binds = []string{c.sockets + ":" + socketsDir}
	}
	if l.clocks != "" {
		spec.Env = []string{"LD_PRELOAD=" + clocksDir + "/clock.so", clockVariable + "=" + clocksDir + "/" + c.name}
		spec.Binds = append(spec.Binds, l.clocks+":"+clocksDir+":ro")
	}
	spec.Cmd = append(cmd, l.options.Args...)
	return uncut(func(ctx context.Context) (err error) {
		c.id, err = l.client.CreateContainer(ctx, spec)
		return err
	})
}

// lastOutput returns the end of the server's output.
func (c *container) lastOutput() string {
	ctx, cancel := context.WithTimeout(context.Background(), enginePatience)
	defer cancel()
	said, err := c.launcher.client.Logs(ctx, c.id, "15")
	if err != nil {
		return "  (" + err.Error() + ")"
	}
	return "  " + strings.ReplaceAll(strings.TrimSpace(said), "\n", "\n  ")
}

func (c *container) stop(ctx context.Context) error { return c.signal(ctx, "SIGTERM") }

func (c *container) kill() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return c.signal(ctx, "SIGKILL")
}

// signal ends the container. In a paused container the signal is pending until it is unpaused, so SIGKILL ends it
// before it does anything else.
func (c *container) signal(ctx context.Context, signal string) error {
	if c.id == "" {
		return nil
	}
	client := c.launcher.client
	err := client.Kill(ctx, c.id, signal)
	if err != nil && !docker.IsNotRunning(err) && !docker.IsAbsent(err) {
		return err
	}
	if c.paused {
		_ = client.Unpause(ctx, c.id) // the engine may have done it already
	}
	if err := client.Wait(ctx, c.id); err != nil && !docker.IsAbsent(err) {
		return fmt.Errorf("%s did not end: %w", c.name, err)
	}
	c.up.Store(false)
	c.paused, c.rules = false, nil
	c.gone()
	return nil
}

func (c *container) pause() error {
	err := uncut(func(ctx context.Context) error { return c.launcher.client.Pause(ctx, c.id) })
	c.paused = err == nil
	return err
}

func (c *container) resume() error {
	err := uncut(func(ctx context.Context) error { return c.launcher.client.Unpause(ctx, c.id) })
	c.paused = err != nil
	return err
}

func (c *container) save(ctx context.Context) error { return saveAt(ctx, c.truth()) }

func (c *container) cut(mode cutMode) error {
	ctx, cancel := context.WithTimeout(context.Background(), ruleTimeout)
	defer cancel()
	rules, err := c.launcher.rules.replace(ctx, c.pid, c.rules, rulesFor[mode])
	c.rules = rules
	return err
}

// remove removes the container and its volumes. It uses the name, because the call that created it may have timed out.
func (c *container) remove() error {
	err := uncut(func(ctx context.Context) error { return c.launcher.client.Remove(ctx, c.name) })
	if err != nil && !docker.IsAbsent(err) {
		return err
	}
	c.id = ""
	return nil
}

func (c *container) close() error {
	err := c.remove()
	c.up.Store(false)
	c.gone()
	c.release()
	return err
}
