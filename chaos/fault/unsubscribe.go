package fault

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlock/redlock/internal/fleet"
)

// killEvery is the interval between two kills.
const killEvery = 20 * time.Millisecond

// A killing repeatedly ends the subscriptions at a place.
type killing struct {
	stop context.CancelFunc
	done chan struct{} // closed when it has ended
}

// unsubscribe begins or ends the killing. Later errors, for example of a server that is down, are ignored.
func (p *place) unsubscribe(ctx context.Context, begin bool) error {
	if !begin {
		if p.killing != nil {
			p.killing.stop()
			<-p.killing.done
			p.killing = nil
		}
		return nil
	}
	if p.killing != nil {
		return errors.New("its subscriptions are already being killed")
	}
	if err := p.killSubscriptions(ctx); err != nil {
		return fmt.Errorf("%w: CLIENT KILL: %w", fleet.ErrUnsupported, err)
	}
	going, stop := context.WithCancel(context.WithoutCancel(ctx))
	k := &killing{stop: stop, done: make(chan struct{})}
	p.killing = k
	go func() { // ends with the fault, at the latest in Site.HealAll
		defer close(k.done)
		ticker := time.NewTicker(killEvery)
		defer ticker.Stop()
		for {
			select {
			case <-going.Done():
				return
			case <-ticker.C:
				_ = p.killSubscriptions(going)
			}
		}
	}()
	return nil
}

func (p *place) killSubscriptions(ctx context.Context) error {
	return command(ctx, p.server.Load(), "CLIENT", "KILL", "TYPE", "pubsub")
}
