package fault

import (
	"context"
	"errors"
	"time"

	"github.com/quorumlock/redlock/internal/fleet"
)

// patience is how long a healthy server may take to execute a command of a fault.
const patience = 10 * time.Second

// change applies or undoes the fault.
func (s *Site) change(ctx context.Context, f Fault, begin bool) error {
	if f.Verb == ClientClock {
		ahead := time.Duration(0)
		if begin {
			ahead = f.By
		}
		s.clock(f.Client).Store(int64(ahead))
		return nil
	}
	p, err := s.place(f.Node)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch f.Verb {
	case Cut:
		return s.cut(p, f.Client, nothing, begin)
	case CutReplies:
		return s.cut(p, f.Client, noReplies, begin)
	case Delay:
		p.slow(f.Client, f.By, begin)
		return nil
	case Replace:
		return s.replace(p)
	case Follow:
		return s.follow(ctx, p)
	case Lag:
		if !begin {
			return nil // its replica never gets what it missed
		}
		return p.lag()
	case Promote:
		return s.promote(ctx, p)
	case Detach:
		return p.detach(ctx)
	case Failback:
		return s.failback(ctx, p)
	case Unsubscribe:
		return p.unsubscribe(ctx, begin)
	}
	return f.server(ctx, p.server.Load(), begin)
}

// server applies or undoes a fault of the server itself.
func (f Fault) server(ctx context.Context, n *fleet.Node, begin bool) error {
	switch f.Verb {
	case Kill:
		if begin {
			return n.Kill()
		}
		return n.Start(ctx, fleet.Empty)
	case RestartEmpty:
		return restart(ctx, n, fleet.Empty)
	case RestartOldRDB:
		return restart(ctx, n, fleet.Kept)
	case Pause:
		if begin {
			return n.Pause()
		}
		return n.Resume()
	case Clock:
		if begin {
			return n.SetClock(f.By)
		}
		return n.SetClock(0)
	case Save:
		return n.Save(ctx)
	case FlushAll:
		return command(ctx, n, "FLUSHALL")
	}
	return errors.New("no such fault") // check excludes this
}

func restart(ctx context.Context, n *fleet.Node, data fleet.Data) error {
	if err := n.Kill(); err != nil {
		return err
	}
	return n.Start(ctx, data)
}

// command sends a command that bypasses every cut.
func command(ctx context.Context, n *fleet.Node, name string, args ...any) error {
	conn, err := n.DialDirect(ctx, patience)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Do(name, args...)
	return err
}

// cut drops packets at the server if the fleet can do that and all clients are affected. Otherwise it cuts the ways of
// the clients.
func (s *Site) cut(p *place, client int, m mode, begin bool) error {
	if !begin {
		m = flowing
	}
	if client == 0 && s.fleet.Kind() == fleet.Docker {
		n := p.server.Load()
		err := map[mode]func() error{flowing: n.Heal, noReplies: n.CutReplies, nothing: n.Cut}[m]()
		if !errors.Is(err, fleet.ErrUnsupported) {
			return err
		}
	}
	if client == 0 {
		p.mode = m
	}
	for _, w := range p.ways {
		if w.client == client {
			w.mode = m
		}
		if client == 0 || w.client == client {
			p.set(w)
		}
	}
	return nil
}

func (p *place) slow(client int, by time.Duration, begin bool) {
	if !begin {
		by = 0
	}
	if client == 0 {
		p.delay = by
	}
	for _, w := range p.ways {
		if w.client == client {
			w.delay = by
		}
		p.set(w)
	}
}
