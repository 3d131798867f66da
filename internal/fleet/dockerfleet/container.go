package dockerfleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/ory/dockertest/v3/docker"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/server"
)

const (
	redisPort  = docker.Port("6379/tcp")
	clocksDir  = "/fleet-clocks"
	socketsDir = "/fleet" // directory of the socket in the container
)

// container is a node in a container.
//
// It does not use RunWithOptions of dockertest. That function takes no context, leaves a container behind that it
// cannot start, binds ports on every interface, and uses a stop signal that Redis ignores.
type container struct {
	launcher *launcher
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
	port, release, err := server.Reserve()
	if err != nil {
		c.release = func() {}
		return err
	}
	c.port, c.release = port, release
	return nil
}

func (c *container) Address() server.Address { return server.TCP(c.port, c.launcher.options.Args) }

func (c *container) Direct() server.Address {
	if c.Cutter() == nil {
		return c.Address()
	}
	return server.Unix(filepath.Join(c.sockets, "redis.sock"), c.launcher.options.Args)
}

func (c *container) PeerAddress() (host, port string) { return c.ip, redisPort.Port() }

func (c *container) Clock() server.Clock {
	if c.launcher.clocks == "" {
		return ""
	}
	return server.Clock(filepath.Join(c.launcher.clocks, c.name))
}

// Alive asks the engine, because a server may end by itself. If the engine does not answer, the last known state
// counts.
func (c *container) Alive() bool {
	if !c.up.Load() {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), enginePatience)
	defer cancel()
	state, err := c.launcher.client.InspectContainerWithContext(c.name, ctx)
	if err != nil {
		return !isAbsent(err)
	}
	return state.State.Running
}

func (c *container) Start(ctx context.Context, data fleet.Data) error {
	for try := 1; ; try++ {
		err := c.startOnce(ctx, data)
		if err == nil {
			c.started = true
			return nil
		}
		if !errors.Is(err, server.ErrPortTaken) || try == server.StartTries || ctx.Err() != nil {
			return err
		}
		if c.started || try == 1 {
			c.release() // some engines refuse a port that another socket is bound to, even if it does not listen
			c.release = func() {}
		} else if err := c.choosePort(); err != nil {
			return err
		}
		data = fleet.Empty // a container that has not run is made again, because its port cannot be changed
		if c.started {
			data = fleet.Kept
		}
	}
}

