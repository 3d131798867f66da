package redlock

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// A lookup asks where a host is. It may take longer than an attempt to connect: a resolver waits five seconds for a name
// server that is away before it asks the next one (resolv.conf(5), timeout). If each attempt asked anew, none would ever
// get as far as that. So a lookup goes on when its attempt is over, and the next one gets what it finds.
type lookup struct {
	life      context.Context // ends it
	done      chan struct{}   // closed when the rest is set
	addresses []net.IPAddr
	err       error
}

const (
	// lookupMax is how long a lookup may take: a name server that is away costs its time again for each domain of search.
	lookupMax = 30 * time.Second
	// lookupKept is how long attempts use what a lookup has found: longer than the pause between two, because the one that
	// waited for it may have no time left to connect. It is short, because an address may change.
	lookupKept = 2 * backoffMax
)

// lookups are those of one host: no more than one runs.
type lookups struct {
	ask func(ctx context.Context, host string) ([]net.IPAddr, error)

	mu   sync.Mutex // guards last
	last *lookup    // nil: there was none, or what it found is old
}

// find returns the addresses of the host. It waits no longer than ctx lasts. A lookup that it starts ends with life.
func (l *lookups) find(ctx, life context.Context, host string) ([]net.IPAddr, error) {
	for {
		running := l.join(life, host)
		select {
		case <-running.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("lookup %s: the name server (DNS) has not answered yet", host)
		}
		if !running.wasCut() || life.Err() != nil {
			return running.addresses, running.err
		}
	}
}

// join returns the lookup that runs, or has just ended, or a new one.
func (l *lookups) join(life context.Context, host string) *lookup {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last := l.last; last != nil {
		select {
		case <-last.done:
			if !last.wasCut() {
				return last
			}
		default:
			return last
		}
	}
	started := &lookup{life: life, done: make(chan struct{})}
	l.last = started
	go func() { // ends with life
		ctx, cancel := context.WithTimeout(life, lookupMax)
		defer cancel()
		started.addresses, started.err = l.ask(ctx, host)
		close(started.done)
		time.AfterFunc(lookupKept, func() { l.forget(started) })
	}()
	return started
}

// wasCut reports whether the lookup failed because the life of who began it ended. That says nothing of the host.
func (l *lookup) wasCut() bool { return l.err != nil && l.life.Err() != nil }

func (l *lookups) forget(old *lookup) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == old {
		l.last = nil
	}
}

func askResolver(ctx context.Context, host string) ([]net.IPAddr, error) {
	return net.DefaultResolver.LookupIPAddr(ctx, host)
}

// dialAddress connects to the node's host, at the first of its addresses that answers. life is that of a lookup.
func (e *endpoint) dialAddress(ctx, life context.Context) (net.Conn, error) {
	var dialer net.Dialer
	host, port, err := net.SplitHostPort(e.address)
	if _, isName := netip.ParseAddr(host); e.network != "tcp" || err != nil || isName == nil {
		return dialer.DialContext(ctx, e.network, e.address)
	}
	addresses, err := e.names.find(ctx, life, host)
	if err != nil {
		return nil, err
	}
	var first error
	for i, address := range addresses {
		opened, err := dialPart(ctx, len(addresses)-i, net.JoinHostPort(address.String(), port))
		if err == nil {
			return opened, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

// dialPart connects within one of so many parts of the time that is left.
func dialPart(ctx context.Context, parts int, address string) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok {
		part, cancel := context.WithTimeout(ctx, time.Until(deadline)/time.Duration(parts))
		defer cancel()
		ctx = part
	}
	var dialer net.Dialer
	return dialer.DialContext(ctx, "tcp", address)
}
