package redlock

import (
	"context"
	"errors"
	"sync"
)

// Each runs do for every item, under the lock that lock returns for it, for up to parallel items at a time. It returns
// when all are done: an error for each item, at the item's index; nil means that do ran, or that the item was skipped.
// The errors are those of [Guard] with the same ifHeld: Each(ctx, items, 1, lock, do, ifHeld) differs from calling that
// function in a loop only in the order. [errors.Join] makes one error of them. lock sets what else a lock has: its TTL,
// its label.
//
// With [Wait], items that others hold do not hold up the rest: each item is tried first, and only when all have been
// tried are those waited for that were held. To be told which items were not done, use [Fail]; [Skip] says nil for
// them. When ctx ends, no further item begins, and the rest of the items have ctx.Err(). If parallel is below 1, none
// begins, and all have [ErrInvalid].
//
// do's context carries the lease of its item ([LeaseFrom]), and ends with it. One item's error does not end the others.
// A panic of do ends the batch: items that run are finished, and then Each panics with the same value. Items that wait for
// their lock then are not waited for, and do not begin.
//
// Batches cannot deadlock with each other, whatever items they share and in whatever order: each goroutine holds the
// lock of one item, and waits for no other while it holds it. That does not cover locks that ctx holds, or that do
// acquires. With [Wait], items with the same lock run one after the other. With [Fail] and [Skip], one whose lock another
// item of the batch has at that moment counts as held.
func Each[A any](
	ctx context.Context, items []A, parallel int, lock func(A) Lock, do func(context.Context, A) error, ifHeld IfHeld,
) []error {
	b := &bulk{errs: make([]error, len(items))}
	err := errUnfinished
	switch {
	case parallel < 1:
		err = invalid("parallel", "%d is below 1", parallel)
	case ifHeld > Skip:
		err = invalid("ifHeld", "%d is none of Wait, Fail and Skip", ifHeld)
	}
	for i := range b.errs {
		b.errs[i] = err
	}
	if err != errUnfinished {
		return b.errs
	}
	// The locks are acquired under a context that also ends with a panic: nobody knows how long others hold theirs. What runs
	// goes on under ctx.
	acquiring, stop := context.WithCancel(ctx)
	defer stop()
	run := func(lease *Lease, i int) error {
		return lease.run(ctx, func(ctx context.Context, _ *Lease) error {
			if err := acquiring.Err(); err != nil { // it ended at the moment at which the lock was acquired
				return err
			}
			return do(ctx, items[i])
		})
	}
	guarded := func(i int) error {
		lease, err := lock(items[i]).acquireIf(acquiring, ifHeld)
		if lease == nil {
			return err
		}
		return run(lease, i)
	}
	try := func(i int) (held bool, err error) {
		if ifHeld != Wait {
			return false, guarded(i)
		}
		l := lock(items[i])
		lease, err := l.check(acquiring, false) // it waits in the end, so it refuses what Acquire does
		if lease == nil && err == nil {
			lease, err = l.TryAcquire(acquiring)
		}
		if err != nil {
			return errors.Is(err, ErrHeld) || errors.Is(err, ErrNoQuorum), err
		}
		return false, run(lease, i)
	}
	var workers sync.WaitGroup
	for range min(parallel, len(items)) {
		workers.Go(func() {
			defer b.endWorker(stop)
			for i, again, ok := b.next(); ok; i, again, ok = b.next() {
				if again {
					b.errs[i] = guarded(i)
					continue
				}
				held, err := try(i)
				if held { // until it is taken again, which may not come
					err = errUnfinished
				}
				b.errs[i] = err
				if held {
					b.putAside(i)
				}
			}
		})
	}
	workers.Wait()
	if b.panicked {
		panic(b.panic)
	}
	return b.errs
}

// errUnfinished is the error of an item whose do ended its goroutine (runtime.Goexit), as t.FailNow does, and of items
// that nobody was left to do.
var errUnfinished = errors.New("redlock: not done, because the function ended its goroutine")

// A bulk is one call of Each.
type bulk struct {
	errs []error // each is written by the goroutine that has the item

	mu       sync.Mutex // guards the rest
	begun    int        // how many items were taken for the first time
	aside    []int      // the items that were held
	panicked bool
	panic    any
}

// next is the item to do now, and whether it was put aside before: those come last.
func (b *bulk) next() (item int, again, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.panicked:
		return 0, false, false
	case b.begun < len(b.errs):
		b.begun++
		return b.begun - 1, false, true
	case len(b.aside) > 0:
		item, b.aside = b.aside[0], b.aside[1:]
		return item, true, true
	default: // whoever still tries an item takes it again itself
		return 0, false, false
	}
}

func (b *bulk) putAside(item int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.aside = append(b.aside, item)
}

// endWorker keeps what do panicked with, and then has the others acquire nothing more.
func (b *bulk) endWorker(stop func()) {
	if p := recover(); p != nil {
		defer stop()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.panicked, b.panic = true, p
	}
}