func (c *container) startOnce(ctx context.Context, data fleet.Data) error {
	if data == fleet.Empty || c.id == "" {
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
	if err := client.StartContainer(c.id, nil); err != nil {
		if said := err.Error(); strings.Contains(said, "already allocated") || strings.Contains(said, "already in use") {
			err = fmt.Errorf("%w: %w", server.ErrPortTaken, err)
		}
		return err
	}
	c.up.Store(true)
	c.paused, c.rules = false, nil // the rules ended with the former network namespace
	if err := c.await(ctx); err != nil {
		return errors.Join(fmt.Errorf("%w; output of %s:\n%s", err, c.name, c.lastOutput()), c.Kill())
	}
	state, err := client.InspectContainerWithContext(c.id, ctx)
	if err != nil {
		return errors.Join(err, c.Kill())
	}
	c.pid = state.State.Pid
	c.ip = addressOf(state, c.launcher.run)
	if err := c.checkRules(ctx, c.ip); err != nil {
		return errors.Join(fmt.Errorf("packet rules: %w", err), c.Kill())
	}
	return nil
}

// await waits for PONG, or for the end of the container.
func (c *container) await(ctx context.Context) error {
	waiting, stop := context.WithCancel(ctx)
	dead, done := make(chan struct{}), make(chan struct{})
	go func() { // ends with the container or with this function
		defer close(done)
		if _, err := c.launcher.client.WaitContainerWithContext(c.id, waiting); err == nil {
			close(dead)
		}
	}()
	err := c.Address().AwaitPing(ctx, dead)
	stop()
	<-done
	return err
}

func addressOf(state *docker.Container, network string) string {
	if state.NetworkSettings == nil {
		return ""
	}
	return state.NetworkSettings.Networks[network].IPAddress
}

// create takes no context, and neither does any other method that creates or removes something. The engine continues
// with an abandoned call, so its result might appear after Close has looked for it.
func (c *container) create() error {
	l := c.launcher
	cmd := []string{
		"redis-server", "--port", redisPort.Port(), "--bind", "0.0.0.0", "--protected-mode", "no", "--dir", "/data",
		"--daemonize", "no", "--save", "", "--appendonly", "no",
	}
	host := &docker.HostConfig{
		NetworkMode: l.run,
		// Fixed, because ephemeral ports change at every restart; and on this interface only.
		PortBindings: map[docker.Port][]docker.PortBinding{redisPort: {{HostIP: "127.0.0.1", HostPort: strconv.Itoa(c.port)}}},
	}
	if c.sockets != "" {
		cmd = append(cmd, "--unixsocket", socketsDir+"/redis.sock", "--unixsocketperm", "777")
		host.Binds = []string{c.sockets + ":" + socketsDir}
	}
	var environment []string
	if l.clocks != "" {
		environment = []string{"LD_PRELOAD=" + clocksDir + "/clock.so", server.ClockVariable + "=" + clocksDir + "/" + c.name}
		host.Binds = append(host.Binds, l.clocks+":"+clocksDir+":ro")
	}
	made, err := l.client.CreateContainer(docker.CreateContainerOptions{
		Name: c.name,
		Config: &docker.Config{
			Image: l.image, Cmd: append(cmd, l.options.Args...), Env: environment, Labels: ownerLabels(l.run), StopSignal: "SIGTERM",
			ExposedPorts: map[docker.Port]struct{}{redisPort: {}},
		},
		HostConfig:       host,
		NetworkingConfig: &docker.NetworkingConfig{EndpointsConfig: map[string]*docker.EndpointConfig{l.run: {}}},
	})
	if err != nil {
		return err
	}
	c.id = made.ID
	return nil
}

// lastOutput returns the end of the server's output.
func (c *container) lastOutput() string {
	ctx, cancel := context.WithTimeout(context.Background(), enginePatience)
	defer cancel()
	var said bytes.Buffer
	err := c.launcher.client.Logs(docker.LogsOptions{
		Context: ctx, Container: c.id, OutputStream: &said, ErrorStream: &said, Stdout: true, Stderr: true, Tail: "15",
	})
	if err != nil {
		return "  (" + err.Error() + ")"
	}
	return "  " + strings.ReplaceAll(strings.TrimSpace(said.String()), "\n", "\n  ")
}

func (c *container) Stop(ctx context.Context) error { return c.signal(ctx, docker.SIGTERM) }

func (c *container) Kill() error {
	ctx, cancel := context.WithTimeout(context.Background(), server.StopTimeout)
	defer cancel()
	return c.signal(ctx, docker.SIGKILL)
}

// signal ends the container. In a paused container the signal is pending until it is unpaused, so SIGKILL ends it
// before it does anything else.
func (c *container) signal(ctx context.Context, signal docker.Signal) error {
	if c.id == "" {
		return nil
	}
	client := c.launcher.client
	var down *docker.ContainerNotRunning
	err := client.KillContainer(docker.KillContainerOptions{ID: c.id, Signal: signal, Context: ctx})
	if err != nil && !errors.As(err, &down) && !isAbsent(err) {
		return err
	}
	if c.paused {
		_ = client.UnpauseContainer(c.id) // the engine may have done it already
	}
	if _, err := client.WaitContainerWithContext(c.id, ctx); err != nil && !isAbsent(err) {
		return fmt.Errorf("%s did not end: %w", c.name, err)
	}
	c.up.Store(false)
	c.paused, c.rules = false, nil
	c.gone()
	return nil
}

func (c *container) Pause() error {
	err := c.launcher.client.PauseContainer(c.id)
	c.paused = err == nil
	return err
}

func (c *container) Resume() error {
	err := c.launcher.client.UnpauseContainer(c.id)
	c.paused = err != nil
	return err
}

func (c *container) Save(ctx context.Context) error { return c.Direct().Save(ctx) }

// remove removes the container and its volumes. It uses the name, because the call that created it may have timed out.
func (c *container) remove() error {
	err := c.launcher.client.RemoveContainer(docker.RemoveContainerOptions{ID: c.name, Force: true, RemoveVolumes: true})
	if err != nil && !isAbsent(err) {
		return err
	}
	c.id = ""
	return nil
}

func (c *container) Close() error {
	err := c.remove()
	c.up.Store(false)
	c.gone()
	c.release()
	return err
}
