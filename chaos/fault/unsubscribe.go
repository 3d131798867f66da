package fault

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlock/redlock/internal/fleet"
)

// killEvery is how long a subscription may live.
const killEvery = 20 * time.Millisecond

// A killing ends the subscriptions at a place again and again.
type killing struct {
	stop context.CancelFunc
	done chan struct{} // closed when it has ended
}

// unsubscribe begins or ends the killing. What a server that is down says to it is of no interest.
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
		return errors.New("its subscriptions are being killed already")
	}
	if err := p.killSubscriptions(ctx); err != nil {
		return fmt.Errorf("%w: CLIENT KILL: %w", fleet.ErrUnsupported, err)
	}
	going, stop := context.WithCancel(context.WithoutCancel(ctx))
	k := &killing{stop: stop, done: make(chan struct{})}
	p.killing = k
	go func() { // ends with the fault; Site.HealAll ends that at the latest
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
