package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/quorumlock/redlock/internal/docker"
	"github.com/quorumlock/redlock/internal/embeddedredis"
)

const (
	enginePatience = 2 * time.Second  // for an engine to answer a ping
	callTimeout    = 60 * time.Second // for one call to the engine; only prevents hanging
)

// newEngine connects to the engine of DOCKER_HOST, or to the local one, and pings it.
func newEngine(ctx context.Context) (*docker.Client, error) {
	client, err := docker.New()
	if err != nil {
		return nil, fmt.Errorf("docker: %w; check DOCKER_HOST", err)
	}
	ctx, cancel := context.WithTimeout(ctx, enginePatience)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		return nil, fmt.Errorf("no Docker engine answers at %s: %w; install and start one (Debian: apt-get install docker.io), be root or in the group docker, or set DOCKER_HOST", client.Endpoint(), err)
	}
	return client, nil
}

func dockerAvailable() error {
	_, err := newEngine(context.Background())
	return err
}

type dockerLauncher struct {
	client  *docker.Client
	options Options
	image   string
	run     string // prefix of all names of this fleet: redlock-<random>
	root    string // temporary directory with the sockets of the nodes; "" without packet rules
	clocks  string // temporary directory with the clock shim and the offset of each node; "" without Options.Clocks
	rules   *packetRules
	log     logger
}

func newDockerLauncher(ctx context.Context, o Options, log logger) (*dockerLauncher, error) {
	client, err := newEngine(ctx)
	if err != nil {
		return nil, err
	}
	image, err := provideImage(ctx, client, o.Image, log) // may take as long as a pull
	if err != nil {
		return nil, err
	}
	l := &dockerLauncher{client: client, options: o, image: image, run: "redlock-" + embeddedredis.NewRunID()[:10], log: log}
	if l.rules, err = findPacketRules(client.Endpoint()); err != nil {
		log.printf("fleet: no packet rules: %v", err)
	} else if l.root, err = os.MkdirTemp("", "fleet-"); err != nil {
		return nil, err
	}
	if o.Clocks {
		if err := l.provideClocks(ctx); err != nil {
			return nil, errors.Join(err, l.close())
		}
	}
	err = uncut(func(ctx context.Context) error { return l.client.CreateNetwork(ctx, l.run, ownerLabels(l.run)) })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("network: %w", err), l.close())
	}
	return l, nil
}

func (l *dockerLauncher) node(name string, gone func()) (backend, error) {
	c := &container{launcher: l, name: l.run + "-" + name, gone: gone, release: func() {}}
	if l.root != "" {
		// The server in the container may run as any user, so any user may create the socket. Only we can enter root.
		c.sockets = filepath.Join(l.root, name)
		if err := errors.Join(os.Mkdir(c.sockets, 0o777), os.Chmod(c.sockets, 0o777)); err != nil {
			return nil, err
		}
	}
	if l.clocks != "" {
		if err := c.clock().set(0); err != nil {
			return nil, err
		}
	}
	return c, c.choosePort()
}

// provideClocks builds the shim for this machine's libc. An image with another libc, such as Alpine, cannot load it.
func (l *dockerLauncher) provideClocks(ctx context.Context) error {
	var err error
	if l.clocks, err = os.MkdirTemp("", "fleet-clocks-"); err == nil {
		err = os.Chmod(l.clocks, 0o755) // the server in a container may run as any user
	}
	if err == nil {
		_, err = buildShim(ctx, l.clocks)
	}
	if err != nil {
		return fmt.Errorf("clock shim: %w", err)
	}
	return nil
}

func (c *container) clock() clockFile {
	if c.launcher.clocks == "" {
		return ""
	}
	return clockFile(filepath.Join(c.launcher.clocks, c.name))
}

func (c *container) peerAddress() (host, port string) { return c.ip, redisPort }

// close removes the network, after its containers.
func (l *dockerLauncher) close() error {
	// By its name: the creation may have succeeded although it timed out.
	err := uncut(func(ctx context.Context) error { return l.client.RemoveNetwork(ctx, l.run) })
	if docker.IsAbsent(err) {
		err = nil
	}
	if l.root != "" {
		err = errors.Join(err, os.RemoveAll(l.root))
	}
	if l.clocks != "" {
		err = errors.Join(err, os.RemoveAll(l.clocks))
	}
	return err
}

// uncut makes a call that no caller may cut short. The engine continues with an abandoned call, so its result might
// appear after close has looked for it.
func uncut(call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	return call(ctx)
}
