package fence

import (
	"context"
	"sync"
)

// A Gate protects resources that are in the memory of this process. It remembers the largest fencing token of each
// resource. The zero value is ready to use. A Gate is safe for concurrent use, and must not be copied after its first
// use.
//
// It remembers each name as long as it exists, with some 50 bytes beside the name itself. To forget a name sooner would
// let a stale holder in. If names come and go, give each object a Gate of its own.
//
// It forgets everything when the process ends. The next process accepts any token, until a larger one comes. So a Gate
// alone protects only what ends with the process. What lives longer needs a [Table] or a [Script]; or store the token
// with the data, and give it to [Gate.Check] before the process serves anybody.
type Gate struct {
	mu      sync.Mutex        // guards the rest; nothing waits under it
	highest map[string]uint64 // the largest token seen, by resource
	running map[string]*works // by resource; only while work runs
}

// works is the work that runs for one resource. All of it has the same token.
type works struct {
	token uint64
	count int           // guarded by the Gate's mu
	over  chan struct{} // closed when count is 0 again
}

// Do runs work and returns its error, unless the token is smaller than the largest one that the resource has seen. Then
// work does not run, and the error is a [*StaleError].
//
// Work under different tokens of one resource never runs at the same time. From the moment at which Do is called with a
// larger token, smaller ones are refused. Work under a smaller token that is already running is not interrupted: Do
// waits for its end. So give work a time limit. Work under the same token runs at the same time, and so does work for
// other resources.
//
// If ctx ends before work has begun, work does not run, and the error is ctx.Err(). A token that is 0, or not below
// 2^53, is [ErrInvalid].
//
// In work, do not call Do for another resource or with another token: calls can then wait for each other, until their
// contexts end.
func (g *Gate) Do(ctx context.Context, resource string, token uint64, work func() error) error {
	if err := checkToken(token); err != nil {
		return err
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		smaller, err := g.enter(resource, token)
		if err != nil {
			return err
		}
		if smaller == nil {
			break
		}
		select {
		case <-smaller.over:
		case <-ctx.Done():
		}
	}
	defer g.leave(resource)
	return work()
}

// Check is Do without work. After it has returned nil, no work under a smaller token runs or will run. Call it before
// you read what you will change. Between Check and what follows, a larger token may come: change the resource in Do.
func (g *Gate) Check(ctx context.Context, resource string, token uint64) error {
	return g.Do(ctx, resource, token, func() error { return nil })
}

// enter notes the token and lets the caller in. If it returns work under a smaller token, the caller is not in: it has
// to wait for the end of this work, and then to enter again.
func (g *Gate) enter(resource string, token uint64) (smaller *works, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if highest := g.highest[resource]; token < highest {
		return nil, &StaleError{Resource: resource, Token: token, Highest: highest}
	}
	if g.highest == nil {
		g.highest, g.running = map[string]uint64{}, map[string]*works{}
	}
	g.highest[resource] = token
	running := g.running[resource]
	if running == nil {
		running = &works{token: token, over: make(chan struct{})}
		g.running[resource] = running
	}
	if running.token != token {
		return running, nil
	}
	running.count++
	return nil, nil
}

// leave ends what enter began.
func (g *Gate) leave(resource string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	running := g.running[resource] // the caller's, because others come in only when it is gone
	running.count--
	if running.count == 0 {
		delete(g.running, resource)
		close(running.over)
	}
}
