package traffic

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/quorumlock/redlock/chaos/subject"
)

// IsGiver reports whether the lock can be handed to another client.
func (h *Held) IsGiver() bool {
	_, gives := h.lease.(subject.Giver)
	return gives
}

// HandOver hands the lock to another actor, or to the same one, and returns what that one holds. An error means that
// nobody holds the lock, as far as this process knows.
func (h *Held) HandOver(ctx context.Context, to *Actor) (*Held, error) {
	h.leave(true)
	var ticket string
	err := h.actor.call(ctx, "detach", func() (err error) {
		ticket, err = h.lease.(subject.Giver).Detach(ctx)
		return err
	})
	if err != nil { // the lease may be what it was before
		_ = h.actor.call(ctx, "release", func() error { return h.lease.Release(ctx) })
	}
	h.left(err)
	if err != nil {
		return nil, err
	}
	client := to.current()
	return to.begin(ctx, h.guarded, h.want, h.Op, "adopt", func(ctx context.Context) (subject.Lease, error) {
		taker, takes := client.(subject.Taker)
		if !takes {
			return nil, errors.New("the subject's leases have a method Detach, but its clients have no method Adopt")
		}
		return taker.Adopt(ctx, ticket)
	})
}

// Downgrade makes a reader of the writer. An error means that the lock is held by nobody, as far as this process knows.
func (h *Held) Downgrade(ctx context.Context) (*Held, error) {
	h.leave(true)
	reader, err := h.actor.begin(ctx, h.guarded, subject.Want{Reader: true}, h.Op, "downgrade",
		func(ctx context.Context) (subject.Lease, error) { return h.lease.(subject.Downgrader).Downgrade(ctx) })
	if err != nil {
		_ = h.actor.call(ctx, "release", func() error { return h.lease.Release(ctx) })
	}
	h.left(err)
	return reader, err
}

const (
	handsOver  = 2 // one holder in so many hands the lock over, if it can be
	downgrades = 4 // and so many writers become readers
)

// passOn lets some holders hand the lock over, and some writers become readers. It returns who holds the lock then; nil
// if nobody does.
func (h *Held) passOn(ctx context.Context, peers []*Actor, r *rand.Rand) (next *Held, passed bool) {
	switch h.lease.(type) {
	case subject.Giver:
		if len(peers) > 0 && r.IntN(handsOver) == 0 {
			next, _ = h.HandOver(ctx, peers[r.IntN(len(peers))]) // the error is recorded
			return next, true
		}
	case subject.Downgrader:
		if r.IntN(downgrades) == 0 {
			next, _ = h.Downgrade(ctx)
			return next, true
		}
	}
	return h, false
}
