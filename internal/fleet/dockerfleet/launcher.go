package dockerfleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker"

	"github.com/quorumlock/redlock/internal/embeddedredis"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/server"
)

const (
	enginePatience = 2 * time.Second  // for an engine to answer a ping
	callTimeout    = 60 * time.Second // for one call to the engine; only prevents hanging
)

// newPool connects to the engine of DOCKER_HOST, or to the local one, and pings it.
func newPool(ctx context.Context) (*dockertest.Pool, error) {
	pool, err := dockertest.NewPool("")
	if err != nil {
		return nil, fmt.Errorf("docker: %w; check DOCKER_HOST", err)
	}
	ctx, cancel := context.WithTimeout(ctx, enginePatience)
	defer cancel()
	if err := pool.Client.PingWithContext(ctx); err != nil {
		return nil, fmt.Errorf("no Docker engine answers at %s: %w; install and start one (Debian: apt-get install docker.io), be root or in the group docker, or set DOCKER_HOST", pool.Client.Endpoint(), err)
	}
	return pool, nil
}

func available() error {
	_, err := newPool(context.Background())
	return err
}

// A launcher owns the network of a fleet, and the files of this machine that its containers use.
type launcher struct {
	client  *docker.Client
	options fleet.Options
	image   string
	run     string // prefix of all names of this fleet: redlock-<random>
	root    string // temporary directory with the sockets of the nodes; "" without packet rules
	clocks  string // temporary directory with the clock shim and the offset of each node; "" without Options.Clocks
	rules   *packetRules
	logf    fleet.Logf
}

func launch(ctx context.Context, o fleet.Options, logf fleet.Logf) (*launcher, error) {
	pool, err := newPool(ctx)
	if err != nil {
		return nil, err
	}
	image, err := provideImage(ctx, pool.Client, o.Image, logf) // may take as long as a pull
	if err != nil {
		return nil, err
	}
	pool.Client.SetTimeout(callTimeout)
	l := &launcher{client: pool.Client, options: o, image: image, run: "redlock-" + embeddedredis.NewRunID()[:10], logf: logf}
	if l.rules, err = findPacketRules(pool.Client.Endpoint()); err != nil {
		logf("fleet: no packet rules: %v", err)
	} else if l.root, err = os.MkdirTemp("", "fleet-"); err != nil {
		return nil, err
	}
	if o.Clocks {
		if err := l.provideClocks(ctx); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	_, err = l.client.CreateNetwork(docker.CreateNetworkOptions{
		Name: l.run, Driver: "bridge", CheckDuplicate: true, Labels: ownerLabels(l.run),
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("network: %w", err), l.Close())
	}
	return l, nil
}

func (l *launcher) Node(name string, gone func()) (fleet.Backend, error) {
	c := &container{launcher: l, name: l.run + "-" + name, gone: gone, release: func() {}}
	if l.root != "" {
		// The server in the container may run as any user, so any user may create the socket. Only we can enter root.
		c.sockets = filepath.Join(l.root, name)
		if err := errors.Join(os.Mkdir(c.sockets, 0o777), os.Chmod(c.sockets, 0o777)); err != nil {
			return nil, err
		}
	}
	if l.clocks != "" {
		if err := c.Clock().Set(0); err != nil {
			return nil, err
		}
	}
	return c, c.choosePort()
}

// provideClocks builds the shim for this machine's libc. An image with another libc, such as Alpine, cannot load it.
func (l *launcher) provideClocks(ctx context.Context) error {
	var err error
	if l.clocks, err = os.MkdirTemp("", "fleet-clocks-"); err == nil {
		err = os.Chmod(l.clocks, 0o755) // the server in a container may run as any user
	}
	if err == nil {
		_, err = server.BuildShim(ctx, l.clocks)
	}
	if err != nil {
		return fmt.Errorf("clock shim: %w", err)
	}
	return nil
}

// Close removes the network, after its containers.
func (l *launcher) Close() error {
	var err error
	// By its name: the creation may have succeeded although it timed out.
	if err = l.client.RemoveNetwork(l.run); isAbsent(err) {
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

// isAbsent reports whether the object to remove does not exist.
func isAbsent(err error) bool {
	var network *docker.NoSuchNetwork
	var container *docker.NoSuchContainer
	return errors.As(err, &network) || errors.As(err, &container)
}
