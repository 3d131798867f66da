package fault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/quorumlock/redlock/internal/fleet"
)

// A replica is a spare server that follows the server at a place.
type replica struct {
	node *fleet.Node
	feed *fleet.View // the way from the primary to the replica; nil: a direct connection
}

// spare takes a running server that has no address so far.
func (s *Site) spare() (*fleet.Node, error) {
	if len(s.spares) == 0 {
		return nil, errors.New("there is no spare server; start the fleet with more nodes than addresses")
	}
	n := s.spares[0]
	s.spares = s.spares[1:]
	return n, nil
}

// replace makes a spare server take over the address. The former server is killed: an address that alternates between
// two servers is not a fault of this harness.
func (s *Site) replace(p *place) error {
	n, err := s.spare()
	if err != nil {
		return err
	}
	return p.lead(n)
}

// lead makes n the server at the address, and kills the former one.
func (p *place) lead(n *fleet.Node) error {
	err := p.server.Load().Kill()
	p.server.Store(n)
	for _, w := range p.ways {
		err = errors.Join(err, w.view.Lead(n))
	}
	return err
}

// follow makes a spare server the replica of the server at the place, and waits until it has caught up.
func (s *Site) follow(ctx context.Context, p *place) error {
	n, err := s.spare()
	if err != nil {
		return err
	}
	primary := p.server.Load()
	r := &replica{node: n}
	host, port, err := primary.PeerAddress()
	if err != nil {
		return err
	}
	if s.fleet.Kind() == fleet.Process { // docker drops packets instead; see lag
		if r.feed, err = primary.NewView(); err != nil {
			return err
		}
		u, err := url.Parse(r.feed.URL())
		if err != nil {
			return err
		}
		if host, port, err = net.SplitHostPort(u.Host); err != nil {
			return err
		}
	}
	p.replica = r
	return s.replicate(ctx, primary, n, host, port)
}

// replicate makes a server the replica of the primary at that address, and waits until it has caught up.
func (s *Site) replicate(ctx context.Context, primary, replica *fleet.Node, host, port string) error {
	// By default a primary waits five seconds for more replicas before it sends its data.
	if err := command(ctx, primary, "CONFIG", "SET", "repl-diskless-sync-delay", "0"); err != nil {
		return err
	}
	if err := command(ctx, replica, "REPLICAOF", host, port); err != nil {
		return fmt.Errorf("%w: replicas on a %s fleet: %w", fleet.ErrUnsupported, s.fleet.Kind(), err)
	}
	return awaitInStep(ctx, replica)
}

// detach makes the replica a master, as in a failover that the clients do not follow.
func (p *place) detach(ctx context.Context) error {
	if p.replica == nil {
		return errors.New("it has no replica")
	}
	return command(ctx, p.replica.node, "REPLICAOF", "NO", "ONE")
}

// failback makes the server at the place a replica of its former replica, and then a master again. It is still the same
// process with the same run id, but it has the data of the other server.
func (s *Site) failback(ctx context.Context, p *place) error {
	r := p.replica
	if r == nil {
		return errors.New("it has no replica")
	}
	host, port, err := r.node.PeerAddress()
	if err != nil {
		return err
	}
	server := p.server.Load()
	if err := s.replicate(ctx, r.node, server, host, port); err != nil {
		return err
	}
	p.replica = nil
	return command(ctx, server, "REPLICAOF", "NO", "ONE")
}

func awaitInStep(ctx context.Context, n *fleet.Node) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := n.DialDirect(ctx, patience)
	if err != nil {
		return err
	}
	defer conn.Close()
	for {
		info, err := redis.String(conn.Do("INFO", "replication"))
		if err != nil {
			return err
		}
		if strings.Contains(info, "master_link_status:up") {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s has not caught up with its primary: %w", n.Name(), ctx.Err())
		case <-time.After(5 * time.Millisecond): // Redis sends no notification
		}
	}
}

// lag cuts the replica off. Pausing it would not be enough: when it wakes up, it applies what is in its socket.
func (p *place) lag() error {
	switch {
	case p.replica == nil:
		return errors.New("it has no replica")
	case p.replica.feed != nil:
		p.replica.feed.Cut()
		return nil
	}
	return p.replica.node.Cut()
}

// promote kills the primary and gives its address to the replica, as a failover does.
func (s *Site) promote(ctx context.Context, p *place) error {
	r := p.replica
	if r == nil {
		return errors.New("it has no replica")
	}
	p.replica = nil
	if err := p.server.Load().Kill(); err != nil {
		return err
	}
	// While the replica is still cut off, so that it does not receive data that the dead primary had sent.
	if err := command(ctx, r.node, "REPLICAOF", "NO", "ONE"); err != nil {
		return err
	}
	if r.feed == nil {
		if err := r.node.Heal(); err != nil {
			return err
		}
	}
	return p.lead(r.node)
}
