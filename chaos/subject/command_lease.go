package subject

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// A commandLease is a lock that a program was granted.
type commandLease struct {
	client *commandClient
	reply  reply
	until  time.Time   // a TTL from the call that acquired it
	timed  atomic.Bool // the program cannot say whether it is valid: until counts

	lost chan struct{} // closed under mu of the client
}

func (l *commandLease) lose() {
	select {
	case <-l.lost:
	default:
		close(l.lost)
	}
}

// Valid asks the program. One that has ended believes nothing.
func (l *commandLease) Valid() bool {
	select {
	case <-l.lost:
		return false
	default:
	}
	if l.client.whyBroken() != nil {
		return false
	}
	if l.timed.Load() {
		return time.Now().Before(l.until)
	}
	ctx, done := context.WithTimeout(context.Background(), answerPatience)
	defer done()
	r, err := l.client.ask(ctx, request{Op: "valid", Lease: l.reply.Lease})
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		l.client.fail(fmt.Errorf("the command did not answer within %v whether a lease is valid", answerPatience))
		return false
	case err != nil:
		return false
	case r.Error != "":
		l.timed.Store(true)
		return time.Now().Before(l.until)
	}
	return *r.OK
}

func (l *commandLease) Lost() <-chan struct{} { return l.lost }
func (l *commandLease) Fence() uint64         { return l.reply.Fence }
func (l *commandLease) Token() string         { return l.reply.Token }
func (l *commandLease) Untold() []string      { return untold(l.timed.Load(), l.reply.Fence == 0) }

func (l *commandLease) Release(ctx context.Context) error {
	r, err := l.client.ask(ctx, request{Op: "release", Lease: l.reply.Lease})
	l.client.mu.Lock()
	if l.client.leases[l.reply.Lease] == l { // its id may be that of another lease by now
		delete(l.client.leases, l.reply.Lease)
	}
	l.client.mu.Unlock()
	switch {
	case err != nil:
		return err
	case r.Error != "":
		return errors.New(r.Error)
	case !*r.OK:
		return errNotOurs
	}
	return nil
}
